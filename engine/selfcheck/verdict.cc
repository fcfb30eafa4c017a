#include "engine/selfcheck/verdict.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace msprobe::selfcheck {
namespace {

constexpr size_t kKinds = 4;

// "3 of 4 gradients".
Message Share(ValueKind kind, size_t part, size_t all) {
  switch (kind) {
    case ValueKind::kWeight:
      return "{} of {} weights"_t(part, all);
    case ValueKind::kLoss:
      return "{} of {} losses"_t(part, all);
    case ValueKind::kGradient:
      return "{} of {} gradients"_t(part, all);
    case ValueKind::kRandom:
      break;
  }
  return "{} of {} random generators"_t(part, all);
}

// "gradient of layer.weight".
Message NameOf(ValueKind kind, const std::string& name) {
  switch (kind) {
    case ValueKind::kWeight:
      return "weight of {}"_t(name);
    case ValueKind::kLoss:
      return "loss of {}"_t(name);
    case ValueKind::kGradient:
      return "gradient of {}"_t(name);
    case ValueKind::kRandom:
      break;
  }
  return "random numbers of {}"_t(name);
}

std::optional<RunDifference> DifferenceOf(const RunLog::Step& first, const RunLog::Step& second) {
  std::array<size_t, kKinds> all{}, differ{};
  std::array<Message, kKinds> names;
  std::map<std::pair<ValueKind, std::string>, uint64_t> seconds;
  for (const RunLog::Value& v : second.values) seconds[{v.kind, v.name}] = v.fingerprint;
  const auto note = [&](ValueKind kind, Message name) {
    const auto k = static_cast<size_t>(kind);
    if (differ[k]++ == 0) names[k] = std::move(name);
  };
  for (const RunLog::Value& v : first.values) {
    ++all[static_cast<size_t>(v.kind)];
    const auto other = seconds.find({v.kind, v.name});
    if (other == seconds.end()) {
      note(v.kind, "{}, which is missing in the second run"_t(NameOf(v.kind, v.name)));
      continue;
    }
    if (other->second != v.fingerprint) note(v.kind, NameOf(v.kind, v.name));
    seconds.erase(other);
  }
  for (const auto& [value, fingerprint] : seconds) {
    ++all[static_cast<size_t>(value.first)];
    note(value.first, "{}, which is missing in the first run"_t(NameOf(value.first, value.second)));
  }
  RunDifference difference;
  std::vector<Message> together;
  for (size_t k = 0; k < kKinds; ++k) {
    if (differ[k] == 0) continue;
    if (difference.what.empty()) difference.what = names[k];
    together.push_back(Share(static_cast<ValueKind>(k), differ[k], all[k]));
  }
  difference.together = Message::Joined(std::move(together), ", ");
  if (difference.what.empty()) return std::nullopt;
  return difference;
}

}  // namespace

Message RunDifference::Text() const {
  const Message text = together.empty() ? what : "{} (in this step differ: {})"_t(what, together);
  return at_end ? "after the last step: {}"_t(text) : "step {}: {}"_t(step, text);
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
                       .what = "{} steps in the first run, {} in the second"_t(first.StepCount(),
                                                                               second.StepCount())};
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
