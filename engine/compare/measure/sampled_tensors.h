// Samples of tensors, as ptdbg_ascend 0.1 keeps them: of more than 512 elements the first 256, each
// dump_step-th of those between, and the last 256. Two dumps with other steps have some in common.
//
//   if (HaveCommonElements(target, golden)) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile t, CommonElements(std::move(file), name, 520, 2, 3));
//   }
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "engine/formats/tensor_file.h"
#include "engine/model/table.h"

namespace msprobe::compare {

// Whether the tensor data of the two can be compared element by element.
bool HaveCommonElements(const Dump& target, const Dump& golden);

// Why they cannot, as the beginning of a sentence.
std::string WhatIsSampled(const Dump& target, const Dump& golden);

// Of `tensor`, which holds every `step`-th of `elements` elements, those that a sample with
// `other_step` holds as well, in a row; `tensor` itself up to 512 elements. Errors: kInvalidDump
// about the file `name` when it does not hold as many elements as that.
Result<formats::TensorFile> CommonElements(formats::TensorFile tensor, std::string_view name,
                                           double elements, int64_t step, int64_t other_step);

}  // namespace msprobe::compare
