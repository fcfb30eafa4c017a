#include "capture/recording/coverage_counter.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "capture/calls/call_place.h"
#include "capture/python/framework.h"

namespace msprobe::capture {
namespace {

using Outside = DispatchCount::Outside;

// The text for the reason why an operation is in no record.
Message Reason(std::string_view operation, Outside place, bool modules_only,
               const CoverageCounter::IsListed& is_listed) {
  switch (place) {
    case Outside::kCompiled:
      return "inside compiled code"_t;
    case Outside::kTracing:
      return "while a compiler traces, or under a dispatch mode"_t;
    case Outside::kOtherThread:
      return "on a thread without Python"_t;
    case Outside::kBackward:
      return "communication started in C++ while gradients are computed, as DDP's reducer does"_t;
    case Outside::kPython:
      break;
  }
  if (modules_only) return "outside of every recorded module"_t;
  const size_t colons = operation.find("::");
  const std::string_view space = operation.substr(0, colons);
  std::string name(operation.substr(colons + 2));
  if (space == "_c10d_functional" || space == "_c10d_functional_autograd")
    return "functional collective: its result has not arrived when the call returns"_t;
  if (space == "c10d") return "communication that is not started through torch.distributed"_t;
  if (space != "aten")
    return "an operator of another library; name it in \"custom_op_namespaces\""_t;
  if (is_listed(name)) return "called from C++ code, not from Python"_t;
  while (name.ends_with('_')) name.pop_back();
  if (is_listed(name)) return "called from C++ code, or in a way that is not listed"_t;
  return "not in support_wrap_ops.yaml"_t;
}

}  // namespace

void CoverageCounter::Start(bool modules_only) {
  nested_before_ = nested_calls - apis.nested;
  traced_before_ = traced_calls - apis.traced;
  modules_only_ = modules_only;
  if (counted_before_) {
    problem_ = "only the first recorded step is"_t;
    return;
  }
  problem_ = Framework::Get().is_torch() ? DispatchCount::Install(modules_only)
                                         : "operators of MindSpore are not counted"_t;
  counts_ = problem_.empty();
}

void CoverageCounter::AddTally() {
  DispatchCount::Remove();
  DispatchCount::Tally more = DispatchCount::Take();
  tally_.recorded += more.recorded;
  tally_.nested += more.nested;
  tally_.gradient += more.gradient;
  tally_.ignored += more.ignored;
  tally_.compiled_regions += more.compiled_regions;
  for (const auto& [key, count] : more.outside) tally_.outside[key] += count;
}

dump::Coverage CoverageCounter::Stop(const IsListed& is_listed) {
  apis.nested = nested_calls - nested_before_;
  apis.traced = traced_calls - traced_before_;
  dump::Coverage coverage;
  coverage.apis = apis;
  coverage.modules = modules;
  coverage.gradients = gradients;
  coverage.gradients_ignored = ignored_gradients;
  coverage.gradients_missing = expected_gradients - gradients - ignored_gradients;
  coverage.saves = saves;
  coverage.saves_refused = refused_saves;
  coverage.apis_not_observed = unseen;
  coverage.modules_not_observed = unseen_modules;
  coverage.compiled = compiled;
  coverage.counted = counts_;
  coverage.why_not_counted = problem_;
  if (!counts_) return coverage;
  AddTally();
  coverage.recorded = tally_.recorded;
  coverage.nested = tally_.nested;
  coverage.gradient = tally_.gradient;
  coverage.ignored = tally_.ignored;
  coverage.compiled_regions = tally_.compiled_regions;
  for (const auto& [key, count] : tally_.outside)
    coverage.not_observed.push_back(
        {key.first, count, Reason(key.first, key.second, modules_only_, is_listed)});
  std::stable_sort(coverage.not_observed.begin(), coverage.not_observed.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  return coverage;
}

void CoverageCounter::NewStep() {
  apis = modules = {};
  gradients = ignored_gradients = expected_gradients = saves = refused_saves = 0;
  nested_before_ = nested_calls;
  traced_before_ = traced_calls;
  unseen_modules.clear();
  counted_before_ = counted_before_ || counts_;
  counts_ = false;
  tally_ = {};
}

}  // namespace msprobe::capture
