#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/start_explanation.h"
#include "engine/compare/explain/suspects.h"

namespace msprobe::compare {
namespace {

constexpr double kBeforeTheRunConfidence = 0.95;  // the error was there before the first call
constexpr double kUnrecordedConfidence = 0.7;  // the place is sure, the operation was not recorded

// The value that is wrong where it goes into a call, and the same in the golden.
struct WrongInput {
  int32_t pair, row;
  const Leaf &target, &golden;
};

// Where a wrong input came from.
struct Origin {
  double confidence;
  std::string why, advice;
};

// The first row that differs: the tensor to follow back. -1: none does.
int32_t FirstWrongInput(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& r = c.rows[i];
    if (r.target < 0 || r.golden < 0) continue;
    const Leaf& leaf = c.target.leaves[r.target];
    const bool goes_in =
        leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
    if (goes_in && leaf.kind != LeafKind::kScalar &&
        c.measures[i].verdict == RowVerdict::kDiffers) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

// "parameters.weight of Module.fc.Linear.forward.0" when the module around `p` recorded `value`
// as its parameter; else "".
std::string ParameterName(const Comparison& c, int32_t p, const Leaf& value) {
  const std::string_view parent = RecordOf(c, p).parent;
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  for (int32_t q = p + 1; q < size && !parent.empty(); ++q) {
    if (RecordOf(c, q).name != parent || c.pairs[q].target < 0) continue;
    const RecordPair& pair = c.pairs[q];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = c.rows[i].target;
      if (leaf >= 0 && c.target.leaves[leaf].slot == Slot::kParameter &&
          SameNumbers(c.target.leaves[leaf], value)) {
        return fmt::format("{} of {}", LeafLabel(c, static_cast<int32_t>(i)), parent);
      }
    }
    return "";
  }
  return "";
}

bool ArePartners(const Comparison& c, int32_t target, int32_t golden) {
  return std::any_of(c.pairs.begin(), c.pairs.end(),
                     [&](const RecordPair& p) { return p.target == target && p.golden == golden; });
}

// The number of the step, from ".../step3/rank0/dump.json"; 0 where the path does not tell.
int StepOf(std::string_view path) {
  const size_t at = path.rfind("/step");
  if (at == path.npos) return 0;
  const std::string_view digits = path.substr(at + 5, path.find('/', at + 5) - at - 5);
  int step = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return end.ec == std::errc() && end.ptr == digits.data() + digits.size() ? step : 0;
}

std::optional<Origin> AParameter(const Comparison& c, const WrongInput& in) {
  const bool recorded_as_one = in.target.slot == Slot::kParameter;
  const std::string name = recorded_as_one ? "" : ParameterName(c, in.pair, in.target);
  if (!recorded_as_one && name.empty()) return std::nullopt;
  const int step = StepOf(c.target.path);
  return Origin{
      kBeforeTheRunConfidence,
      fmt::format("{} differs before its first use, so the error begins before the first recorded "
                  "operation{}",
                  recorded_as_one ? "a parameter" : fmt::format("it is {}, which", name),
                  step > 0 ? fmt::format(" of step {}", step) : ""),
      step > 0 ? "compare the steps before, what their optimizer was given and made; then the "
                 "checkpoints"
               : "compare the checkpoints, the initialisation and its seed"};
}

// The records that made the value on each side; -1: none recorded.
struct Makers {
  int32_t target, golden;
};

std::optional<Origin> AnotherCallsOutput(const Comparison& c, const Makers& made) {
  if (made.target < 0 || made.golden < 0 || ArePartners(c, made.target, made.golden))
    return std::nullopt;
  return Origin{kFlowConfidence,
                fmt::format("the target passes the output of {}, the golden that of {}",
                            c.target.records[made.target].name, c.golden.records[made.golden].name),
                "the two programs are wired differently here: compare the source lines"};
}

std::optional<Origin> InsideAModule(const Comparison& c, int32_t p) {
  const int32_t module = EnclosingIntroducer(c, p);
  if (module < 0) return std::nullopt;
  return Origin{kUnrecordedConfidence,
                fmt::format("it was still right when {} began, so the error enters inside it "
                            "before this call, in an operation that was not recorded",
                            RecordOf(c, module).name),
                "look at the code between this call and the one before it"};
}

Origin OutsideTheRecording(const WrongInput& in, const Makers& made, const Before& before) {
  if (before.total() == 0) {
    return {kBeforeTheRunConfidence, "the error begins before the first recorded operation",
            "compare the input data and their order, the seed, and the weights"};
  }
  const bool weight = in.target.requires_grad == "True" && in.golden.requires_grad == "True" &&
                      made.target < 0 && made.golden < 0;
  return {weight ? 0.85 : kUnrecordedConfidence,
          "no recorded operation made it, so it comes from outside what was recorded",
          weight ? "it requires a gradient and nothing recorded made it: probably a weight; "
                   "compare the checkpoints"
                 : "compare the data that enter here, or record more: an operation that was "
                   "not recorded may have made it"};
}

}  // namespace

FirstDivergence ExplainInherited(const Comparison& c, int32_t p) {
  const int32_t row = FirstWrongInput(c, p);
  // A backward call of a diverged forward one, and nothing before it: cannot be the first.
  if (row < 0) return ExplainIntroduced(c, p);
  const WrongInput in{p, row, c.target.leaves[c.rows[row].target],
                      c.golden.leaves[c.rows[row].golden]};
  if (const int32_t u = UnmatchedMakerOf(c, p, in.target, in.golden); u >= 0)
    return ExplainUnmatched(c, u, p, row, Tie::kOutput);

  const Before before = WhatCameBefore(c, p);
  const RecordPair& pair = c.pairs[p];
  const Makers made{FindProducer(c.target, in.target, pair.target),
                    FindProducer(c.golden, in.golden, pair.golden)};
  std::optional<Origin> origin = AParameter(c, in);
  if (!origin) origin = AnotherCallsOutput(c, made);
  if (!origin) origin = InsideAModule(c, p);
  if (!origin) {
    if (const int32_t u = UnmatchedNear(c, p); u >= 0)
      return ExplainUnmatched(c, u, p, row, Tie::kPlace);
    origin = OutsideTheRecording(in, made, before);
  }
  FirstDivergence f = StartExplanation(c, p, row);
  f.confidence = origin->confidence * before.JudgedFactor() * pair.confidence;
  f.why = fmt::format("{}; {}: {}", DescribeBefore(c, before), DescribeRow(c, row), origin->why);
  f.advice = std::move(origin->advice);
  return f;
}

}  // namespace msprobe::compare
