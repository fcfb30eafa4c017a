#include "engine/anomaly/replayed_overflow.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/anomaly/value_kinds.h"
#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::anomaly {
namespace {

ValueKinds KindsOfStats(const kernels::Stats& stats) {
  return {stats.nan > 0, stats.pos_inf > 0, stats.neg_inf > 0};
}

std::string_view Joined(std::string_view former, std::string_view word) {
  return former.empty() || former == word ? word : word.empty() ? former : "NaN and Inf";
}

std::string_view Spelled(std::string_view word) { return word.empty() ? "finite" : word; }

// The texts of a line, in its order.
template <typename Call, typename Visit>
void ForEachText(Call* call, const Visit& visit) {
  visit(&call->name), visit(&call->why), visit(&call->note);
  for (auto* direction : {&call->forward, &call->backward})
    visit(&direction->device), visit(&direction->reference), visit(&direction->differs);
}

}  // namespace

std::string_view VerdictName(OverflowVerdict verdict) {
  return kOverflowVerdictNames[static_cast<size_t>(verdict)];
}

void ReplayedDirection::Add(int64_t place, const kernels::Stats& on_device,
                            const kernels::Stats& in_reference) {
  const ValueKinds a = KindsOfStats(on_device), b = KindsOfStats(in_reference);
  const std::string_view one = KindsWord(a), other = KindsWord(b);
  device = Joined(device, one);
  reference = Joined(reference, other);
  if (a.any() != b.any() && differs.empty()) {
    differs = fmt::format("output.{}: {} on the device, {} in the reference", place, Spelled(one),
                          Spelled(other));
  }
  ++outputs;
}

OverflowVerdict VerdictOf(const ReplayedCall& call, const ReplayedDirection& direction) {
  if (!call.why.empty() || direction.outputs == 0) return OverflowVerdict::kNotExecuted;
  if (!direction.differs.empty()) return OverflowVerdict::kAbnormal;
  if (direction.device.empty()) return OverflowVerdict::kNotReproduced;
  const auto has_nan = [](std::string_view kinds) { return kinds.starts_with("NaN"); };
  const bool undefined = has_nan(direction.device) && has_nan(direction.reference);
  return undefined ? OverflowVerdict::kUndefined : OverflowVerdict::kNormal;
}

std::string ToLine(const ReplayedCall& call) {
  std::string line = fmt::format("[{}, {}", call.forward.outputs, call.backward.outputs);
  ForEachText(&call, [&](const std::string* text) {
    line += ", ";
    AppendJsonString(&line, *text);
  });
  return line + "]";
}

Result<ReplayedCall> ReplayedCallFromLine(std::string_view line) {
  constexpr std::string_view kWhere = "a worker's answer";
  formats::JsonCursor json(line);
  ReplayedCall call;
  bool whole = json.BeginArray();
  for (int64_t* count : {&call.forward.outputs, &call.backward.outputs}) {
    std::string_view number;
    whole = whole && json.NextItem() && json.Number(&number);
    if (whole) std::from_chars(number.data(), number.data() + number.size(), *count);
  }
  ForEachText(&call, [&](std::string* text) {
    formats::JsonText read;
    whole = whole && json.NextItem() && json.String(&read);
    if (whole) formats::AppendJsonText(text, read);
  });
  whole = whole && !json.NextItem();
  if (json.failed()) return json.Error(kWhere);
  if (!whole) return InvalidDump(kWhere).Expected("eleven values").Found("fewer or more");
  return call;
}

}  // namespace msprobe::anomaly
