#include "engine/compare/model/module_modes.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

bool Differs(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched()) return false;
  const auto target = c.target.records[pair.target].training;
  const auto golden = c.golden.records[pair.golden].training;
  return target != golden && target != Record::Mode::kUnknown && golden != Record::Mode::kUnknown;
}

OtherMode ModeOf(const Comparison& c, int32_t p) {
  const Record& target = c.target.records[c.pairs[p].target];
  return {ModuleForPeople(target.name), target.training == Record::Mode::kTrain};
}

Message Describe(const OtherMode& mode) {
  if (mode.module.empty()) return {};
  return "{} is in {} mode in the target, in {} mode in the golden"_t(
      mode.module, mode.target_trains ? "train"_t : "eval"_t,
      mode.target_trains ? "eval"_t : "train"_t);
}

// The pair of the module's call around an API; -1: not recorded on both sides.
int32_t ModulePairAround(const Comparison& c, int32_t p) {
  if (!c.pairs[p].matched()) return -1;
  const std::string_view parent = c.target.records[c.pairs[p].target].parent;
  const auto size = static_cast<int32_t>(c.pairs.size());
  // A module's record stands after those of the calls inside it.
  for (int32_t q = p + 1; q < size && !parent.empty(); ++q) {
    if (c.pairs[q].matched() && c.target.records[c.pairs[q].target].name == parent) return q;
  }
  return -1;
}

}  // namespace

OtherMode OtherModeAt(const Comparison& c, int32_t p) {
  const Record* record = c.pairs[p].matched() ? &c.target.records[c.pairs[p].target] : nullptr;
  if (record == nullptr || record->direction != Direction::kForward) return {};
  const int32_t module = record->is_module ? p : ModulePairAround(c, p);
  return module >= 0 && Differs(c, module) ? ModeOf(c, module) : OtherMode();
}

Message DescribeMode(const Comparison& c, int32_t p) { return Describe(OtherModeAt(c, p)); }

Message DescribeModes(const Comparison& c) {
  std::unordered_set<std::string_view> modules;
  Message first;
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (!Differs(c, p)) continue;
    if (modules.empty()) first = Describe(ModeOf(c, p));
    modules.insert(c.target.records[c.pairs[p].target].api);
  }
  if (modules.size() < 2) return first;
  const size_t more = modules.size() - 1;
  return more == 1 ? "{}, and 1 more module likewise"_t(std::move(first))
                   : "{}, and {} more modules likewise"_t(std::move(first), more);
}

}  // namespace msprobe::compare
