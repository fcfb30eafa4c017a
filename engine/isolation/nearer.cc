#include "engine/isolation/nearer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "engine/base/text.h"
#include "engine/formats/text/json.h"
#include "engine/kernels/diff.h"
#include "engine/tensor/dtype.h"

namespace msprobe::isolation {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFactor = 2;     // less than this is no difference
constexpr double kRoundings = 8;  // of the dtype: what an operation may be off by its nature

ErrorOf ErrorFrom(const kernels::Diff& diff) {
  ErrorOf error;
  const auto finite = [](double value) { return std::isnan(value) ? 0 : value; };
  error.max_abs = finite(diff.max_abs_error);
  error.relative = finite(diff.relative_l2);
  error.ulp = static_cast<double>(diff.max_ulp);
  error.nonfinite = diff.nonfinite_mismatch;
  return error;
}

// Integers, and floats of 8 bits and less, are taken for exact.
double Epsilon(std::string_view name) {
  const std::optional<DType> dtype = DTypeFromTorchName(name);
  return dtype && DTypeSize(*dtype) > 1 ? DTypeEpsilon(*dtype) : 0;
}

// How far one result is, as a number that orders results.
double Size(const ErrorOf& error) { return error.nonfinite > 0 ? kInfinity : error.relative; }
const ErrorOf& Judged(const OutputError& output) {
  return output.has_recorded ? output.recorded : output.again;
}
bool HasBound(const OutputError& output) {
  return output.rounding.kind != accuracy::RoundingVerdict::Kind::kNoBound;
}
// The size of the error, in what an operation may be off by its nature.
double Excess(const OutputError& output) {
  if (HasBound(output))
    return output.rounding.bound > 0 ? output.rounding.error / output.rounding.bound : 0;
  const double size = Size(Judged(output)), explained = kRoundings * Epsilon(output.dtype);
  return size <= explained ? (size > 0 ? size / explained : 0)
                           : (explained > 0 ? size / explained : kInfinity);
}
const OutputError* Worst(const ReplayedCall& call) {
  const auto worse = [](const OutputError& a, const OutputError& b) {
    return Excess(a) < Excess(b);
  };
  const auto found = std::max_element(call.outputs.begin(), call.outputs.end(), worse);
  return found == call.outputs.end() ? nullptr : &*found;
}
const OutputError* At(const ReplayedCall& call, std::string_view place) {
  for (const OutputError& output : call.outputs) {
    if (output.place == place) return &output;
  }
  return nullptr;
}

Message Described(const OutputError& output) {
  const ErrorOf& error = Judged(output);
  if (error.nonfinite == 1)
    return "1 element is NaN or infinite where float64 is not, or the reverse"_t;
  if (error.nonfinite > 1) {
    return "{} elements are NaN or infinite where float64 is not, or the reverse"_t(
        error.nonfinite);
  }
  Message off = "off by {:.2g} relative, {:.2g} at most"_t(error.relative, error.max_abs);
  if (output.rounding.kind != accuracy::RoundingVerdict::Kind::kError) return off;
  return "{}, {:.3g} roundings at element {} where {:.3g} are explained"_t(
      std::move(off), output.rounding.error, output.rounding.worst, output.rounding.bound);
}

// What explains an error that the dtype alone does not; empty where it does, or nothing does.
Message Explanation(const OutputError& output) {
  if (!IsExact(output) || Size(Judged(output)) <= kRoundings * Epsilon(output.dtype)) return {};
  return "rounding of its inputs and of its sums explains it"_t;
}

NearerVerdict OneSide(const ReplayedCall& call) {
  const OutputError& worst = *Worst(call);
  if (!worst.has_recorded) {
    return {Nearer::kUnknown,
            Message::Joined(
                {"executed here, {} is {}"_t(worst.place, Described(worst)),
                 "the dump has no elements of the recorded result, so nothing is said of it"_t},
                "; ")};
  }
  if (IsExact(worst)) {
    return {Nearer::kTarget,
            Message::Joined({"the recorded result is as exact as {} allows: {} is {}"_t(
                                 worst.dtype, worst.place, Described(worst)),
                             Explanation(worst)},
                            "; ")};
  }
  return {Nearer::kNeither,
          Message::Joined(
              {"the recorded result is far from float64: {} is {}"_t(worst.place, Described(worst)),
               worst.recorded_unlike_again == 0
                   ? "executed here, the call gives the same bits"_t
                   : "executed here, the call does not give this result"_t},
              "; ")};
}

template <typename Visit>
void ForEachNumber(OutputError* o, const Visit& visit) {
  for (ErrorOf* error : {&o->recorded, &o->again})
    visit(&error->max_abs), visit(&error->relative), visit(&error->ulp);
  visit(&o->rounding.error), visit(&o->rounding.bound);
}

}  // namespace

Result<OutputError> MeasureOutput(std::string place, const TensorView* recorded,
                                  const TensorView& again, const TensorView& exact) {
  OutputError output{.place = std::move(place), .count = again.numel()};
  output.dtype = DTypeShortName(again.dtype);
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff here, kernels::ComputeDiff(again, exact));
  output.again = ErrorFrom(here);
  if (recorded == nullptr) return output;
  if (const std::string_view dtype = DTypeShortName(recorded->dtype);
      Epsilon(dtype) >= Epsilon(output.dtype))
    output.dtype = dtype;
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff there, kernels::ComputeDiff(*recorded, exact));
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff both, kernels::ComputeDiff(*recorded, again));
  output.recorded = ErrorFrom(there);
  output.has_recorded = true;
  output.recorded_unlike_again = both.unequal;
  return output;
}

bool IsExact(const OutputError& output) {
  if (HasBound(output)) return output.rounding.kind == accuracy::RoundingVerdict::Kind::kPass;
  return Size(Judged(output)) <= kRoundings * Epsilon(output.dtype);
}

std::string ToLine(const ReplayedCall& call) {
  std::string line = "[";
  const auto text = [&](std::string_view value) {
    if (line.size() > 1) line += ", ";
    AppendJsonString(&line, value);
  };
  text(call.name), text(call.why.Packed()), text(call.note.Packed()), text(call.made ? "made" : "");
  for (const OutputError& output : call.outputs) {
    text(output.place), text(output.dtype), text(output.has_recorded ? "recorded" : "");
    for (const int64_t count :
         {output.count, output.recorded_unlike_again, output.recorded.nonfinite,
          output.again.nonfinite, static_cast<int64_t>(output.rounding.kind), output.rounding.worst,
          output.rounding.beyond})
      text(std::to_string(count));
    text(output.rounding.from);
    OutputError copy = output;
    ForEachNumber(&copy, [&](const double* value) { text(fmt::format("{}", *value)); });
  }
  return line + "]";
}

Result<ReplayedCall> ReplayedCallFromLine(std::string_view line) {
  constexpr std::string_view kWhere = "a worker's answer";
  constexpr size_t kHead = 4, kOutput = 19;
  formats::JsonCursor json(line);
  std::vector<std::string> texts;
  for (json.BeginArray(); json.NextItem();) {
    formats::JsonText read;
    if (!json.String(&read)) break;
    formats::AppendJsonText(&texts.emplace_back(), read);
  }
  if (json.failed()) return json.Error(kWhere);
  if (texts.size() < kHead || (texts.size() - kHead) % kOutput != 0) {
    return InvalidDump(kWhere)
        .Expected("4 texts, and 19 for each output"_t)
        .Found(std::to_string(texts.size()));
  }
  ReplayedCall call{.name = texts[0],
                    .why = Message::Unpacked(texts[1]),
                    .note = Message::Unpacked(texts[2]),
                    .made = !texts[3].empty()};
  for (size_t i = kHead; i < texts.size(); i += kOutput) {
    OutputError& output = call.outputs.emplace_back();
    output.place = texts[i], output.dtype = texts[i + 1];
    output.has_recorded = !texts[i + 2].empty();
    size_t at = i + 3;
    int64_t kind = 0;
    for (int64_t* count :
         {&output.count, &output.recorded_unlike_again, &output.recorded.nonfinite,
          &output.again.nonfinite, &kind, &output.rounding.worst, &output.rounding.beyond})
      *count = std::strtoll(texts[at++].c_str(), nullptr, 10);
    output.rounding.kind = static_cast<accuracy::RoundingVerdict::Kind>(std::clamp<int64_t>(
        kind, 0, static_cast<int64_t>(accuracy::RoundingVerdict::Kind::kError)));
    output.rounding.from = texts[at++];
    ForEachNumber(&output,
                  [&](double* value) { *value = std::strtod(texts[at++].c_str(), nullptr); });
  }
  return call;
}

NearerVerdict WhichIsNearer(const ReplayedCall& target, const ReplayedCall* golden) {
  for (const ReplayedCall* call : {&target, golden}) {
    if (call == nullptr || (call->why.empty() && !call->outputs.empty())) continue;
    return {Nearer::kUnknown,
            call->why.empty() ? "the call has no result that can be compared: it returns none, or "
                                "writes into its arguments"_t
                              : "not executed: {}"_t(call->why)};
  }
  if (golden == nullptr) return OneSide(target);
  const OutputError *t = Worst(target), *g = Worst(*golden);
  // The output that is worst on either side, on both.
  if (Excess(*g) > Excess(*t)) {
    const OutputError* same = At(target, g->place);
    if (same != nullptr) t = same;
  } else {
    const OutputError* same = At(*golden, t->place);
    if (same != nullptr) g = same;
  }
  if (!t->has_recorded || !g->has_recorded) {
    return {Nearer::kUnknown,
            "the {} has no elements of the recorded result: record with task tensor to "
            "see which side is nearer"_t(t->has_recorded ? "golden"_t : "target"_t)};
  }
  const Message numbers =
      "of {} the target is {}, the golden {}"_t(t->place, Described(*t), Described(*g));
  const double a = Size(Judged(*t)), b = Size(Judged(*g));
  if (IsExact(*t) && IsExact(*g)) {
    return {Nearer::kBoth,
            Message::Joined({"both sides are as exact as {} allows: {}"_t(t->dtype, numbers),
                             Explanation(Size(Judged(*t)) < Size(Judged(*g)) ? *g : *t)},
                            "; ")};
  }
  if (a == b || (a < kFactor * b && b < kFactor * a)) {
    return {IsExact(*t) || IsExact(*g) ? Nearer::kBoth : Nearer::kNeither,
            "both sides are equally far from float64: {}"_t(numbers)};
  }
  const bool is_target = a < b;
  const Message side = is_target ? "target"_t : "golden"_t;
  const double small = std::min(a, b), large = std::max(a, b);
  return {is_target ? Nearer::kTarget : Nearer::kGolden,
          small > 0 && std::isfinite(large)
              ? "the {} is {:.3g} times nearer to float64: {}"_t(side, large / small, numbers)
              : "the {} is nearer to float64: {}"_t(side, numbers)};
}

NearerVerdict OfOtherCalls(NearerVerdict verdict) {
  const bool known = verdict.nearer != Nearer::kUnknown;
  return {
      Nearer::kOtherCalls,
      Message::Joined(
          {"the two calls compute different things, so float64 does not tell which one is right"_t,
           known ? std::move(verdict.sentence) : Message()},
          "; ")};
}

}  // namespace msprobe::isolation
