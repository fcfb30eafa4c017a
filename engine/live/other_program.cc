#include "engine/live/other_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "engine/model/names.h"

namespace msprobe::live {
namespace {

// How many of the weights' names both runs have, of how many; {0, 0}: not known.
struct Shared {
  size_t common = 0, all = 0;
};

Shared NamesOf(const Dump& target, const Dump& golden) {
  if (target.weights.empty() || golden.weights.empty()) return {};
  std::set<std::string_view> there;
  for (const Weight& weight : golden.weights) there.insert(weight.name);
  Shared shared{0, std::max(target.weights.size(), golden.weights.size())};
  for (const Weight& weight : target.weights) shared.common += there.count(weight.name);
  return shared;
}

std::set<std::string_view> FingerprintsOf(const Dump& dump) {
  std::set<std::string_view> all;
  for (const Weight& weight : dump.weights) {
    if (!weight.fingerprint.empty()) all.insert(weight.fingerprint);
  }
  return all;
}

// Which values are weights: the parameters of modules, and what weights.json lists.
class Weights {
 public:
  explicit Weights(const compare::Comparison& c)
      : target_(FingerprintsOf(c.target)), golden_(FingerprintsOf(c.golden)) {}

  bool Has(const Leaf& target, const Leaf& golden) const {
    if (target.kind != LeafKind::kTensor || golden.kind != LeafKind::kTensor) return false;
    if (target.slot == Slot::kParameter && golden.slot == Slot::kParameter) return true;
    return target_.contains(target.fingerprint) && golden_.contains(golden.fingerprint);
  }

 private:
  std::set<std::string_view> target_, golden_;
};

}  // namespace

Message WhyAnotherProgram(const compare::Comparison& c) {
  if (c.target.framework != c.golden.framework)
    return "{} was recorded with {}"_t(c.golden.path, c.golden.framework);
  if (const Shared names = NamesOf(c.target, c.golden); 2 * names.common < names.all)
    return "{} is of another model: {} of {} weights have the same names"_t(
        c.golden.path, names.common, names.all);
  const Weights weights(c);
  size_t matched = 0;
  for (const compare::RecordPair& pair : c.pairs) {
    matched += pair.matched();
    if (!pair.matched()) continue;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const compare::Row& row = c.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
      if (!weights.Has(target, golden)) continue;
      if (target.dtype != golden.dtype)
        return "{} is of another dtype: {} is {} there, {} here"_t(
            c.golden.path, target.name.view(), golden.dtype.view(), target.dtype.view());
      if (target.shape.view() != golden.shape.view())
        return "{} is of another model: {} is {} there, {} here"_t(
            c.golden.path, target.name.view(), golden.shape.view(), target.shape.view());
    }
  }
  constexpr size_t kFew = 16;
  const Level here = c.target.level, there = c.golden.level;
  // A baseline that ends early has no partners for what follows.
  const size_t calls = c.golden.complete
                           ? c.target.records.size()
                           : std::min(c.target.records.size(), c.golden.records.size());
  const bool few_common = calls >= kFew && 2 * matched < calls;
  if (few_common && here != there)
    return "{} was recorded at level {}, this run at level {}"_t(c.golden.path, LevelName(there),
                                                                 LevelName(here));
  if (few_common)
    return "{} is of another program: {} of {} calls have a partner"_t(c.golden.path, matched,
                                                                       calls);
  return {};
}

}  // namespace msprobe::live
