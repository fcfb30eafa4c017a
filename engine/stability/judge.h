// Whether two results of one operation are consistent.
#pragma once

#include <optional>
#include <string>

#include "engine/base/threads.h"
#include "engine/dump/config/free_benchmark_rules.h"
#include "engine/kernels/ratio.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::stability {

using dump::Perturbation;

struct Verdict {
  bool consistent = true;
  // For the column max_rel: ratio - 1 (beside the CPU, the largest relative error), "nan", "inf" or
  // "symbol_flipping", or "shape" when the shapes differ.
  std::string max_rel;
  double size = 0;  // the same as a number, infinite for a word: to find the worst call
};

struct Question {
  Perturbation perturbation = Perturbation::kNoChange;
  bool gradients = false;
  DType perturbed = DType::kFloat32;  // dtype of the tensor that was changed
  // A limit for the ratio that was found for this API (calibration.h); nullopt: that of the dtype.
  std::optional<double> limit;
};

// Compares the result of the second run with that of the first. Both are read once, and the first
// once more, for the largest magnitude in it. Under no_change, all dtypes but complex ones are
// compared; otherwise float dtypes. An element that is NaN or infinite on one side only is always
// inconsistent.
//
//   const Verdict v = Judge({.perturbation = Perturbation::kAddNoise}, again, first);
//   if (!v.consistent) Report(v.max_rel);
Verdict Judge(const Question& question, const TensorView& again, const TensorView& first,
              ThreadPool* pool = nullptr);

}  // namespace msprobe::stability
