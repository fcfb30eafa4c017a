// The files of task grad_probe for one optimizer step: grad_summary_<step>.csv, with a row for each
// parameter, and under levels L1 and L2 grad_directions_<step>.npz, with a bit for each element,
// set where the gradient is positive. The table's name and columns are those of msprobe 1.0 and 8,
// and after them `dtype`, in which the backward pass computed as far as it is known: rounding of
// that dtype is in the gradient, whatever dtype holds it.
//
//   GradientSummary summary(rules, "runs/a/rank0", 7, DType::kBFloat16);  // autocast was on
//   if (summary.Takes(view)) MSPROBE_RETURN_IF_ERROR(summary.Add("fc.weight", view));
//   MSPROBE_RETURN_IF_ERROR(summary.Finish());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/dump/config/gradient_rules.h"
#include "engine/formats/tables/csv.h"
#include "engine/formats/tensors/sign_archive.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::dump {

class GradientSummary {
 public:
  // `rules` must outlive this object. `autocast`: the dtype in which the forward pass of this step
  // ran; nullopt: in that of its tensors.
  GradientSummary(const GradientRules& rules, std::string folder, int64_t step,
                  std::optional<DType> autocast = std::nullopt);

  // False: the level records directions, and complex numbers have none.
  bool Takes(const TensorView& gradient) const;
  Status Add(std::string_view parameter, const TensorView& gradient);
  // Completes the directions, then the table: a step with a table has all its files.
  Status Finish();
  std::string path() const;  // of the table

 private:
  const GradientRules& rules_;
  std::string folder_;
  int64_t step_;
  std::optional<DType> autocast_;
  formats::CsvWriter rows_;
  std::optional<formats::SignWriter> directions_;
};

// The dtype whose numbers nearly all elements of a gradient in float32 are: kBFloat16 or kFloat16
// of a pass that computed in it and widened its results, also where several passes were added;
// nullopt: float32, or too few elements to tell. What was multiplied after the pass, as by
// clipping, has none.
std::optional<DType> NarrowDTypeOf(const TensorView& gradient);

}  // namespace msprobe::dump
