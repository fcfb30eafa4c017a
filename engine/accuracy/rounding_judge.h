// Judges a result of a call, element by element, in roundings of its dtype against float64. The
// bound of an element is one rounding and what the roundings of the operation's kernels move it by;
// an execution in float64 whose kernels are off by roundings (rounding_steps.h) shows how far.
//
//   RoundingJudge judge(result, exact, DType::kBFloat16);
//   if (judge.IsBeyond()) {
//     MSPROBE_RETURN_IF_ERROR(judge.AddMoved(moved));    // four or more of them
//     judge.Judge();
//   }
//   judge.verdict().worst;                                  // logical index of an element
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/accuracy/columns.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::accuracy {

// Why a result is beyond its bound. kLostUpcast: the error is another one when the inputs move a
// little, as that of sums or products in too low a precision. kFormula: it stays. kTruncated:
// numbers are cut where they should be rounded.
enum class RoundingCause : uint8_t { kUnknown, kLostUpcast, kFormula, kTruncated };
std::string_view CauseText(RoundingCause cause);  // "lost upcast"; "" for kUnknown

struct RoundingVerdict {
  enum class Kind : uint8_t { kNoBound, kPass, kError };
  Kind kind = Kind::kNoBound;
  // Of the element that is the farthest in bounds; -1: there is none. Units in the last place of
  // the dtype at the exact value; infinite where one side alone is finite.
  int64_t worst = -1;
  double error = 0, bound = 0;
  int64_t beyond = 0;  // elements beyond their bounds
  std::string from;    // what the bound comes from; with kNoBound: why there is none
  RoundingCause cause = RoundingCause::kUnknown;
  std::string no_cause;  // why the cause could not be looked for; "": it was, or was not asked for
};
// "pass", "error", "no bound".
std::string_view KindText(RoundingVerdict::Kind kind);
// The cells of a verdict; `shape`: of the result.
void FillRounding(const RoundingVerdict& verdict, std::span<const int64_t> shape, DetailsRow* row);

class RoundingJudge {
 public:
  // `dtype`: in which the result was computed, if it is coarser than the result's. Tensors of the
  // same number of elements.
  RoundingJudge(const TensorView& result, const TensorView& exact, DType dtype);

  // What the last Judge() found; the constructor calls it: the bound is one rounding then.
  const RoundingVerdict& verdict() const { return verdict_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  bool IsBeyond() const { return verdict_.kind == RoundingVerdict::Kind::kError; }

  // The same result of an execution whose kernels are off by roundings. Errors: kInvalidArgument
  // for another number of elements.
  Status AddMoved(const TensorView& moved);
  void Judge();
  // What is known of the kernels; `once`: one kernel computes the result, and rounds once.
  void SetKernels(std::string_view text, bool once);
  // There is no bound after all.
  void GiveUp(std::string_view why);
  // Looks for the cause: the same result, and float64, of inputs that have moved by 1 to 3 %.
  Status FindCause(const TensorView& result, const TensorView& exact);
  // The cause cannot be looked for.
  void NoCause(std::string_view why);

 private:
  double Bound(size_t i, double unit) const;
  bool IsTruncated() const;
  DType dtype_;
  std::vector<int64_t> shape_;
  RoundingVerdict verdict_;
  std::vector<double> result_, exact_;  // only of what is beyond one rounding
  std::vector<double> squares_;         // of the distances of the moved results, summed
  int moved_ = 0;
  bool once_ = false;
  std::string kernels_;
};

// The results of one call, by their places.
class RoundingJudges {
 public:
  struct Place {
    std::string name;  // "forward.output.0"
    RoundingJudge judge;
  };
  void Clear() { places_.clear(); }
  RoundingJudge* Add(std::string_view place, RoundingJudge judge);
  RoundingJudge* At(std::string_view place);  // null: there is none
  bool IsBeyond() const;                      // one of them
  std::vector<Place>& places() { return places_; }

 private:
  std::vector<Place> places_;
};

}  // namespace msprobe::accuracy
