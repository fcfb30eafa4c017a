#include "engine/compare/explain/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/start_explanation.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::compare {
namespace {

constexpr double kDriftConfidence = 0.4;
constexpr double kNeighbourConfidence = 0.5;  // a call without partner near the first wrong input
constexpr double kContainerConfidence = 0.8;  // a module whose recorded children show nothing

std::string SourceLine(const Comparison& c, int32_t p) {
  const auto line = [&](const Dump& dump, int32_t record) -> std::string {
    if (record < 0) return "";
    const int32_t stack = dump.records[record].stack;
    if (stack < 0 || static_cast<size_t>(stack) >= dump.stacks.size()) return "";
    return dump::UserSourceLine(dump.stacks[stack]);
  };
  std::string text = line(c.target, c.pairs[p].target);
  if (text.empty()) text = line(c.golden, c.pairs[p].golden);
  if (text.empty() && p < static_cast<int32_t>(c.forward_of.size()) && c.forward_of[p] >= 0) {
    text = SourceLine(c, c.forward_of[p]);  // backward records have no stack of their own
  } else if (text.empty() && RecordOf(c, p).direction == Direction::kParameterGrad) {
    const int32_t forward = ModuleCallOf(c, p, Direction::kForward);
    if (forward >= 0) text = SourceLine(c, forward);
  }
  return text;
}

bool IsFloat32(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return r.golden >= 0 && (c.golden.leaves[r.golden].dtype == "torch.float32" ||
                           c.golden.leaves[r.golden].dtype == "Float32");
}

std::string DescribeInputs(const Comparison& c, int32_t p, const CallSummary& call) {
  std::string inputs;
  if (!call.in.any() && !call.arguments.any()) {
    inputs = "its inputs were not recorded";
  } else if (call.in.unknown) {
    inputs = "not all of its inputs could be judged";
  } else if (call.in.noise) {
    inputs = fmt::format("its inputs agree within rounding (worst {} roundings)",
                         ShortNumber(call.in.severity));
  } else {
    inputs = fmt::format("its inputs are {}", EqualWord(c));
  }
  const int32_t argument =
      call.arguments.differs ? call.arguments.worst_row : ArgumentOfOneSide(c, p);
  if (argument >= 0) {
    inputs +=
        fmt::format(", but the call itself was made differently: {}", DescribeRow(c, argument));
  }
  return inputs;
}

std::string Advice(const Comparison& c, int32_t p, const CallSummary& call) {
  const Record& r = RecordOf(c, p);
  const Measure* worst = call.out.worst_row >= 0 ? &c.measures[call.out.worst_row] : nullptr;
  if (call.arguments.differs) return "compare the two call sites and the configuration they read";
  if (DrawsRandomNumbers(r.api)) {
    return "this operation draws random numbers: fix the seed on both sides before "
           "looking further";
  }
  if (worst != nullptr && worst->reason == Reason::kShapeDiffers)
    return "the two runs do not compute on the same shapes";
  if (call.in.noise && AmplifiesRounding(r.api)) {
    return "this kind of operation enlarges the rounding of its inputs: check whether the "
           "difference matters downstream";
  }
  if (worst != nullptr && std::isfinite(worst->severity) && IsContraction(r.api) &&
      worst->severity > 256 && worst->severity < 0x1p15 && IsFloat32(c, call.out.worst_row)) {
    return "an error of this size is what TF32 or a 16-bit accumulation makes of float32: check "
           "the matmul precision setting";
  }
  if (ArgumentOfOneSide(c, p) >= 0)
    return "compare the two call sites: the other side takes the default";
  return "";
}

// Recorded calls directly inside a module call.
int CountChildren(const Comparison& c, int32_t module) {
  const std::string_view name = RecordOf(c, module).name;
  int children = 0;
  for (int32_t q = module - 1; q >= 0 && q > module - 4096; --q)
    children += RecordOf(c, q).parent == name;
  return children;
}

}  // namespace

FirstDivergence StartExplanation(const Comparison& c, int32_t p, int32_t row) {
  FirstDivergence f;
  f.pair = p;
  f.row = row;
  f.call_class = c.classes[p];
  f.source_line = SourceLine(c, p);
  return f;
}

FirstDivergence ExplainIntroduced(const Comparison& c, int32_t p) {
  const CallSummary call = RecordOf(c, p).direction == Direction::kParameterGrad
                               ? SummarizeGradients(c, p)
                               : SummarizeCall(c, p);
  const Before before = WhatCameBefore(c, p);
  FirstDivergence f = StartExplanation(c, p, call.out.worst_row);
  f.confidence = ConfidenceOf(c, p, call, before);
  f.why = fmt::format("{}; {}; {}", DescribeBefore(c, before), DescribeInputs(c, p, call),
                      DescribeRow(c, f.row));
  f.advice = Advice(c, p, call);
  if (!RecordOf(c, p).is_module) return f;
  if (const int children = CountChildren(c, p); children > 0) {
    f.confidence *= kContainerConfidence;
    f.advice = fmt::format(
        "none of the {} recorded calls directly inside this module shows the error: it enters in "
        "an operation that was not recorded, or in its own code",
        children);
  } else if (f.advice.empty() && c.target.level == Level::kL0) {
    f.advice =
        "only modules were recorded; collect this one at level mix to see the operation inside";
  }
  return f;
}

FirstDivergence ExplainUnmatched(const Comparison& c, int32_t u, int32_t p, int32_t row, Tie tie) {
  FirstDivergence f = StartExplanation(c, u, -1);
  const bool inserted = c.pairs[u].target >= 0;
  const Before before = WhatCameBefore(c, u);
  f.call_class = CallClass::kIntroduced;
  f.confidence =
      (tie == Tie::kOutput ? kFlowConfidence : kNeighbourConfidence) * before.JudgedFactor();
  f.why = fmt::format("{}; this call exists only in the {}; ", DescribeBefore(c, before),
                      inserted ? "target" : "golden");
  f.why +=
      tie == Tie::kOutput
          ? fmt::format("its output is what goes into {}, where {}", EntryName(c, p),
                        DescribeRow(c, row))
          : fmt::format("right after it {} is the first call with a wrong number", EntryName(c, p));
  f.advice = inserted ? "the target runs an operation that the golden does not have"
                      : "the target skips an operation that the golden runs";
  return f;
}

FirstDivergence ExplainDrift(const Comparison& c, int32_t q, int32_t p) {
  const CallSummary call = SummarizeCall(c, q), last = SummarizeCall(c, p);
  const Before before = WhatCameBefore(c, q);
  FirstDivergence f = StartExplanation(c, q, call.out.worst_row);
  f.confidence = std::min(kDriftConfidence, std::max(0.1, ConfidenceOf(c, q, call, before)));
  f.why = fmt::format(
      "{}; rounding errors grow from call to call and leave what rounding explains at {} ({} "
      "roundings, from {} in its inputs)",
      DescribeBefore(c, before), EntryName(c, p), ShortNumber(last.out.severity),
      ShortNumber(last.in.severity));
  f.why += q == p ? "; no earlier call makes a larger jump"
                  : fmt::format("; the largest jump is here: from {} to {} roundings",
                                ShortNumber(call.in.severity), ShortNumber(call.out.severity));
  f.advice = "gradual growth has no single cause: compare in tensor mode, or against a float64 run";
  return f;
}

}  // namespace msprobe::compare
