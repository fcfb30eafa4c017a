// Checks that must hold for every tensor that a reader returns.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/formats/tensors/tensor_file.h"

namespace msprobe {

// Reads every element of a small tensor, so that a sanitizer reports elements outside its memory.
inline void CheckTensor(const formats::TensorFile& tensor) {
  if (tensor.shape.size() != tensor.strides.size()) std::abort();
  const Result<int64_t> size = CheckedByteSize(tensor.dtype, tensor.shape);
  if (!size.ok()) std::abort();
  if (*size > 0 && tensor.data == nullptr) std::abort();
  if (*size > 1 << 16) return;
  std::string bytes(static_cast<size_t>(*size), '\0');
  CopyContiguous(tensor.view(), bytes.data());
}

// An error must name the file and say what is wrong with it.
inline void CheckRefusal(const Status& status, const std::string& path) {
  if (status.code() != ErrorCode::kInvalidDump && status.code() != ErrorCode::kUnsupported)
    std::abort();
  if (status.message().find(path) == std::string::npos) std::abort();
}

}  // namespace msprobe
