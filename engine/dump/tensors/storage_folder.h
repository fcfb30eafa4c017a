// What wrap_async_datadump_hook of torch_npu.hooks wrote: a .npy file a tensor with its storage,
// named by where it was met and how the tensor lies in it.
//
//   16_Functional_relu_backward_input0_shape[2,1]_stride[1,1]_offset[0]_format[2].npy
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/formats/tensor_file.h"
#include "engine/model/table.h"

namespace msprobe::dump {

struct StorageName {
  int64_t index = -1;     // of the message: the inputs, or the outputs, of a call
  std::string_view side;  // "Functional_relu_backward_input"
  int64_t place = 0;      // among the tensors of that side
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;  // elements
  int64_t format = 2;  // of the device; 2: none
};
// nullopt: another name, or a dimension below zero.
std::optional<StorageName> ParseStorageName(std::string_view file_name);

// Whether all of these files, at least one, have such names.
bool AreStorages(const std::vector<std::string>& files);

// Fills `dump`, of which path and folders are set, as from the lines of torch_npu.hooks. Files that
// cannot be read cost their value. Errors: those of ReadPklLines.
Status ReadStorageFolder(const std::vector<std::string>& files, Dump* dump);

// The tensor in its storage. Errors: kInvalidDump when it does not lie within.
Status ViewStorage(const StorageName& name, std::string_view path, formats::TensorFile* tensor);

}  // namespace msprobe::dump
