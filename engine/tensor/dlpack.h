// The parts of the DLPack ABI (version 1.x) that the engine reads, and the conversion of a DLPack
// tensor to a TensorView. The layouts are those of the DLPack specification's dlpack.h and must not
// be changed.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/tensor/tensor_view.h"

namespace msprobe::dlpack {

struct DLDevice {
  int32_t device_type;  // 1 is the CPU
  int32_t device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
inline constexpr int32_t kCpuDevice = 1;

// The table in torch.Tensor.__dlpack_c_exchange_api__, a capsule named "dlpack_exchange_api".
struct ExchangeApi {
  uint32_t major, minor;
  ExchangeApi* previous;
  void* managed_tensor_allocator;
  int (*managed_tensor_from_py_object)(void*, void**);
  int (*managed_tensor_to_py_object)(void*, void**);
  int (*dltensor_from_py_object)(void* py_object,
                                 DLTensor* out);  // borrowed: valid while the object lives
  int (*current_work_stream)(int32_t, int32_t, void**);
};

std::optional<DType> ToDType(DLDataType type);  // nullopt: a type PyTorch does not have
// `tensor` must outlive the view. nullopt when the dtype is unknown. The device is not checked.
std::optional<TensorView> ToView(const DLTensor& tensor);

}  // namespace msprobe::dlpack
