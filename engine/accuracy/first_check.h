// The first verdict on an output of a call: the device's result against the golden one, which has
// higher precision, and the row of metrics that the comparison with a reference device reads later.
//
//   const FirstCheck check({.rules = Rules::kOurs});
//   MSPROBE_ASSIGN_OR_RETURN(CheckedOutput out, check.CompareTensors("add", device, golden,
//       &pool));
//   const Verdict forward = check.Combine({{out.verdict}});   // of all outputs of the call
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/accuracy/columns.h"
#include "engine/accuracy/standards.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::accuracy {

struct FirstCheckOptions {
  Rules rules = Rules::kOurs;
  int decimals = 14;                     // of numbers in the files: key `precision`, 0 to 20
  const Standards* standards = nullptr;  // null: those of the program
  // APIs whose integers may differ by one, in addition to those of the standards.
  std::set<std::string, std::less<>> within_one = {};
};

// `row` has everything but the name of the output.
struct CheckedOutput {
  Verdict verdict = Verdict::kSkip;
  DetailsRow row;
};

// Of the inputs of a call.
struct InputSizes {
  double largest = 0;        // |element|
  int64_t elements = 0;      // of the longest input
  bool of_gradient = false;  // the result is a gradient: float16 and bfloat16 are summed as such
};

class FirstCheck {
 public:
  explicit FirstCheck(const FirstCheckOptions& options);

  // Two tensors of any dtypes and shapes: a difference of these is a verdict, not an error. `api`:
  // "add", "fft.rfft". `fp8_input`: an input of the call was fp8. Complex numbers are judged by
  // their real and imaginary parts. Errors: kUnsupported for dtypes whose elements cannot be
  // compared.
  Result<CheckedOutput> CompareTensors(std::string_view api, const TensorView& device,
                                       const TensorView& golden, ThreadPool* pool = nullptr,
                                       bool fp8_input = false) const;
  // Outputs of dropout, whose elements are random: their shares of zeros.
  Result<CheckedOutput> CompareDropout(const TensorView& device, const TensorView& golden) const;
  // Two Python values that are no tensors. `type`: "<class 'int'>"; `equal`: as Python says.
  CheckedOutput CompareValues(std::string_view type, bool equal) const;
  // An output that is not judged, or that is an error without a comparison ("a golden output has no
  // device output").
  CheckedOutput WithoutComparing(Verdict verdict, std::string_view message) const;
  // An output that the golden result does not have; on_device: but the device's has. SKIP.
  CheckedOutput WithoutGolden(bool on_device) const;

  // Whether a result that does not pass is as exact as its inputs are: `changed` is the golden of
  // inputs that were changed in their last place. A sum of large terms that cancel has such
  // results. False where a result is not finite, and for the older tools.
  bool ExplainedByInputs(const TensorView& device, const TensorView& golden,
                         const TensorView& changed, const InputSizes& inputs) const;

  // Of the outputs of one direction of a call. Ours: the worst one, SKIP only where all are SKIP.
  // The older tools: the last one that is not pass.
  Verdict Combine(std::span<const Verdict> outputs) const;

 private:
  void FillMetrics(const kernels::Accuracy& a, Standard standard, std::string_view api, bool single,
                   CheckedOutput* out) const;
  void JudgeOld(const kernels::Accuracy& a, std::string_view dtype, bool single,
                CheckedOutput* out) const;
  void JudgeOurs(const kernels::Accuracy& a, std::string_view dtype, CheckedOutput* out) const;
  Result<CheckedOutput> CompareExactly(std::string_view api, const TensorView& device,
                                       const TensorView& golden, CheckedOutput out,
                                       ThreadPool* pool) const;
  std::string Spell(double value, bool single = false) const;
  bool old() const { return options_.rules != Rules::kOurs; }

  FirstCheckOptions options_;
  const Standards& standards_;
};

}  // namespace msprobe::accuracy
