#include "engine/compare/align/align.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "engine/base/threads.h"
#include "engine/compare/align/call_index.h"
#include "engine/compare/align/framework_calls.h"
#include "engine/compare/align/framework_leaves.h"
#include "engine/compare/align/record_gaps.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr size_t kChunk = 1024;  // calls that a thread takes at once
constexpr size_t kRowsChunk = 1 << 14;

// The indexes of both dumps, made when a step needs them.
struct CallIndexes {
  std::optional<CallIndex> target, golden;

  // `beside` is called once, by a thread of its own where there is one.
  void Make(const Dump& of_target, const Dump& of_golden, ThreadPool& pool,
            const std::function<void()>& beside = {}) {
    pool.ParallelFor(3, [&](size_t work) {
      if (work == 0 && beside) beside();
      if (work == 1 && !target) target.emplace(of_target);
      if (work == 2 && !golden) golden.emplace(of_golden);
    });
  }
};

// Whether both calls have equally many values, of the same shapes.
bool SameShapes(const Dump& target, const Record& t, const Dump& golden, const Record& g) {
  const auto a = target.LeavesOf(t), b = golden.LeavesOf(g);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Leaf& x, const Leaf& y) {
    return x.shape == y.shape && x.slot == y.slot;
  });
}

bool SameLeaves(const Dump& target, const Record& t, const Dump& golden, const Record& g) {
  if (t.leaf_count != g.leaf_count) return false;
  const auto a = target.LeavesOf(t), b = golden.LeavesOf(g);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].shape != b[i].shape || a[i].slot != b[i].slot || a[i].name != b[i].name) return false;
  }
  return true;
}

// Whether all names, shapes and call sites are equal and in the same order: the usual case, two
// runs of the same script.
bool SameSequence(const Dump& target, const Dump& golden, const RecordKeys& target_keys,
                  const RecordKeys& golden_keys, ThreadPool& pool) {
  const size_t n = target.records.size();
  if (n != golden.records.size()) return false;
  std::vector<char> same((n + kChunk - 1) / kChunk, 1);
  PageRelease pages(target, golden);
  pool.ParallelFor(same.size(), [&](size_t c) {
    const size_t first = target.records[c * kChunk].first_leaf;
    const Record& last = target.records[std::min(n, (c + 1) * kChunk) - 1];
    pages.RowsDone(last.first_leaf + last.leaf_count - first);
    for (size_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i) {
      const Record &t = target.records[i], &g = golden.records[i];
      if (t.name != g.name || target_keys.Stack(t) != golden_keys.Stack(g) ||
          !SameLeaves(target, t, golden, g)) {
        same[c] = 0;
        return;
      }
    }
  });
  return std::find(same.begin(), same.end(), 0) == same.end();
}

std::vector<Partner> PairByPosition(size_t n) {
  std::vector<Partner> partners(n);
  for (size_t i = 0; i < n; ++i) partners[i] = {static_cast<int32_t>(i), 1};
  return partners;
}

std::vector<Partner> PairByName(const Dump& target, const Dump& golden,
                                const NameMapping& mapping) {
  const CallIndex index(golden);
  std::vector<Partner> partners(target.records.size());
  for (size_t i = 0; i < target.records.size(); ++i) {
    const Record& r = target.records[i];
    const int32_t g = index.Find(MappedApi(r.api, &mapping), r.call, r.direction);
    if (g >= 0) partners[i] = {g, 1};
  }
  return partners;
}

// The golden's gradients of the parameters of a module; -1: there are none. `module`: its forward
// call in the golden, or -1.
int32_t GradientOf(const Record& r, int32_t module, const Dump& golden,
                   const CallIndex& golden_index, const NameMapping& mapping) {
  // The module may have another name in the golden; some generations do not number the entry.
  const std::string_view api =
      module >= 0 ? golden.records[module].api.view() : MappedApi(r.api, &mapping);
  const int32_t g = golden_index.Find(api, r.call, r.direction);
  if (g >= 0 || r.call > 0) return g;
  return golden_index.Find(api, r.call < 0 ? 0 : -1, r.direction);
}

// Pairs backward records as their forward calls are paired, and gradients of parameters by the name
// of their module.
void PairFollowers(const Dump& target, const CallIndex& target_index, const Dump& golden,
                   const CallIndex& golden_index, const NameMapping& mapping, ThreadPool& pool,
                   std::vector<Partner>* partners) {
  // Partners of followers are set, and those of other calls are read.
  const auto pair = [&](size_t i) {
    const Record& r = target.records[i];
    if ((*partners)[i].golden >= 0) return;  // a data mapping pairs it
    if (r.direction == Direction::kParameterGrad) {
      const int32_t forward =
          target_index.Find(r.api, std::max<int64_t>(r.call, 0), Direction::kForward);
      const int32_t module = forward >= 0 ? (*partners)[forward].golden : -1;
      const int32_t g = GradientOf(r, module, golden, golden_index, mapping);
      if (g >= 0) (*partners)[i] = {g, 1};
    } else if (r.direction == Direction::kBackward) {
      const int32_t forward = target_index.Find(r.api, r.call, Direction::kForward);
      if (forward < 0 || (*partners)[forward].golden < 0) return;
      const Record& partner = golden.records[(*partners)[forward].golden];
      const int32_t g = golden_index.Find(partner.api, partner.call, Direction::kBackward);
      if (g >= 0) (*partners)[i] = {g, (*partners)[forward].confidence, (*partners)[forward].part};
    }
  };
  const size_t records = target.records.size();
  pool.ParallelFor((records + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(records, (chunk + 1) * kChunk); ++i) pair(i);
  });
}

std::vector<uint32_t> Unpaired(const Dump& dump, const std::vector<char>& paired, bool followers,
                               bool without_apis) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < dump.records.size(); ++i) {
    const Direction d = dump.records[i].direction;
    const bool follower = d == Direction::kBackward || d == Direction::kParameterGrad;
    const bool api = !dump.records[i].is_module && d != Direction::kNone;
    if (!paired[i] && follower == followers && !(api && without_apis)) out.push_back(i);
  }
  return out;
}

struct FreeFollowers {
  const Dump& dump;
  const CallIndex& index;
  const std::vector<char>& paired;  // of each record
  std::vector<uint32_t> records;    // followers without a partner
};

// Pairs backward records as forward calls are, by their order and by what they look like. One whose
// forward call has no partner either belongs to a call of one side only, or to a call that is made
// again in the backward pass (checkpointing): then the other side's forward call has a partner, but
// that has no backward record. So of two that are paired here, one has a paired forward call and
// the other has not, or a forward call was not recorded.
void PairFreeFollowers(const FreeFollowers& target, const FreeFollowers& golden, GapFiller* filler,
                       const std::vector<Partner>& partners) {
  if (target.records.empty() || golden.records.empty()) return;
  std::vector<char> taken(golden.dump.records.size(), 0);
  // Those whose forward call was not recorded, and those whose forward call is paired, or is not.
  const auto those = [&](const FreeFollowers& side, bool with_partner) {
    std::vector<uint32_t> out;
    for (const uint32_t i : side.records) {
      const Record& r = side.dump.records[i];
      const int32_t forward =
          side.index.Find(r.api, std::max<int64_t>(r.call, 0), Direction::kForward);
      const bool is_free = &side == &golden ? !taken[i] : partners[i].golden < 0;
      if (is_free && (forward < 0 || (side.paired[forward] != 0) == with_partner)) out.push_back(i);
    }
    return out;
  };
  for (const bool target_has_partner : {false, true}) {
    filler->Fill(those(target, target_has_partner), those(golden, !target_has_partner));
    for (const uint32_t i : target.records) {
      if (partners[i].golden >= 0) taken[partners[i].golden] = 1;
    }
  }
}

class RowBuilder {
 public:
  RowBuilder(const Dump& target, const Dump& golden, const CompareOptions& options,
             const LeafLinks& links, const std::vector<char>& same_places, std::vector<char>* seen,
             AlignedDumps* out)
      : target_(target),
        golden_(golden),
        mapping_(options.mapping),
        links_(links),
        same_places_(same_places),
        seen_(*seen),
        out_(out) {}

  // `parts`: the golden records that are parts of what the target's call computes.
  void Add(int32_t t, const Partner& partner, std::span<const uint32_t> parts = {}) {
    AddPair(t, partner.golden, partner.confidence,
            {.links_only = partner.part,
             .elsewhere = parts,
             .same_places = t >= 0 && same_places_[t] != 0});
  }
  // A golden record that only computes a part of what the target's record computes.
  void AddPart(int32_t t, uint32_t g, float confidence) {
    AddPair(t, static_cast<int32_t>(g), confidence, {.target_listed = true});
  }

 private:
  void AddPair(int32_t t, int32_t g, float confidence, RowsOf which) {
    const Record* tr = t >= 0 ? &target_.records[t] : nullptr;
    const Record* gr = g >= 0 ? &golden_.records[g] : nullptr;
    RecordPair pair{.target = t, .golden = g, .confidence = confidence};
    pair.first_row = static_cast<uint32_t>(out_->rows.size());
    if (tr == nullptr || gr == nullptr) {
      pair.match = gr == nullptr ? Match::kTargetOnly : Match::kGoldenOnly;
      pair.confidence = 0;
    } else {
      pair.match = tr->name == gr->name ? Match::kExact : Match::kAligned;
    }
    which.links_only |= g >= 0 && seen_[g];
    if (g >= 0 && !which.links_only) seen_[g] = 1;
    AlignLeaves(target_, tr, golden_, gr, mapping_, &out_->rows, links_.empty() ? nullptr : &links_,
                which);
    pair.row_count = static_cast<uint32_t>(out_->rows.size()) - pair.first_row;
    if (pair.match == Match::kAligned) {
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        Row& row = out_->rows[i];
        if (row.match == Match::kExact) row.match = Match::kAligned;
        row.confidence *= confidence;
      }
    }
    out_->pairs.push_back(pair);
  }

  const Dump &target_, &golden_;
  const NameMapping& mapping_;
  const LeafLinks& links_;
  const std::vector<char>& same_places_;  // of each target record, with its partner
  std::vector<char>& seen_;               // of each golden record: whether it has been added
  AlignedDumps* out_;
};

// For each target record whether its leaves and those of its partner have the same places. Names
// are far apart in memory: all threads look at them.
std::vector<char> FindSamePlaces(const Dump& target, const Dump& golden,
                                 const std::vector<Partner>& partners, ThreadPool& pool) {
  std::vector<char> same(partners.size(), 0);
  pool.ParallelFor((same.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(same.size(), (chunk + 1) * kChunk); ++i) {
      const int32_t g = partners[i].golden;
      same[i] = g >= 0 && HaveSamePlaces(target, target.records[i], golden, golden.records[g]);
    }
  });
  return same;
}

// Whether no golden record is the partner of several target records.
bool EachGoldenOnce(const std::vector<Partner>& partners, size_t golden_records) {
  std::vector<char> taken(golden_records, 0);
  return std::none_of(partners.begin(), partners.end(), [&](const Partner& partner) {
    return partner.golden >= 0 && std::exchange(taken[partner.golden], 1) != 0;
  });
}

// Calls add(begin, end, out) for chunks of the target's records on all threads, and joins what they
// add.
AlignedDumps JoinedChunks(const Dump& target, size_t chunk_size,
                          const std::function<void(size_t, size_t, AlignedDumps*)>& add,
                          ThreadPool& pool) {
  const size_t records = target.records.size();
  const size_t size = std::max<size_t>(chunk_size, 1);
  std::vector<AlignedDumps> chunks(std::max<size_t>((records + size - 1) / size, 1));
  pool.ParallelFor(chunks.size(),
                   [&](size_t c) { add(c * size, std::min(records, (c + 1) * size), &chunks[c]); });
  if (chunks.size() == 1) return std::move(chunks[0]);
  std::vector<size_t> rows(1, 0), pairs(1, 0);
  for (const AlignedDumps& chunk : chunks) {
    rows.push_back(rows.back() + chunk.rows.size());
    pairs.push_back(pairs.back() + chunk.pairs.size());
  }
  AlignedDumps out;
  out.rows.resize(rows.back());
  out.pairs.resize(pairs.back());
  pool.ParallelFor(chunks.size(), [&](size_t c) {
    AlignedDumps chunk = std::move(chunks[c]);
    for (RecordPair& pair : chunk.pairs) pair.first_row += static_cast<uint32_t>(rows[c]);
    std::copy(chunk.rows.begin(), chunk.rows.end(),
              out.rows.begin() + static_cast<ptrdiff_t>(rows[c]));
    std::copy(chunk.pairs.begin(), chunk.pairs.end(),
              out.pairs.begin() + static_cast<ptrdiff_t>(pairs[c]));
  });
  return out;
}

std::vector<int32_t> FindForwards(const Dump& target, const Dump& golden,
                                  const std::vector<RecordPair>& pairs, CallIndexes* indexes,
                                  ThreadPool& pool) {
  std::vector<int32_t> of_target(target.records.size(), -1), of_golden(golden.records.size(), -1);
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].target >= 0) of_target[pairs[p].target] = static_cast<int32_t>(p);
    if (pairs[p].golden >= 0) of_golden[pairs[p].golden] = static_cast<int32_t>(p);
  }
  std::vector<int32_t> forward(pairs.size(), -1);
  const auto has_backward = [](const Dump& dump) {
    return std::any_of(dump.records.begin(), dump.records.end(),
                       [](const Record& r) { return r.direction == Direction::kBackward; });
  };
  if (!has_backward(target) && !has_backward(golden)) return forward;
  indexes->Make(target, golden, pool);
  pool.ParallelFor((pairs.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t p = chunk * kChunk; p < std::min(pairs.size(), (chunk + 1) * kChunk); ++p) {
      const bool in_target = pairs[p].target >= 0;
      const Record& r =
          in_target ? target.records[pairs[p].target] : golden.records[pairs[p].golden];
      if (r.direction != Direction::kBackward) continue;
      const CallIndex& index = in_target ? *indexes->target : *indexes->golden;
      const int32_t f = index.Find(r.api, r.call, Direction::kForward);
      if (f >= 0) forward[p] = in_target ? of_target[f] : of_golden[f];
    }
  });
  return forward;
}

ThreadPool& PoolOf(const CompareOptions& options) {
  return options.pool != nullptr ? *options.pool : ThreadPool::Default();
}

std::vector<Partner> AlignCalls(const Dump& target, const Dump& golden,
                                const CompareOptions& options, CallIndexes* indexes,
                                LeafLinks* links, std::vector<CallPart>* parts) {
  *links = LinkLeaves(target, golden, options.mapping);
  // Only the name of a tensor file tells what the file holds.
  const bool files = FactsOf(target.dialect).has_no_calls && FactsOf(golden.dialect).has_no_calls;
  if (options.alignment == Alignment::kNames || files)
    return PairByName(target, golden, options.mapping);
  KeyEvidence evidence = CommonEvidence(target, golden);
  evidence.shapes = !options.shapes_of_parts;
  const RecordKeys target_keys(target, evidence, &options.mapping);
  const RecordKeys golden_keys(golden, evidence, nullptr);
  ThreadPool& pool = PoolOf(options);
  const std::vector<int32_t>& linked = links->record_of;
  if (linked.empty() && SameSequence(target, golden, target_keys, golden_keys, pool)) {
    return PairByPosition(target.records.size());
  }

  std::vector<Partner> partners(target.records.size());
  std::vector<char> linked_t(target.records.size(), 0), linked_g(golden.records.size(), 0);
  for (size_t i = 0; i < linked.size(); ++i) {
    if (linked[i] < 0) continue;
    partners[i] = {linked[i], 1};
    linked_t[i] = linked_g[linked[i]] = 1;
  }
  GapFiller filler(target, golden, target_keys, golden_keys, evidence, pool, &partners);
  const bool cross = evidence.cross_framework;
  indexes->Make(target, golden, pool, [&] {
    filler.Fill(Unpaired(target, linked_t, false, cross), Unpaired(golden, linked_g, false, cross));
  });
  if (cross) {
    const std::vector<SameResult> calls = PairFrameworkCalls(target, golden, options, &partners);
    LinkFrameworkLeaves(target, golden, options.mapping, calls, links);
    *parts = GoldenParts(target, golden, calls);
  }
  const CallIndex &target_index = *indexes->target, &golden_index = *indexes->golden;
  PairFollowers(target, target_index, golden, golden_index, options.mapping, pool, &partners);
  std::vector<char> paired_t(linked_t), paired_g(linked_g);
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i].golden < 0) continue;
    paired_t[i] = 1;
    paired_g[partners[i].golden] = 1;
  }
  PairFreeFollowers({target, target_index, paired_t, Unpaired(target, paired_t, true, cross)},
                    {golden, golden_index, paired_g, Unpaired(golden, paired_g, true, cross)},
                    &filler, partners);
  return partners;
}

// Records that only the golden has, and where they are listed.
struct OnlyGolden {
  std::vector<int32_t> front;                // before all others
  std::vector<std::vector<int32_t>> behind;  // after each record of the target
};

// Each stands after the last paired record that precedes it in the golden. When no paired record
// precedes it, it is listed before all others. Example: with A and B paired, x of the golden A x B
// is listed after A, and x of x A B is listed first.
OnlyGolden PlaceOnlyGolden(const std::vector<Partner>& partners, const std::vector<CallPart>& parts,
                           size_t targets, size_t goldens) {
  std::vector<int32_t> target_of(goldens, -1);
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i].golden >= 0) target_of[partners[i].golden] = static_cast<int32_t>(i);
  }
  for (const CallPart& part : parts) target_of[part.golden] = static_cast<int32_t>(part.target);
  OnlyGolden only;
  only.behind.resize(targets);
  int32_t last = -1;
  for (size_t g = 0; g < goldens; ++g) {
    if (target_of[g] >= 0) {
      last = target_of[g];
    } else {
      (last < 0 ? only.front : only.behind[last]).push_back(static_cast<int32_t>(g));
    }
  }
  return only;
}

// A call of the target, and the golden's calls that are its parts: before it, or behind it where
// gradients flow backwards.
void AddCall(const Record& record, int32_t t, const Partner& partner,
             std::span<const uint32_t> parts, RowBuilder* builder) {
  const bool backward = record.direction == Direction::kBackward;
  const auto add_parts = [&] {
    for (const uint32_t g : parts) builder->AddPart(t, g, partner.confidence);
  };
  if (!backward) add_parts();
  builder->Add(t, partner, parts);
  if (backward) add_parts();
}

}  // namespace

std::vector<Partner> AlignRecords(const Dump& target, const Dump& golden,
                                  const CompareOptions& options, LeafLinks* links,
                                  std::vector<CallPart>* parts) {
  LeafLinks own_links;
  std::vector<CallPart> own_parts;
  CallIndexes indexes;
  return AlignCalls(target, golden, options, &indexes, links != nullptr ? links : &own_links,
                    parts != nullptr ? parts : &own_parts);
}

AlignedDumps AlignDumps(const Dump& target, const Dump& golden, const CompareOptions& options) {
  LeafLinks links;
  std::vector<CallPart> parts;
  CallIndexes indexes;
  std::vector<Partner> partners = AlignCalls(target, golden, options, &indexes, &links, &parts);
  for (size_t i = 0; options.same_shapes && i < partners.size(); ++i) {
    const int32_t g = partners[i].golden;
    if (g >= 0 && !SameShapes(target, target.records[i], golden, golden.records[g]))
      partners[i] = {};
  }
  std::vector<std::vector<uint32_t>> parts_of(parts.empty() ? 0 : target.records.size());
  for (const CallPart& part : parts) parts_of[part.target].push_back(part.golden);
  const OnlyGolden only =
      PlaceOnlyGolden(partners, parts, target.records.size(), golden.records.size());
  const std::vector<char> same_places = FindSamePlaces(target, golden, partners, PoolOf(options));
  std::vector<char> seen(golden.records.size(), 0);
  // Adds the pairs of the target's records from `begin` to `end`.
  const auto add = [&](size_t begin, size_t end, AlignedDumps* to) {
    RowBuilder builder(target, golden, options, links, same_places, &seen, to);
    for (const int32_t g : begin == 0 ? only.front : std::vector<int32_t>()) builder.Add(-1, {g});
    for (size_t i = begin; i < end; ++i) {
      AddCall(target.records[i], static_cast<int32_t>(i), partners[i],
              parts.empty() ? std::span<const uint32_t>() : parts_of[i], &builder);
      for (const int32_t g : only.behind[i]) builder.Add(-1, {g});
    }
  };
  // A golden record in several pairs has rows of its own in the first of them: one after the other.
  const bool once = parts.empty() && EachGoldenOnce(partners, golden.records.size());
  AlignedDumps out =
      JoinedChunks(target, once ? kRowsChunk : target.records.size(), add, PoolOf(options));
  out.forward_of = FindForwards(target, golden, out.pairs, &indexes, PoolOf(options));
  return out;
}

}  // namespace msprobe::compare
