// How two runs of calls are paired, by an example. A letter is what a call looks like under the
// strictest key (KeyLevel::kSite); the digit only tells the calls of one letter apart here.
//
//   target   A1 B1 C1 B2 C2 H1 F1 D1 E1
//   golden   A1 B1 C1 H1 G1 E1 D1
//
// 1. Diff pairs the longest common subsequence: A1-A1, B1-B1, C1-C1, H1-H1, E1-E1. Without a
//    partner are B2 C2 F1 D1 in the target and G1 D1 in the golden.
// 2. SlideGaps: "B C" occurs twice in the target, and to pair B2 C2 with B1 C1 of the golden would
//    be as short an edit. The recorded values decide which of the two repetitions is the new one,
//    also where one of them was edited (value_windows.h).
// 3. PairMoved: D1 is left over once on each side. It ran in another order: D1-D1.
// 4. GapsBetween: the pairs that are in order on both sides divide the two runs. Between H1 and E1
//    lie F1 in the target and G1 in the golden: one gap. D1-D1 divides nothing.
// 5. Diff again, inside each gap and with looser and looser keys: F1 and G1 may be one site in a
//    module that was renamed (kLikeness).
// 6. PairRenamed: what is still left in a gap is paired by similarity of shapes and names.
// 7. PartStrangers: pairs that the recorded values contradict are parted (strangers.h).
#include "engine/compare/align/record_gaps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "engine/compare/align/sequence_diff.h"
#include "engine/compare/align/strangers.h"
#include "engine/compare/align/value_windows.h"

namespace msprobe::compare {
namespace {

// The confidence of a pair that was found with a key, by KeyLevel.
constexpr double kLevelConfidence[kKeyLevels] = {1, 0.97, 0.9, 0.9, 0.8, 0.6};
constexpr double kMovedConfidence = 0.8;
// Paired calls by which a call may have moved. A call that lies further away is not the same call:
// it is another call of the same site.
constexpr int kMovedDistance = 256;
// PairRenamed weighs every call of the target against every call of the golden: at most so many
// weights are computed for one gap. Larger gaps stay unpaired.
constexpr size_t kMaxRenamedPairs = 40000;
// Below these limits two calls of different names are not paired at all.
constexpr double kMinSimilarity = 0.55, kMinNameSimilarity = 0.7;

// What equal arguments count for, beside up to 4 for the data that go in and come out and 1 for the
// module.
constexpr int kSameArguments = 3;

// Gives each different 64-bit key the next free number from 0: DiffSequences needs small ids.
class Interner {
 public:
  explicit Interner(size_t keys) {
    size_t size = 16;
    while (size < keys * 2) size *= 2;
    slots_.assign(size, -1);
  }
  uint32_t Id(uint64_t key) {
    for (size_t i = key & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] < 0) {
        slots_[i] = static_cast<int32_t>(keys_.size());
        keys_.push_back(key);
      }
      if (keys_[slots_[i]] == key) return slots_[i];
    }
  }
  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }

 private:
  std::vector<int32_t> slots_;
  std::vector<uint64_t> keys_;
};

// How well the values of two tensors agree: 2 for bit-equal, 1 for close, 0 for different ones or
// where nothing was recorded.
int LeafAgreement(const Leaf& a, const Leaf& b) {
  if (a.fingerprint.size() && b.fingerprint.size()) return a.fingerprint == b.fingerprint ? 2 : 0;
  if (a.checksum.size() && b.checksum.size()) return a.checksum == b.checksum ? 2 : 0;
  if (!a.has_stats || !b.has_stats) return 0;
  const auto same = [](std::string_view s, std::string_view t, double x, double y) {
    return s == t || x == y;  // x == y: one number, spelled with fewer or more digits
  };
  if (same(a.max, b.max, a.max_value, b.max_value) &&
      same(a.min, b.min, a.min_value, b.min_value) &&
      same(a.norm, b.norm, a.norm_value, b.norm_value))
    return 2;
  const auto close = [](double x, double y) {
    return std::abs(x - y) <= 1e-3 * std::max(std::abs(x), std::abs(y));
  };
  return close(a.max_value, b.max_value) && close(a.norm_value, b.norm_value) ? 1 : 0;
}

// Whether what the two calls take besides their first tensor is the same: weights, numbers, texts.
// They tell the passes of a loop apart (`chosen == 3`, the weights of expert 3), also where the
// data went to the wrong one. Tensors without a fingerprint tell nothing.
bool SameOtherArguments(std::span<const Leaf> a, std::span<const Leaf> b) {
  if (a.size() != b.size()) return false;
  bool first = true, any = false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].slot != b[i].slot || a[i].kind != b[i].kind) return false;
    if (a[i].slot == Slot::kOutput || a[i].kind == LeafKind::kNone) continue;
    if (a[i].kind == LeafKind::kTensor && std::exchange(first, false)) continue;
    const bool tensor = a[i].kind == LeafKind::kTensor;
    if (tensor ? a[i].fingerprint != b[i].fingerprint : a[i].value != b[i].value) return false;
    any |= !tensor || !a[i].fingerprint.empty();
  }
  return any;
}

// 0 to 1: 1 - (Levenshtein distance / length of the longer name). 0.8 when one name is part
// of the other ("linear" and "npu_linear"). Of long names the first 64 characters are compared.
double NameSimilarity(std::string_view a, std::string_view b) {
  if (a == b) return 1;
  a = a.substr(0, 64), b = b.substr(0, 64);
  if (a.empty() || b.empty()) return 0;
  if (std::min(a.size(), b.size()) >= 3 && (a.find(b) != a.npos || b.find(a) != b.npos)) return 0.8;
  std::vector<int> row(b.size() + 1);  // of the table of distances
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return 1.0 -
         static_cast<double>(row[b.size()]) / static_cast<double>(std::max(a.size(), b.size()));
}

}  // namespace

double Similarity(const Dump& target, const Record& t, const Dump& golden, const Record& g) {
  if (t.direction != g.direction || t.is_module != g.is_module) return 0;
  const auto a = target.LeavesOf(t), b = golden.LeavesOf(g);
  size_t tensors = 0, same = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const bool tensor = (i < a.size() && a[i].kind == LeafKind::kTensor) ||
                        (i < b.size() && b[i].kind == LeafKind::kTensor);
    tensors += tensor;
    if (!tensor || i >= a.size() || i >= b.size()) continue;
    same +=
        a[i].slot == b[i].slot && a[i].kind == b[i].kind && a[i].shape.SameWithoutOnes(b[i].shape);
  }
  const double structure =
      tensors == 0 ? 0 : static_cast<double>(same) / static_cast<double>(tensors);
  const double name = NameSimilarity(BaseApi(t.api), BaseApi(g.api));
  const bool place = !t.parent.empty() && WithoutCall(t.parent) == WithoutCall(g.parent);
  return 0.5 * structure + 0.35 * name + 0.15 * (place || t.parent.empty());
}

void GapFiller::Pair(uint32_t target, uint32_t golden, double confidence) {
  const bool same_name = target_.records[target].name == golden_.records[golden].name;
  partners_[target] = {static_cast<int32_t>(golden),
                       same_name && confidence >= 0.9 ? 1.0f : static_cast<float>(confidence)};
}

std::vector<uint64_t> GapFiller::KeysOf(const RecordKeys& keys, std::span<const uint32_t> records,
                                        KeyLevel level) const {
  std::vector<uint64_t> out(records.size());
  constexpr size_t kChunk = 4096;  // records
  pool_.ParallelFor((out.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(out.size(), (chunk + 1) * kChunk); ++i)
      out[i] = keys.Key(records[i], level);
  });
  return out;
}

GapFiller::Ids GapFiller::IdsOf(const Gap& gap, KeyLevel level) const {
  Interner interner(gap.target.size() + gap.golden.size());
  Ids ids;
  ids.target.reserve(gap.target.size());
  ids.golden.reserve(gap.golden.size());
  const std::vector<uint64_t> target_keys = KeysOf(target_keys_, gap.target, level),
                              golden_keys = KeysOf(golden_keys_, gap.golden, level);
  for (const uint64_t key : target_keys) ids.target.push_back(interner.Id(key));
  for (const uint64_t key : golden_keys) ids.golden.push_back(interner.Id(key));
  ids.count = interner.size();
  return ids;
}

std::vector<GapFiller::Gap> GapFiller::Diff(const Gap& gap, const Ids& ids, KeyLevel level) {
  std::vector<Gap> gaps;
  size_t i = 0, j = 0;
  const auto close = [&](size_t to_i, size_t to_j) {
    if (i < to_i && j < to_j) {
      gaps.push_back({{gap.target.begin() + i, gap.target.begin() + to_i},
                      {gap.golden.begin() + j, gap.golden.begin() + to_j}});
    }
  };
  for (const auto& [x, y] : DiffSequences(ids.target, ids.golden, ids.count)) {
    Pair(gap.target[x], gap.golden[y], kLevelConfidence[static_cast<int>(level)]);
    close(x, y);
    i = x + 1, j = y + 1;
  }
  close(gap.target.size(), gap.golden.size());
  return gaps;
}

int GapFiller::Agreement(uint32_t target, uint32_t golden) const {
  const auto a = target_.LeavesOf(target_.records[target]);
  const auto b = golden_.LeavesOf(golden_.records[golden]);
  const auto first = [](std::span<const Leaf> leaves, bool output) -> const Leaf* {
    for (const Leaf& leaf : leaves) {
      if (leaf.kind == LeafKind::kTensor && (leaf.slot == Slot::kOutput) == output) return &leaf;
    }
    return nullptr;
  };
  // The first tensor that goes in and the first that comes out.
  int score = 0;
  for (const bool output : {false, true}) {
    const Leaf *x = first(a, output), *y = first(b, output);
    if (x != nullptr && y != nullptr) score += LeafAgreement(*x, *y);
  }
  // Weights of layers that began alike (a norm's ones) tell no layer, and of compiled layers only
  // the names of their neighbours are left.
  const std::string_view module = target_.records[target].module;
  score += !module.empty() && module == golden_.records[golden].module;
  return score + (SameOtherArguments(a, b) ? kSameArguments : 0);
}

// Where the same calls repeat, a shortest edit does not tell which repetition was inserted: for
// (ABCD)^12 against (ABCD)^11 there are 12 equally short answers. The recorded values tell: each
// gap is moved along the repetition to the place where the values of most pairs around it agree.
void GapFiller::SlideGaps(const Gap& all, const Ids& ids) {
  const std::span<const uint32_t> target = all.target, golden = all.golden;
  // Position in `golden` of the partner of target[i], and the other way round; -1: no partner.
  std::vector<int> match_target(target.size(), -1), match_golden(golden.size(), -1);
  std::vector<int> golden_position(golden_.records.size(), -1);
  for (size_t j = 0; j < golden.size(); ++j) golden_position[golden[j]] = static_cast<int>(j);
  for (size_t i = 0; i < target.size(); ++i) {
    const int partner = partners_[target[i]].golden;
    if (partner < 0) continue;
    match_target[i] = golden_position[partner];
    match_golden[golden_position[partner]] = static_cast<int>(i);
  }
  const auto agreement = [&](int i, int j) { return Agreement(target[i], golden[j]); };
  const auto swapped = [&](int j, int i) { return Agreement(target[i], golden[j]); };
  SlideGapsOf(ids.target, ids.golden, agreement, &match_target, &match_golden);
  SlideGapsOf(ids.golden, ids.target, swapped, &match_golden, &match_target);
  PairByValues({ids.target, ids.golden, &match_target, &match_golden}, agreement);
  for (size_t i = 0; i < target.size(); ++i) {
    Partner& partner = partners_[target[i]];
    if (match_target[i] < 0) {
      partner = {};
    } else if (partner.golden != static_cast<int32_t>(golden[match_target[i]])) {
      Pair(target[i], golden[match_target[i]], kLevelConfidence[0]);
    }
  }
}

namespace {

// Positions in `longer` without a partner, and in `shorter` the partner just behind them.
struct PlaceOfGap {
  int begin, end, partner_behind;
};

// By how many places the gap is best moved; below 0 towards the start, 0: nothing gains. See
// SlideGapsOf.
int BestShift(std::span<const uint32_t> longer, std::span<const uint32_t> shorter,
              const PlaceOfGap& gap, const std::function<int(int, int)>& agreement,
              const std::vector<int>& match_long) {
  constexpr int kMaxSteps = 1 << 16;  // bounds the time
  const int long_size = static_cast<int>(longer.size());
  const int short_size = static_cast<int>(shorter.size());
  const int gap_size = gap.end - gap.begin;
  const auto same_key = [&](int in_longer, int in_shorter) {
    return longer[in_longer] == shorter[in_shorter];
  };
  int best_gain = 0, best_shift = 0;
  for (int step = 1, gain = 0; step <= kMaxSteps; ++step) {
    const int loses = gap.begin - step, partner = gap.partner_behind - step;
    const int gets = loses + gap_size;
    if (loses < 0 || partner < 0 || match_long[loses] != partner || !same_key(gets, partner)) break;
    gain += agreement(gets, partner) - agreement(loses, partner);
    if (gain > best_gain) best_gain = gain, best_shift = -step;
  }
  for (int step = 0, gain = 0; step < kMaxSteps; ++step) {
    const int loses = gap.end + step, partner = gap.partner_behind + step;
    const int gets = loses - gap_size;
    if (loses >= long_size || partner >= short_size || match_long[loses] != partner ||
        !same_key(gets, partner)) {
      break;
    }
    gain += agreement(gets, partner) - agreement(loses, partner);
    if (gain > best_gain) best_gain = gain, best_shift = step + 1;
  }
  return best_shift;
}

}  // namespace

// Moves the gaps of one side, called `longer`: the calls there that have no partner. Example:
//
//   position   0 1 2 3 4 5
//   longer     A B C B C D        match_long   0 1 2 - - 3
//   shorter    A B C D            match_short  0 1 2 5
//
// The gap is longer[3] and longer[4] (gap_begin 3, gap_end 5, gap_size 2). One step towards the
// start gives shorter[2] to longer[4] in place of longer[2], which is allowed because both are a C;
// a second step gives shorter[1] to longer[3] in place of longer[1]. The gap is then longer[1] and
// longer[2]. `gain` adds up how much better the values of the new pairs agree than those of the old
// pairs; the shift with the largest gain is carried out, and none when no shift gains anything.
void GapFiller::SlideGapsOf(std::span<const uint32_t> longer, std::span<const uint32_t> shorter,
                            const std::function<int(int, int)>& agreement,
                            std::vector<int>* match_long, std::vector<int>* match_short) {
  const int long_size = static_cast<int>(longer.size());
  const int short_size = static_cast<int>(shorter.size());
  for (int gap_begin = 0; gap_begin < long_size;) {
    if ((*match_long)[gap_begin] >= 0) {
      ++gap_begin;
      continue;
    }
    int gap_end = gap_begin;
    while (gap_end < long_size && (*match_long)[gap_end] < 0) ++gap_end;
    const int gap_size = gap_end - gap_begin;
    // Positions in `shorter` of the partners just before and just after the gap. When they are not
    // neighbours, `shorter` has calls without a partner at the same place: the gap stays.
    const int partner_before = gap_begin > 0 ? (*match_long)[gap_begin - 1] : -1;
    const int partner_behind = gap_end < long_size ? (*match_long)[gap_end] : short_size;
    if (partner_behind != partner_before + 1) {
      gap_begin = gap_end;
      continue;
    }
    const int best_shift =
        BestShift(longer, shorter, {gap_begin, gap_end, partner_behind}, agreement, *match_long);
    const auto pair = [&](int in_longer, int in_shorter) {
      (*match_long)[in_longer] = in_shorter;
      (*match_short)[in_shorter] = in_longer;
    };
    for (int step = 1; step <= -best_shift; ++step)
      pair(gap_begin - step + gap_size, partner_behind - step);
    for (int step = 0; step < best_shift; ++step)
      pair(gap_end + step - gap_size, partner_behind + step);
    for (int at = gap_begin + best_shift; at < gap_end + best_shift; ++at) (*match_long)[at] = -1;
    gap_begin = std::max(gap_end, gap_end + best_shift);
  }
}

// Pairs calls that ran in another order (threads, another schedule). When both sides have the same
// number of calls of one site without a partner, the first is paired with the first, the second
// with the second, provided that they are not far from each other.
void GapFiller::PairMoved(std::span<const uint32_t> target, std::span<const uint32_t> golden) {
  struct Site {
    // A record, and how many records before it have a partner.
    std::vector<std::pair<uint32_t, int>> target, golden;
  };
  std::vector<char> paired(golden_.records.size(), 0);
  std::map<uint64_t, Site> sites;
  int pairs_before = 0;
  for (const uint32_t i : target) {
    if (partners_[i].golden >= 0) {
      paired[partners_[i].golden] = 1;
      ++pairs_before;
    } else {
      sites[target_keys_.Key(i, KeyLevel::kSite)].target.emplace_back(i, pairs_before);
    }
  }
  pairs_before = 0;
  for (const uint32_t i : golden) {
    if (paired[i]) {
      ++pairs_before;
    } else if (const auto it = sites.find(golden_keys_.Key(i, KeyLevel::kSite));
               it != sites.end()) {
      it->second.golden.emplace_back(i, pairs_before);
    }
  }
  for (const auto& [key, site] : sites) {
    if (site.target.size() != site.golden.size()) continue;
    for (size_t i = 0; i < site.target.size(); ++i) {
      const auto [target_index, before_target] = site.target[i];
      const auto [golden_index, before_golden] = site.golden[i];
      const Record& t = target_.records[target_index];
      // The key alone is too little: without module and stack it is only an API and its shapes.
      const bool place_known = evidence_.parents || (evidence_.stacks && t.stack >= 0) ||
                               t.name == golden_.records[golden_index].name;
      if (place_known && std::abs(before_target - before_golden) <= kMovedDistance)
        Pair(target_index, golden_index, kMovedConfidence);
    }
  }
}

// Of all pairings that keep the order of both sides the one with the largest sum of weights, by
// dynamic programming: best(i, j) is the largest sum for the calls from target i and golden j on.
// It is the larger one of: leave target i out, best(i+1, j); leave golden j out, best(i, j+1); pair
// the two, weight(i, j) + best(i+1, j+1).
void GapFiller::PairRenamed(const Gap& gap) {
  const size_t rows = gap.target.size(), columns = gap.golden.size();
  if (rows * columns > kMaxRenamedPairs) return;
  // Where one side has more calls (a fused operation against its parts), the output of one part is
  // not the output of the whole: only calls of similar names are paired there.
  const auto weight_of = [&](size_t i, size_t j) {
    const Record &t = target_.records[gap.target[i]], &g = golden_.records[gap.golden[j]];
    if (rows != columns && NameSimilarity(BaseApi(t.api), BaseApi(g.api)) < kMinNameSimilarity)
      return 0.0;
    if (rows != columns && t.is_module != g.is_module) return 0.0;
    const double similarity = Similarity(target_, t, golden_, g);
    return similarity < kMinSimilarity ? 0.0 : similarity;
  };
  std::vector<double> weights(rows * columns), sums((rows + 1) * (columns + 1), 0);
  const auto weight = [&](size_t i, size_t j) -> double& { return weights[i * columns + j]; };
  const auto best = [&](size_t i, size_t j) -> double& { return sums[i * (columns + 1) + j]; };
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = columns; j-- > 0;) {
      weight(i, j) = weight_of(i, j);
      best(i, j) = std::max(best(i + 1, j), best(i, j + 1));
      if (weight(i, j) > 0) best(i, j) = std::max(best(i, j), weight(i, j) + best(i + 1, j + 1));
    }
  }
  for (size_t i = 0, j = 0; i < rows && j < columns;) {
    if (best(i, j) == best(i + 1, j)) {
      ++i;
    } else if (best(i, j) == best(i, j + 1)) {
      ++j;
    } else {
      Pair(gap.target[i], gap.golden[j], 0.8 * weight(i, j));
      ++i, ++j;
    }
  }
}

void GapFiller::Fill(std::vector<uint32_t> target, std::vector<uint32_t> golden) {
  if (target.empty() || golden.empty()) return;
  const Gap all{std::move(target), std::move(golden)};
  const Ids ids = IdsOf(all, KeyLevel::kSite);
  Diff(all, ids, KeyLevel::kSite);
  SlideGaps(all, ids);
  PairMoved(all.target, all.golden);
  std::vector<Gap> gaps = GapsBetween(all.target, all.golden);
  for (int level = 1; level < kKeyLevels; ++level) {
    std::vector<Gap> next;
    for (const Gap& gap : gaps) {
      const auto key = static_cast<KeyLevel>(level);
      for (Gap& left : Diff(gap, IdsOf(gap, key), key)) next.push_back(std::move(left));
    }
    gaps = std::move(next);
  }
  for (const Gap& gap : gaps) PairRenamed(gap);
  PartStrangers(target_, golden_, all.target, all.golden, &partners_);
}

// The calls without a partner, divided by the pairs that are in order. A pair that is out of order
// (a moved call) divides nothing. In
//
//   target   A x B C D y E          pairs A-A, B-B, C-C, D-D, E-E
//   golden   A u C v B D w E
//
// B comes after C in the golden. The gaps are {x} against {u} and {y} against {w}; v is in no gap.
std::vector<GapFiller::Gap> GapFiller::GapsBetween(std::span<const uint32_t> target,
                                                   std::span<const uint32_t> golden) const {
  std::vector<int> position(golden_.records.size(), -1);  // of a record, in `golden`
  std::vector<char> paired(golden.size(), 0);
  for (size_t j = 0; j < golden.size(); ++j) position[golden[j]] = static_cast<int>(j);
  std::vector<int> match(target.size(), -1);  // position of the partner; -1: no partner
  // The smallest match from target[i] on.
  std::vector<int> smallest_from(target.size() + 1, static_cast<int>(golden.size()));
  for (size_t i = target.size(); i-- > 0;) {
    const int g = partners_[target[i]].golden;
    if (g >= 0) {
      match[i] = position[g];
      paired[match[i]] = 1;
    }
    smallest_from[i] =
        match[i] >= 0 ? std::min(match[i], smallest_from[i + 1]) : smallest_from[i + 1];
  }
  std::vector<Gap> gaps;
  Gap gap;
  int next_golden = 0;
  for (size_t i = 0; i <= target.size(); ++i) {
    const bool end = i == target.size();
    // A pair divides when it lies after the last dividing pair in the golden as well, and when all
    // pairs that follow in the target follow in the golden.
    const bool divides = !end && match[i] >= next_golden && match[i] == smallest_from[i];
    if (!end && match[i] < 0) gap.target.push_back(target[i]);
    if (!end && !divides) continue;
    const int to = end ? static_cast<int>(golden.size()) : match[i];
    for (; next_golden < to; ++next_golden) {
      if (!paired[next_golden]) gap.golden.push_back(golden[next_golden]);
    }
    next_golden = to + 1;
    if (!gap.target.empty() && !gap.golden.empty()) gaps.push_back(std::move(gap));
    gap = {};
  }
  return gaps;
}

}  // namespace msprobe::compare
