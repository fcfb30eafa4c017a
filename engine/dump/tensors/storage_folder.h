// Folders that wrap_async_datadump_hook of torch_npu.hooks wrote: one .npy file for each tensor,
// with the tensor's whole storage. The file name tells the call, and where the tensor lies in the
// storage.
//
//   16_Functional_relu_backward_input0_shape[2,1]_stride[1,1]_offset[0]_format[2].npy
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/model/table.h"

namespace msprobe::dump {

struct StorageName {
  int64_t index = -1;     // number of the group; a group is the inputs, or the outputs, of a call
  std::string_view side;  // "Functional_relu_backward_input"
  int64_t place = 0;      // among the tensors of that side
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;  // elements
  int64_t format = 2;  // of the device; 2: none
};
// nullopt: the name has another form, or a negative dimension.
std::optional<StorageName> ParseStorageName(std::string_view file_name);

// Whether there is at least one file, and all of them have such names.
bool AreStorages(const std::vector<std::string>& files);

// Fills `dump`, of which path and folders are set, as if torch_npu.hooks had written lines. A file
// that cannot be read costs only its own value. Errors: those of ReadPklLines.
Status ReadStorageFolder(const std::vector<std::string>& files, Dump* dump);

// The tensor in its storage. Errors: kInvalidDump when the tensor does not lie within the storage.
Status ViewStorage(const StorageName& name, std::string_view path, formats::TensorFile* tensor);

}  // namespace msprobe::dump
