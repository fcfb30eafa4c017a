#include "engine/anomaly/replayed_overflow.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>

#include "engine/anomaly/value_kinds.h"
#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::anomaly {
namespace {

ValueKinds KindsOfStats(const kernels::Stats& stats) {
  return {stats.nan > 0, stats.pos_inf > 0, stats.neg_inf > 0};
}

std::string Joined(const std::string& former, const std::string& word) {
  return former.empty() || former == word ? word : word.empty() ? former : "NaN and Inf";
}

Message Spelled(Message word) { return word.empty() ? "finite"_t : word; }

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
  const Message one = KindsWord(a), other = KindsWord(b);
  device = Joined(device, one.English());
  reference = Joined(reference, other.English());
  if (a.any() != b.any() && differs.empty()) {
    differs =
        "output.{}: {} on the device, {} in the reference"_t(place, Spelled(one), Spelled(other));
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
  ForEachText(&call, [&](const auto* text) {
    line += ", ";
    if constexpr (std::is_same_v<decltype(text), const Message*>) {
      AppendJsonString(&line, text->Packed());
    } else {
      AppendJsonString(&line, *text);
    }
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
  ForEachText(&call, [&](auto* text) {
    formats::JsonText read;
    whole = whole && json.NextItem() && json.String(&read);
    std::string plain;
    if (whole) formats::AppendJsonText(&plain, read);
    if constexpr (std::is_same_v<decltype(text), Message*>) {
      *text = Message::Unpacked(plain);
    } else {
      *text = std::move(plain);
    }
  });
  whole = whole && !json.NextItem();
  if (json.failed()) return json.Error(kWhere);
  if (!whole) return InvalidDump(kWhere).Expected("eleven values"_t).Found("fewer or more"_t);
  return call;
}

}  // namespace msprobe::anomaly
