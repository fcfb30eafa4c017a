// A recorded call, executed again: how far the recorded result and the new one are from float64,
// and which of two runs is nearer to it. A worker executes the call and tells what it found in one
// line.
//
//   ReplayedCall call{.name = "Functional.linear.0"};
//   MSPROBE_ASSIGN_OR_RETURN(OutputError out, MeasureOutput("forward.output.0", &recorded, again,
//       exact));
//   out.rounding = accuracy::RoundingJudge(recorded, exact, DType::kFloat32).verdict();
//   call.outputs.push_back(out);
//   MSPROBE_ASSIGN_OR_RETURN(ReplayedCall same, ReplayedCallFromLine(ToLine(call)));
//   Print("{}", WhichIsNearer(same, &golden_call).sentence.Shown());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/accuracy/rounding_judge.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::isolation {

// One result against the same in float64.
struct ErrorOf {
  double max_abs = 0;   // the largest difference of an element
  double relative = 0;  // |result - exact| / |exact|, of the whole tensor (L2)
  double ulp = 0;  // the largest difference, in representable numbers of the result's dtype; -1:
                   // not defined
  int64_t nonfinite = 0;  // elements that are NaN or infinite where float64 is not, and the reverse
};

struct OutputError {
  std::string place;                   // "forward.output.0", "backward.output.1"
  std::string dtype;                   // in which it was computed: "float32"
  int64_t count = 0;                   // elements
  bool has_recorded = false;           // the dump has the elements of the result
  ErrorOf recorded, again;             // of the recorded result; of the one that was computed here
  int64_t recorded_unlike_again = 0;   // elements that differ between these two
  accuracy::RoundingVerdict rounding;  // of the recorded result, else of the one made here
};

struct ReplayedCall {
  std::string name;   // "Functional.linear.0"
  Message why;        // why it was not executed; empty
  Message note;       // what else there is to say
  bool made = false;  // elements of an input were made from statistics
  std::vector<OutputError> outputs;
};

// `recorded`: null where the dump has no elements. Under autocast a gradient is computed in a
// coarser dtype than it has: `again` comes in that dtype. Errors: kInvalidArgument for tensors of
// different sizes.
Result<OutputError> MeasureOutput(std::string place, const TensorView* recorded,
                                  const TensorView& again, const TensorView& exact);

// Whether no element of the result is beyond its bound; without a bound: whether the result as a
// whole is off by no more than a few roundings of its dtype.
bool IsExact(const OutputError& output);

std::string ToLine(const ReplayedCall& call);  // without an end of line
// Errors: kInvalidDump.
Result<ReplayedCall> ReplayedCallFromLine(std::string_view line);

// Of the two sides, or of the one that there is.
enum class Nearer : uint8_t { kTarget, kGolden, kBoth, kNeither, kUnknown, kOtherCalls };
struct NearerVerdict {
  Nearer nearer = Nearer::kUnknown;
  Message sentence;  // without a full stop
};
// kBoth: both are as exact as the dtype allows, or equally far within a factor of two; kNeither:
// both are far. With one side: kTarget where it is as exact as the dtype allows, else kNeither.
// Errors are compared at the output that is worst on either side, measured by what its dtype
// explains.
NearerVerdict WhichIsNearer(const ReplayedCall& target, const ReplayedCall* golden);
// The same of two calls that compute different things (other_call.h): kOtherCalls, since float64 of
// two computations does not tell which of them is meant, whatever was recorded of them.
NearerVerdict OfOtherCalls(NearerVerdict verdict);

}  // namespace msprobe::isolation
