#include "engine/selfcheck/verdict.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace msprobe::selfcheck {
namespace {

constexpr size_t kKinds = 4;
constexpr std::string_view kPlurals[kKinds] = {"weights", "losses", "gradients",
                                               "random generators"};

std::optional<RunDifference> DifferenceOf(const RunLog::Step& first, const RunLog::Step& second) {
  std::array<size_t, kKinds> all{}, differ{};
  std::array<std::string, kKinds> names;
  std::map<std::pair<ValueKind, std::string>, uint64_t> seconds;
  for (const RunLog::Value& v : second.values) seconds[{v.kind, v.name}] = v.fingerprint;
  const auto note = [&](ValueKind kind, const std::string& name) {
    const auto k = static_cast<size_t>(kind);
    if (differ[k]++ == 0) names[k] = std::string(ValueKindName(kind)) + " of " + name;
  };
  for (const RunLog::Value& v : first.values) {
    ++all[static_cast<size_t>(v.kind)];
    const auto other = seconds.find({v.kind, v.name});
    if (other == seconds.end()) {
      note(v.kind, v.name + ", which is missing in the second run");
      continue;
    }
    if (other->second != v.fingerprint) note(v.kind, v.name);
    seconds.erase(other);
  }
  for (const auto& [value, fingerprint] : seconds) {
    ++all[static_cast<size_t>(value.first)];
    note(value.first, value.second + ", which is missing in the first run");
  }
  RunDifference difference;
  for (size_t k = 0; k < kKinds; ++k) {
    if (differ[k] == 0) continue;
    if (difference.what.empty()) difference.what = names[k];
    if (!difference.together.empty()) difference.together += ", ";
    difference.together += std::to_string(differ[k]) + " of " + std::to_string(all[k]) + " " +
                           std::string(kPlurals[k]);
  }
  if (difference.what.empty()) return std::nullopt;
  return difference;
}

}  // namespace

std::string RunDifference::Text() const {
  std::string text = at_end ? "after the last step: " : "step " + std::to_string(step) + ": ";
  text += what;
  if (!together.empty()) text += " (in this step differ: " + together + ")";
  return text;
}

std::optional<RunDifference> FirstDifference(const RunLog& first, const RunLog& second) {
  for (size_t i = 0; i < std::min(first.steps.size(), second.steps.size()); ++i) {
    if (first.steps[i].is_end != second.steps[i].is_end) break;
    if (std::optional<RunDifference> d = DifferenceOf(first.steps[i], second.steps[i])) {
      d->step = i;
      d->at_end = first.steps[i].is_end;
      return d;
    }
  }
  if (first.steps.size() == second.steps.size()) return std::nullopt;
  const size_t steps = std::min(first.StepCount(), second.StepCount());
  return RunDifference{.step = steps,
                       .what = std::to_string(first.StepCount()) + " steps in the first run, " +
                               std::to_string(second.StepCount()) + " in the second"};
}

int64_t MedianStep(const RunLog& log) {
  std::vector<int64_t> times;
  for (const RunLog::Step& step : log.steps) {
    if (!step.is_end) times.push_back(step.nanoseconds);
  }
  if (times.size() > 1) times.erase(times.begin());
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace msprobe::selfcheck
