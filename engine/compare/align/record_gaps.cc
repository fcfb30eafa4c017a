#include "engine/compare/align/record_gaps.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/compare/align/sequence_diff.h"

namespace msprobe::compare {
namespace {

// How sure a pair is that was found at a level, by KeyLevel.
constexpr double kLevelConfidence[kKeyLevels] = {1, 0.97, 0.9, 0.9, 0.8, 0.6};
constexpr double kMovedConfidence = 0.8;
// A moved call keeps its neighbourhood; further away it is another call of the same place.
constexpr int kMovedDistance = 256;
// Renamed calls are looked for where both gaps are small enough for every pair to be weighed.
constexpr size_t kMaxRenamedPairs = 40000;
constexpr double kMinSimilarity = 0.55, kMinNameSimilarity = 0.7;

// Dense ids for 64-bit keys.
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

// 0 to 2: 2 for bit-equal numbers, 1 for close ones.
int LeafAgreement(const Leaf& a, const Leaf& b) {
  if (a.fingerprint.size() && b.fingerprint.size()) return a.fingerprint == b.fingerprint ? 2 : 0;
  if (a.md5.size() && b.md5.size()) return a.md5 == b.md5 ? 2 : 0;
  if (!a.has_stats || !b.has_stats) return 0;
  const auto same = [](std::string_view s, std::string_view t, double x, double y) {
    return s == t || x == y;  // spelled with more digits
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

double NameSimilarity(std::string_view a, std::string_view b) {
  if (a == b) return 1;
  a = a.substr(0, 64), b = b.substr(0, 64);
  if (a.empty() || b.empty()) return 0;
  if (std::min(a.size(), b.size()) >= 3 && (a.find(b) != a.npos || b.find(a) != b.npos)) return 0.8;
  std::vector<int> row(b.size() + 1);
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
    same += a[i].slot == b[i].slot && a[i].kind == b[i].kind &&
            SameSqueezedShape(a[i].shape, b[i].shape);
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

std::vector<GapFiller::Gap> GapFiller::Diff(const Gap& gap, KeyLevel level) {
  Interner ids(gap.target.size() + gap.golden.size());
  std::vector<uint32_t> a, b;
  a.reserve(gap.target.size());
  b.reserve(gap.golden.size());
  for (const uint32_t i : gap.target) a.push_back(ids.Id(target_keys_.Key(i, level)));
  for (const uint32_t i : gap.golden) b.push_back(ids.Id(golden_keys_.Key(i, level)));

  std::vector<Gap> gaps;
  size_t i = 0, j = 0;
  const auto close = [&](size_t to_i, size_t to_j) {
    if (i < to_i && j < to_j) {
      gaps.push_back({{gap.target.begin() + i, gap.target.begin() + to_i},
                      {gap.golden.begin() + j, gap.golden.begin() + to_j}});
    }
  };
  for (const auto& [x, y] : DiffSequences(a, b, ids.size())) {
    Pair(gap.target[x], gap.golden[y], kLevelConfidence[static_cast<int>(level)]);
    close(x, y);
    i = x + 1, j = y + 1;
  }
  close(gap.target.size(), gap.golden.size());
  return gaps;
}

int GapFiller::Agreement(uint32_t target, uint32_t golden) const {
  // The first tensor that goes in and the first that comes out.
  const auto first = [](const Dump& dump, uint32_t record, bool output) -> const Leaf* {
    for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
      if (leaf.kind == LeafKind::kTensor && (leaf.slot == Slot::kOutput) == output) return &leaf;
    }
    return nullptr;
  };
  int score = 0;
  for (const bool output : {false, true}) {
    const Leaf *a = first(target_, target, output), *b = first(golden_, golden, output);
    if (a != nullptr && b != nullptr) score += LeafAgreement(*a, *b);
  }
  return score;
}

// In a stretch that repeats itself a shortest edit leaves open which repetition was inserted:
// (ABCD)^12 against (ABCD)^11. The values tell: the gap is moved along the repetition to where most
// calls around it agree.
void GapFiller::Slide(std::span<const uint32_t> target, std::span<const uint32_t> golden) {
  std::vector<int> match_t(target.size(), -1), match_g(golden.size(), -1);
  std::vector<int> golden_position(golden_.records.size(), -1);
  for (size_t j = 0; j < golden.size(); ++j) golden_position[golden[j]] = static_cast<int>(j);
  for (size_t i = 0; i < target.size(); ++i) {
    const int g = partners_[target[i]].golden;
    if (g < 0) continue;
    match_t[i] = golden_position[g];
    match_g[golden_position[g]] = static_cast<int>(i);
  }
  SlideSide(target, golden, false, &match_t, &match_g);
  SlideSide(golden, target, true, &match_g, &match_t);
  for (size_t i = 0; i < target.size(); ++i) {
    Partner& partner = partners_[target[i]];
    if (match_t[i] < 0) {
      partner = {};
    } else if (partner.golden != static_cast<int32_t>(golden[match_t[i]])) {
      Pair(target[i], golden[match_t[i]], kLevelConfidence[0]);
    }
  }
}

void GapFiller::SlideSide(std::span<const uint32_t> longer, std::span<const uint32_t> shorter,
                          bool swapped, std::vector<int>* match_long,
                          std::vector<int>* match_short) {
  constexpr int kMaxSteps = 1 << 16;
  auto &ml = *match_long, &ms = *match_short;
  const int n = static_cast<int>(longer.size());
  const auto agreement = [&](int l, int s) {
    return swapped ? Agreement(shorter[s], longer[l]) : Agreement(longer[l], shorter[s]);
  };
  const auto same_key = [&](int l, int s) {
    const RecordKeys &lk = swapped ? golden_keys_ : target_keys_,
                     &sk = swapped ? target_keys_ : golden_keys_;
    return lk.Key(longer[l], KeyLevel::kSite) == sk.Key(shorter[s], KeyLevel::kSite);
  };
  for (int p = 0; p < n;) {
    if (ml[p] >= 0) {
      ++p;
      continue;
    }
    int end = p;
    while (end < n && ml[end] < 0) ++end;
    const int k = end - p;
    // Only where nothing of the other side is left over at the same place.
    const int before = p > 0 ? ml[p - 1] : -1;
    const int after = end < n ? ml[end] : static_cast<int>(shorter.size());
    if (after != before + 1) {
      p = end;
      continue;
    }
    int best_gain = 0, best = 0, gain = 0;
    for (int i = 1; i <= kMaxSteps; ++i) {  // towards the start
      const int l = p - i, s = after - i;
      if (l < 0 || s < 0 || ml[l] != s || !same_key(l + k, s)) break;
      gain += agreement(l + k, s) - agreement(l, s);
      if (gain > best_gain) best_gain = gain, best = -i;
    }
    gain = 0;
    for (int i = 0; i < kMaxSteps; ++i) {  // towards the end
      const int l = end + i, s = after + i;
      if (l >= n || s >= static_cast<int>(shorter.size()) || ml[l] != s || !same_key(l - k, s))
        break;
      gain += agreement(l - k, s) - agreement(l, s);
      if (gain > best_gain) best_gain = gain, best = i + 1;
    }
    for (int i = 1; i <= -best; ++i) {
      ml[p - i + k] = after - i;
      ms[after - i] = p - i + k;
    }
    for (int i = 0; i < best; ++i) {
      ml[end + i - k] = after + i;
      ms[after + i] = end + i - k;
    }
    for (int i = p + best; i < end + best; ++i) ml[i] = -1;
    p = std::max(end, end + best);
  }
}

// Calls that ran in another order (threads, another schedule): the same number of left-over calls
// of one site on both sides, near each other, are the same ones.
void GapFiller::PairMoved(std::span<const uint32_t> target, std::span<const uint32_t> golden) {
  struct Site {
    std::vector<std::pair<uint32_t, int>> target, golden;  // record, paired records before it
  };
  std::vector<char> paired(golden_.records.size(), 0);
  std::map<uint64_t, Site> sites;
  int anchors = 0;
  for (const uint32_t i : target) {
    if (partners_[i].golden >= 0) {
      paired[partners_[i].golden] = 1;
      ++anchors;
    } else {
      sites[target_keys_.Key(i, KeyLevel::kSite)].target.emplace_back(i, anchors);
    }
  }
  anchors = 0;
  for (const uint32_t i : golden) {
    if (paired[i]) {
      ++anchors;
    } else if (const auto it = sites.find(golden_keys_.Key(i, KeyLevel::kSite));
               it != sites.end()) {
      it->second.golden.emplace_back(i, anchors);
    }
  }
  for (const auto& [key, site] : sites) {
    if (site.target.size() != site.golden.size()) continue;
    for (size_t i = 0; i < site.target.size(); ++i) {
      const auto [t, before_t] = site.target[i];
      const auto [g, before_g] = site.golden[i];
      const Record &tr = target_.records[t], &gr = golden_.records[g];
      const bool placed =
          evidence_.parents || (evidence_.stacks && tr.stack >= 0) || tr.name == gr.name;
      if (placed && std::abs(before_t - before_g) <= kMovedDistance) Pair(t, g, kMovedConfidence);
    }
  }
}

void GapFiller::PairRenamed(const Gap& gap) {
  const size_t n = gap.target.size(), m = gap.golden.size();
  if (n * m > kMaxRenamedPairs) return;
  // The heaviest order-preserving pairing. Where one side has more calls (a fused operation against
  // its parts), an output of one is not the output of the other: only calls of similar name are
  // paired there.
  const auto weight = [&](size_t i, size_t j) {
    const Record &t = target_.records[gap.target[i]], &g = golden_.records[gap.golden[j]];
    if (n != m && NameSimilarity(BaseApi(t.api), BaseApi(g.api)) < kMinNameSimilarity) return 0.0;
    if (n != m && t.is_module != g.is_module) return 0.0;
    const double s = Similarity(target_, t, golden_, g);
    return s < kMinSimilarity ? 0.0 : s;
  };
  std::vector<double> w(n * m), best((n + 1) * (m + 1), 0);
  for (size_t i = n; i-- > 0;) {
    for (size_t j = m; j-- > 0;) {
      w[i * m + j] = weight(i, j);
      double& b = best[i * (m + 1) + j];
      b = std::max(best[(i + 1) * (m + 1) + j], best[i * (m + 1) + j + 1]);
      if (w[i * m + j] > 0) b = std::max(b, w[i * m + j] + best[(i + 1) * (m + 1) + j + 1]);
    }
  }
  for (size_t i = 0, j = 0; i < n && j < m;) {
    const double b = best[i * (m + 1) + j];
    if (b == best[(i + 1) * (m + 1) + j]) {
      ++i;
    } else if (b == best[i * (m + 1) + j + 1]) {
      ++j;
    } else {
      Pair(gap.target[i], gap.golden[j], 0.8 * w[i * m + j]);
      ++i, ++j;
    }
  }
}

void GapFiller::Fill(std::vector<uint32_t> target, std::vector<uint32_t> golden) {
  if (target.empty() || golden.empty()) return;
  std::vector<Gap> gaps = Diff({target, golden}, KeyLevel::kSite);
  Slide(target, golden);
  PairMoved(target, golden);
  gaps = GapsBetween(target, golden);
  for (int level = 1; level < kKeyLevels; ++level) {
    std::vector<Gap> next;
    for (const Gap& gap : gaps) {
      for (Gap& left : Diff(gap, static_cast<KeyLevel>(level))) next.push_back(std::move(left));
    }
    gaps = std::move(next);
  }
  for (const Gap& gap : gaps) PairRenamed(gap);
}

// The stretches between pairs that are in order on both sides; moved pairs divide nothing.
std::vector<GapFiller::Gap> GapFiller::GapsBetween(std::span<const uint32_t> target,
                                                   std::span<const uint32_t> golden) const {
  std::vector<int> position(golden_.records.size(), -1);
  std::vector<char> paired(golden.size(), 0);
  for (size_t j = 0; j < golden.size(); ++j) position[golden[j]] = static_cast<int>(j);
  std::vector<int> match(target.size(), -1),
      ahead(target.size() + 1, static_cast<int>(golden.size()));
  for (size_t i = target.size(); i-- > 0;) {
    const int g = partners_[target[i]].golden;
    if (g >= 0) {
      match[i] = position[g];
      paired[match[i]] = 1;
    }
    ahead[i] = match[i] >= 0 ? std::min(match[i], ahead[i + 1]) : ahead[i + 1];
  }
  std::vector<Gap> gaps;
  Gap gap;
  int next_golden = 0;
  for (size_t i = 0; i <= target.size(); ++i) {
    const bool end = i == target.size();
    // A pair divides when everything paired before it lies before it in the golden, and everything
    // after it behind.
    const bool divides = !end && match[i] >= next_golden && match[i] == ahead[i];
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
