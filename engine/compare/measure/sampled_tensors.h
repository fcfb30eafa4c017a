// Samples of tensors, as ptdbg_ascend 0.1 keeps them. Of a tensor with more than 512 elements it
// keeps the first 256, the last 256, and every dump_step-th of the elements between. Two dumps with
// different dump_step have some elements in common.
//
//   if (HaveCommonElements(target, golden)) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile t, CommonElements(std::move(file), name, 520, 2, 3));
//   }
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/model/table.h"

namespace msprobe::compare {

// Whether the tensor data of the two can be compared element by element.
bool HaveCommonElements(const Dump& target, const Dump& golden);

// The first half of a sentence that says why they cannot be compared.
Message WhatIsSampled(const Dump& target, const Dump& golden);

// `tensor` is a sample with `step` of a tensor with `elements` elements. The result has those of
// its elements that a sample with `other_step` has too, as a vector. A tensor of up to 512 elements
// is kept whole, and is the result. Errors: kInvalidDump when the file `name` has another number of
// elements than such a sample.
Result<formats::TensorFile> CommonElements(formats::TensorFile tensor, std::string_view name,
                                           int64_t elements, int64_t step, int64_t other_step);

}  // namespace msprobe::compare
