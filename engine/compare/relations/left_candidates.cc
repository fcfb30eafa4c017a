// What lay in .grad when a backward pass began, as candidates of expose.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
namespace {

// The first call that made each content.
using ByContent = std::unordered_map<uint64_t, CallId>;
using Names = std::unordered_set<std::string_view>;

ByContent MadeBy(const Graph& run) {
  ByContent out;
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    for (const Port& port : run.Makes(id)) out.emplace(ContentKey(run.dump.leaves[port.leaf]), id);
  }
  return out;
}

Names ParametersOf(const Graph& run) {
  Names out;
  for (const Call& call : run.calls) {
    if (call.kind == CallKind::kUpdate) out.insert(call.parameter);
  }
  return out;
}

// What earlier passes of the step left, in any dtype of the run, is off by roundings of that.
bool Near(const Leaf& a, const Leaf& b, double coarsest) {
  const double size = std::max(std::abs(b.max_value), std::abs(b.min_value));
  const double off =
      std::max({std::abs(a.max_value - b.max_value), std::abs(a.min_value - b.min_value),
                std::abs(a.mean_value - b.mean_value)});
  return off <= kOwnRoundings * coarsest * size;
}

}  // namespace

// The gradients of parameters in which what lay in .grad shows: those that an optimizer takes, or
// that are listed with those of a module, after the backward pass began.
void Exposure::FindLeft(std::span<const LeftGradient> left) {
  // Runs that divide the batch into other passes add up other gradients.
  if (left.empty() || LossesOf(r_.t).size() != LossesOf(r_.g).size()) return;
  const Graph &t = r_.t, &g = r_.g;
  const ByContent mine = MadeBy(t), golden = MadeBy(g);
  // A parameter that only one run has by this name has nothing to differ from.
  const Names my_parameters = ParametersOf(t), golden_parameters = ParametersOf(g);
  const auto one_sided = [&](const LeftGradient& each) {
    return !my_parameters.empty() && !golden_parameters.empty() &&
           my_parameters.count(each.parameter) != golden_parameters.count(each.parameter);
  };
  const int32_t first_wrong = FirstWrongGradient();
  std::unordered_map<std::string_view, const LeftGradient*> of_parameter;
  std::unordered_set<std::string_view> inherited;
  for (const LeftGradient& each : left) {
    if (one_sided(each)) continue;
    const bool both = each.target != nullptr && each.golden != nullptr;
    const bool made = both && mine.count(ContentKey(*each.target)) > 0 &&
                      golden.count(ContentKey(*each.golden)) > 0;
    const bool later = each.pass > 0 && (first_wrong < each.target_behind ||
                                         (both && Near(*each.target, *each.golden, r_.coarsest())));
    if (made || later)
      inherited.insert(each.parameter);
    else
      of_parameter.emplace(each.parameter, &each);
  }
  // A parameter that several modules share has the name of the first of them.
  const auto of_shape = [&](Shape shape) -> const LeftGradient* {
    for (const auto& [name, each] : of_parameter) {
      if ((each->target != nullptr ? each->target : each->golden)->shape.view() == shape.view())
        return each;
    }
    return nullptr;
  };
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    if (call.kind != CallKind::kUpdate && call.kind != CallKind::kGradients) continue;
    const Record& record = t.dump.records[call.record];
    for (const Port& port : call.kind == CallKind::kUpdate ? t.Takes(id) : t.Makes(id)) {
      const Leaf& leaf = t.dump.leaves[port.leaf];
      const std::string name = ParameterOfGradient(record, LeafPath(leaf, record));
      if (name.empty()) continue;
      const auto found = of_parameter.find(name);
      const LeftGradient* const known = found != of_parameter.end() ? found->second
                                        : r_.IsRight(port.value) || inherited.count(name) > 0
                                            ? nullptr
                                            : of_shape(leaf.shape);
      if (known == nullptr || known->target_behind > call.record) continue;
      // An operation of the step that only the target makes left it there.
      const auto made =
          known->target == nullptr ? mine.end() : mine.find(ContentKey(*known->target));
      if (made != mine.end() && r_.pair[made->second] == kNoId && made->second < id &&
          !t.calls[made->second].IsBackward()) {
        left_.emplace(port.value, Named(made->second, port.value, Cause::kOnlyHere, true));
        continue;
      }
      left_.emplace(port.value, Candidate{.call = id,
                                          .golden = r_.pair[id],
                                          .value = port.value,
                                          .cause = Cause::kLeftGradient,
                                          .order = BeginOf(*known),
                                          .sure = found != of_parameter.end(),
                                          .pass = known->pass});
    }
  }
}

// The record of the first backward call that makes something else of data that both runs have: from
// then on gradients are wrong, and so is what later passes of the step find in .grad.
int32_t Exposure::FirstWrongGradient() const {
  const Graph& t = r_.t;
  const auto right = [this](const Port& port) { return r_.IsRight(port.value); };
  const auto is_data = [&t](const Port& port) {
    return !t.values[port.value].plain && !t.IsWeight(port.value);
  };
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    if (call.kind != CallKind::kBackward || call.forward == kNoId || r_.pair[id] == kNoId) continue;
    const auto takes = t.Takes(call.forward), makes = t.Makes(id);
    if (std::all_of(takes.begin(), takes.end(), right) &&
        std::any_of(takes.begin(), takes.end(), is_data) &&
        !std::all_of(makes.begin(), makes.end(), right))
      return call.record;
  }
  return std::numeric_limits<int32_t>::max();
}

// The place of a backward pass in the order of the target.
double Exposure::BeginOf(const LeftGradient& left) const {
  const auto first = [](const Graph& run, int32_t behind) {
    const auto at = std::lower_bound(run.calls.begin(), run.calls.end(), behind,
                                     [](const Call& call, int32_t b) { return call.record < b; });
    return static_cast<CallId>(at - run.calls.begin());
  };
  return left.target_behind >= 0 ? first(r_.t, left.target_behind) - 0.5
                                 : OrderOf(first(r_.g, left.golden_behind)) - 0.5;
}

std::optional<Candidate> Exposure::LeftIn(ValueId v) const {
  const auto found = left_.find(v);
  return found == left_.end() ? std::nullopt : std::optional<Candidate>(found->second);
}

}  // namespace msprobe::compare::relations
