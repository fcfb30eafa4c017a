// A dump file of CANN: the inputs and outputs of one execution of one operator on an Ascend device.
// The file has eight bytes with the length of a header, the header (message DumpData of
// dump_data.proto), and then the elements of inputs, outputs and buffers.
//
//   MSPROBE_ASSIGN_OR_RETURN(AscendDump dump, ReadAscendDump("Conv2D.conv1.3.7.1697617551412398"));
//   for (const AscendTensor& t : dump.tensors)
//     if (t.problem.empty()) Print(ComputeStats(t.elements.view()));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/tensor/ascend_layout.h"

namespace msprobe::formats {

struct AscendTensor {
  bool is_input = false;
  int64_t index = 0;                            // among the inputs, or the outputs
  std::optional<AscendLayout> layout;           // of the elements; nullopt: none of ours
  std::string layout_name;                      // "NC1HWC0", or "format 12"
  std::vector<int64_t> original_shape;          // before the device's layout; empty: not stated
  std::optional<AscendLayout> original_layout;  // of original_shape; inputs do not state it
  uint32_t groups = 1;  // of a grouped convolution: FRACTAL_Z has another order then
  // Why `elements` has no data: "the dtype DT_INT4", "no elements were stored". Empty: it has.
  Message problem;
  TensorFile elements;  // the shape is that of the layout, padding included
};

struct AscendDump {
  std::string version, op_name;
  uint64_t time = 0;                  // microseconds
  std::vector<AscendTensor> tensors;  // inputs, then outputs
};

// Whether the bytes begin as such a file does.
bool LooksLikeAscendDump(std::string_view bytes);

// Errors: kNotFound; kIo; kInvalidDump with file and byte offset.
Result<AscendDump> ReadAscendDump(const std::string& path);
Result<AscendDump> ReadAscendDump(MappedFile file);

}  // namespace msprobe::formats
