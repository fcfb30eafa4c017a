#include "engine/compare/align/framework_calls.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "engine/compare/align/framework_leaves.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/align/sequence_diff.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr float kSameConfidence = 0.9f, kEndConfidence = 0.8f, kPlaceConfidence = 0.6f;
// The weights of pairs. The best pairing is the one with the largest sum. That the last part of a
// call weighs more than its first decides between MatMul and BiasAdd for linear; two pairs weigh
// more than one.
constexpr double kSameInputs = 5, kSameAndShape = 4, kEndAndShape = 4.5, kScopeResult = 3,
                 kSameOtherShape = 1.5, kSameInput = 0.25;
// Every call of a stretch is weighed against every call of the other side. Longer stretches are
// divided first, by calls of one operation and shape.
constexpr size_t kMaxWeights = size_t{1} << 20;
constexpr int kMostParents = 64;

// Steps of optimizers are paired by their order, whatever module runs them.
bool IsForwardApi(const Record& r) {
  return !r.is_module && r.direction == Direction::kForward && !IsOptimizerCall(r.api);
}

std::vector<uint32_t> OptimizerSteps(const Dump& dump) {
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < dump.records.size(); ++i) {
    const std::string_view api = dump.records[i].api;
    if (IsOptimizerCall(api) && api.ends_with(".step")) steps.push_back(i);
  }
  return steps;
}

const Leaf* FirstTensor(const Dump& dump, const Record& record, bool output) {
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind == LeafKind::kTensor && (leaf.slot == Slot::kOutput) == output &&
        leaf.slot != Slot::kParameter)
      return &leaf;
  }
  return nullptr;
}

bool BothHaveShape(const Leaf* a, const Leaf* b) {
  return a != nullptr && b != nullptr && a->shape.SameWithoutOnes(b->shape);
}

// The module calls of one side, and in which of them each call ran.
class Scopes {
 public:
  Scopes(const Dump& dump, const std::vector<int32_t>& pair_of) : dump_(dump), pair_of_(pair_of) {
    for (size_t i = 0; i < dump.records.size(); ++i) {
      const Record& r = dump.records[i];
      if (r.is_module && r.direction == Direction::kForward)
        by_name_.emplace(r.name, static_cast<int32_t>(i));
    }
  }
  // The innermost module call around a record that has a partner: the number of its pair; -1: none.
  int32_t Of(const Record& record) const {
    std::string_view at = record.parent;
    for (int depth = 0; depth < kMostParents && !at.empty(); ++depth) {
      const auto found = by_name_.find(at);
      if (found == by_name_.end()) return -1;
      if (pair_of_[found->second] >= 0) return pair_of_[found->second];
      at = dump_.records[found->second].parent;
    }
    return -1;
  }

 private:
  const Dump& dump_;
  const std::vector<int32_t>& pair_of_;  // for each record the number of its pair; -1: none
  std::unordered_map<std::string_view, int32_t> by_name_;
};

// What ran directly in one module call on both sides, in order: API calls, and the module calls
// that have a partner, which divide it.
struct Scope {
  std::vector<uint32_t> target, golden;
  int32_t target_module = -1, golden_module = -1;  // the call itself; -1: outside of all modules
};
struct Gap {
  std::vector<uint32_t> target, golden;
  bool last = false;  // nothing follows in its module
};

class CallPairer {
 public:
  CallPairer(const Dump& target, const Dump& golden, const NameMapping& mapping,
             std::vector<Partner>* partners)
      : target_(target), golden_(golden), mapping_(mapping), partners_(*partners) {
    target_apis_ = Apis(target);
    golden_apis_ = Apis(golden);
    relations_.assign(target_names_.size() * golden_names_.size(), kUnknownRelation);
  }

  std::vector<SameResult> Pair() {
    for (const Scope& scope : MakeScopes()) {
      for (const Gap& gap : GapsOf(scope)) Align(scope, gap);
    }
    const std::vector<uint32_t> target = OptimizerSteps(target_), golden = OptimizerSteps(golden_);
    for (size_t i = 0; i < std::min(target.size(), golden.size()); ++i) {
      if (partners_[target[i]].golden >= 0) continue;  // a mapping of the user pairs it
      partners_[target[i]] = {static_cast<int32_t>(golden[i]), 1, false};
      results_.push_back({{target[i]}, {golden[i]}, true});
    }
    return std::move(results_);
  }

 private:
  static constexpr uint8_t kUnknownRelation = 0xff;

  // The number of each record's API among those of its side.
  std::vector<uint32_t> Apis(const Dump& dump) {
    std::vector<std::string_view>& names = &dump == &target_ ? target_names_ : golden_names_;
    std::unordered_map<std::string_view, uint32_t> numbers;
    std::vector<uint32_t> out;
    for (const Record& r : dump.records) {
      const auto [at, added] = numbers.emplace(r.api, static_cast<uint32_t>(names.size()));
      if (added) names.push_back(r.api);
      out.push_back(at->second);
    }
    return out;
  }

  Relation RelationOfCalls(uint32_t t, uint32_t g) {
    uint8_t& known = relations_[target_apis_[t] * golden_names_.size() + golden_apis_[g]];
    if (known == kUnknownRelation) {
      const std::string_view target = target_names_[target_apis_[t]],
                             golden = golden_names_[golden_apis_[g]];
      // What a file of the user names wins over the table.
      const bool mapped = MappedApi(target, &mapping_) == golden;
      known = static_cast<uint8_t>(mapped ? Relation::kSame : RelationOf(target, golden));
    }
    return static_cast<Relation>(known);
  }

  std::vector<Scope> MakeScopes() {
    std::vector<int32_t> target_pair(target_.records.size(), -1),
        golden_pair(golden_.records.size(), -1);
    std::vector<Scope> scopes(1);
    for (size_t i = 0; i < partners_.size(); ++i) {
      const Record& r = target_.records[i];
      if (partners_[i].golden < 0 || !r.is_module || r.direction != Direction::kForward) continue;
      target_pair[i] = golden_pair[partners_[i].golden] = static_cast<int32_t>(scopes.size());
      scopes.push_back(
          {.target_module = static_cast<int32_t>(i), .golden_module = partners_[i].golden});
    }
    for (const bool target : {true, false}) {
      const Dump& dump = target ? target_ : golden_;
      const std::vector<int32_t>& pair_of = target ? target_pair : golden_pair;
      const Scopes places(dump, pair_of);
      for (uint32_t i = 0; i < dump.records.size(); ++i) {
        const Record& r = dump.records[i];
        const bool divides = pair_of[i] >= 0;
        if (!divides && !IsForwardApi(r)) continue;
        if (!divides && target && partners_[i].golden >= 0) continue;  // a data mapping pairs it
        Scope& scope = scopes[std::max(places.Of(r), 0)];
        (target ? scope.target : scope.golden).push_back(i);
      }
    }
    return scopes;
  }

  // Divides a scope by the module calls that are in order on both sides.
  std::vector<Gap> GapsOf(const Scope& scope) const {
    std::unordered_map<uint32_t, size_t> position;
    for (size_t j = 0; j < scope.golden.size(); ++j) position[scope.golden[j]] = j;
    std::vector<Gap> gaps(1);
    size_t next = 0;
    const auto take = [&](size_t to) {
      for (; next < to; ++next) {
        if (IsForwardApi(golden_.records[scope.golden[next]]))
          gaps.back().golden.push_back(scope.golden[next]);
      }
    };
    for (const uint32_t t : scope.target) {
      if (IsForwardApi(target_.records[t])) {
        gaps.back().target.push_back(t);
        continue;
      }
      const auto found = position.find(static_cast<uint32_t>(partners_[t].golden));
      if (found == position.end() || found->second < next) continue;
      take(found->second);
      next = found->second + 1;
      gaps.emplace_back();
    }
    take(scope.golden.size());
    gaps.back().last = true;
    return gaps;
  }

  void Align(const Scope& scope, const Gap& gap) {
    if (gap.target.empty() || gap.golden.empty()) return;
    if (gap.target.size() * gap.golden.size() <= kMaxWeights) return AlignAll(scope, gap);
    std::vector<uint32_t> a, b;
    std::map<uint64_t, uint32_t> ids;
    const auto id_of = [&](const Dump& dump, uint32_t i) {
      const Leaf* out = FirstTensor(dump, dump.records[i], true);
      const uint64_t key = HashText(OperationOf(dump.records[i].api),
                                    out == nullptr ? 0 : out->shape.key_without_ones());
      return ids.emplace(key, static_cast<uint32_t>(ids.size())).first->second;
    };
    for (const uint32_t i : gap.target) a.push_back(id_of(target_, i));
    for (const uint32_t j : gap.golden) b.push_back(id_of(golden_, j));
    size_t i = 0, j = 0;
    const auto close = [&](size_t to_i, size_t to_j, bool last) {
      const Gap part{{gap.target.begin() + i, gap.target.begin() + to_i},
                     {gap.golden.begin() + j, gap.golden.begin() + to_j},
                     last};
      if (part.target.size() * part.golden.size() <= kMaxWeights) AlignAll(scope, part);
    };
    for (const auto& [x, y] : DiffSequences(a, b, static_cast<uint32_t>(ids.size()))) {
      close(x + 1, y + 1, false);  // with the pair itself: it may end a call of several parts
      i = x + 1, j = y + 1;
    }
    close(gap.target.size(), gap.golden.size(), gap.last);
  }

  double Weight(const Scope& scope, const Gap& gap, size_t i, size_t j, Relation* relation) {
    const uint32_t t = gap.target[i], g = gap.golden[j];
    const Record &target = target_.records[t], &golden = golden_.records[g];
    *relation = RelationOfCalls(t, g);
    const Leaf *t_out = FirstTensor(target_, target, true),
               *g_out = FirstTensor(golden_, golden, true);
    const Leaf *t_in = FirstTensor(target_, target, false),
               *g_in = FirstTensor(golden_, golden, false);
    if (!InOneModule(target, golden)) return 0;
    const double input = BothHaveShape(t_in, g_in) ? kSameInput : 0;
    if (BothHaveShape(t_out, g_out)) {
      if (*relation == Relation::kSame) {
        const bool all =
            !LeavesInputsOpen(target_, t, golden_, g) && !LeavesInputsOpen(golden_, g, target_, t);
        return all ? kSameInputs : kSameAndShape + input;
      }
      if (*relation != Relation::kNone) return kEndAndShape;
      return IsScopeResult(scope, gap, i, j, t_out) ? kScopeResult : 0;
    }
    if (*relation != Relation::kSame || t_out == nullptr || g_out == nullptr) return 0;
    // Another batch, or a wrong shape: what makes a shape (reshape) is then not recognised.
    const bool ranks = t_out->shape.extents().size() == g_out->shape.extents().size() &&
                       t_in != nullptr && g_in != nullptr &&
                       t_in->shape.extents().size() == g_in->shape.extents().size();
    return ranks && t_out->shape.elements() != t_in->shape.elements() ? kSameOtherShape : 0;
  }

  // Calls whose module is known, but has no entry (level L1), are no pair in different modules.
  bool InOneModule(const Record& t, const Record& g) const {
    if (t.module.empty() || g.module.empty()) return true;
    const std::string_view mapped = MappedApi(t.module, &mapping_);
    const auto path = [](std::string_view name) {
      name = name.substr(std::min(name.find('.'), name.size() - 1) + 1);
      return name.substr(0, name.rfind('.'));
    };
    return path(mapped) == path(g.module);
  }

  // Whether the two calls are the last ones of their module that make a tensor of its result's
  // shape: both are then its result, whatever computes it.
  bool IsScopeResult(const Scope& scope, const Gap& gap, size_t i, size_t j,
                     const Leaf* result) const {
    if (!gap.last || scope.target_module < 0) return false;
    const auto ends = [&](const Dump& dump, int32_t module, const std::vector<uint32_t>& calls,
                          size_t at) {
      const Leaf* out = FirstTensor(dump, dump.records[module], true);
      if (!BothHaveShape(out, result)) return false;
      for (size_t k = at + 1; k < calls.size(); ++k) {
        if (BothHaveShape(FirstTensor(dump, dump.records[calls[k]], true), out)) return false;
      }
      return true;
    };
    return ends(target_, scope.target_module, gap.target, i) &&
           ends(golden_, scope.golden_module, gap.golden, j);
  }

  // The pairing in order with the largest sum of weights, as PairRenamed in record_gaps.cc.
  void AlignAll(const Scope& scope, const Gap& gap) {
    const size_t rows = gap.target.size(), columns = gap.golden.size();
    if (rows == 0 || columns == 0) return;
    std::vector<double> sums((rows + 1) * (columns + 1), 0);
    std::vector<float> weights(rows * columns);
    std::vector<Relation> relations(rows * columns);
    const auto best = [&](size_t i, size_t j) -> double& { return sums[i * (columns + 1) + j]; };
    for (size_t i = rows; i-- > 0;) {
      for (size_t j = columns; j-- > 0;) {
        const size_t at = i * columns + j;
        weights[at] = static_cast<float>(Weight(scope, gap, i, j, &relations[at]));
        best(i, j) = std::max(best(i + 1, j), best(i, j + 1));
        if (weights[at] > 0) best(i, j) = std::max(best(i, j), weights[at] + best(i + 1, j + 1));
      }
    }
    size_t free_i = 0, free_j = 0;  // the first calls that may be parts of the next pair
    for (size_t i = 0, j = 0; i < rows && j < columns;) {
      // Of equal sums the one with the later calls: a call ends with the last of its parts.
      if (best(i, j) == best(i + 1, j)) {
        ++i;
      } else if (best(i, j) == best(i, j + 1)) {
        ++j;
      } else {
        Settle({gap.target.begin() + free_i, gap.target.begin() + i + 1},
               {gap.golden.begin() + free_j, gap.golden.begin() + j + 1},
               relations[i * columns + j]);
        free_i = ++i, free_j = ++j;
      }
    }
  }

  // The last calls of both are a pair; those before may be parts of it.
  void Settle(std::vector<uint32_t> target, std::vector<uint32_t> golden, Relation relation) {
    const uint32_t t = target.back(), g = golden.back();
    SameResult result{{t}, {g}, relation == Relation::kSame};
    if (relation == Relation::kEndsGolden ||
        (relation != Relation::kEndsTarget && LeavesInputsOpen(target_, t, golden_, g)))
      result.target = Makers(target_, target);
    if (result.target.size() == 1 &&
        (relation == Relation::kEndsTarget ||
         (relation != Relation::kEndsGolden && LeavesInputsOpen(golden_, g, target_, t))))
      result.golden = Makers(golden_, golden);
    const bool all_inputs = result.target.size() == 1 && result.golden.size() == 1 &&
                            !LeavesInputsOpen(golden_, g, target_, t) &&
                            !LeavesInputsOpen(target_, t, golden_, g);
    const float confidence = relation == Relation::kSame   ? (all_inputs ? 1 : kSameConfidence)
                             : relation == Relation::kNone ? kPlaceConfidence
                                                           : kEndConfidence;
    for (const uint32_t part : result.target)
      partners_[part] = {static_cast<int32_t>(g), confidence, part != t};
    results_.push_back(std::move(result));
  }

  const Dump &target_, &golden_;
  const NameMapping& mapping_;
  std::vector<Partner>& partners_;
  std::vector<std::string_view> target_names_, golden_names_;
  std::vector<uint32_t> target_apis_, golden_apis_;
  std::vector<uint8_t> relations_;  // of each API of the target with each of the golden
  std::vector<SameResult> results_;
};

}  // namespace

std::vector<SameResult> PairFrameworkCalls(const Dump& target, const Dump& golden,
                                           const CompareOptions& options,
                                           std::vector<Partner>* partners) {
  return CallPairer(target, golden, options.mapping, partners).Pair();
}

}  // namespace msprobe::compare
