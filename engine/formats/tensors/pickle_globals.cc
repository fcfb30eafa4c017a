#include "engine/formats/tensors/pickle_globals.h"

#include <algorithm>
#include <array>

#include "engine/tensor/dtype.h"

namespace msprobe::formats {
namespace {

struct Global {
  std::string_view module, name;
};

constexpr Global kAllowed[] = {
    // Tensors.
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_parameter_with_state"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch._tensor", "_rebuild_from_type"},
    {"torch", "Tensor"},
    {"torch.nn.parameter", "Parameter"},
    {"torch.nn.parameter", "Buffer"},
    // Values that go with them.
    {"torch", "Size"},
    {"torch", "device"},
    {"collections", "OrderedDict"},
    {"__builtin__", "set"},
    {"__builtin__", "frozenset"},
    {"__builtin__", "complex"},
    {"__builtin__", "bytearray"},
    {"__builtin__", "slice"},
    {"builtins", "set"},
    {"builtins", "frozenset"},
    {"builtins", "complex"},
    {"builtins", "bytearray"},
    {"builtins", "slice"},
    {"_codecs", "encode"},  // bytes in protocol 2
};

constexpr std::string_view kStorageModules[] = {"torch", "torch.cuda", "torch.storage", "torch.npu",
                                                "torch_npu.npu"};
constexpr std::string_view kStorages[] = {
    "DoubleStorage",  "FloatStorage", "HalfStorage",          "BFloat16Storage",
    "LongStorage",    "IntStorage",   "ShortStorage",         "CharStorage",
    "ByteStorage",    "BoolStorage",  "ComplexDoubleStorage", "ComplexFloatStorage",
    "UntypedStorage",
};

}  // namespace

bool IsAllowedGlobal(std::string_view module, std::string_view name) {
  for (const Global& global : kAllowed) {
    if (global.module == module && global.name == name) return true;
  }
  if (module == "torch" && DTypeFromTorchName(name) && name.substr(0, 6) != "torch.") return true;
  return std::find(std::begin(kStorageModules), std::end(kStorageModules), module) !=
             std::end(kStorageModules) &&
         std::find(std::begin(kStorages), std::end(kStorages), name) != std::end(kStorages);
}

Message RefusedGlobalHint(std::string_view module, std::string_view name) {
  struct Hint {
    std::string_view part;  // of "module.name"
    Message hint;
  };
  static const Hint kHints[] = {
      {"DTensor", "a distributed tensor: save tensor.to_local() or tensor.full_tensor()"_t},
      {"ShardedTensor", "a sharded tensor: save each rank's local tensor"_t},
      {"_rebuild_sparse", "a sparse tensor: save tensor.to_dense()"_t},
      {"_rebuild_qtensor", "a quantized tensor: save tensor.dequantize() or tensor.int_repr()"_t},
      {"_rebuild_nested", "a nested tensor: save its parts, tensor.unbind()"_t},
      {"_rebuild_meta", "a meta tensor has no data"_t},
      {"_rebuild_wrapper_subclass", "a tensor subclass: save the plain tensor it wraps"_t},
      {"numpy", "a NumPy object: save torch.from_numpy(array), or the array with numpy.save"_t},
      {"__torch__", "a TorchScript archive: save the tensors with torch.save"_t},
      {"torch.nn.modules", "a whole module: save module.state_dict()"_t},
      {"TypedStorage", "a bare storage: save the tensor"_t},
      {"Storage", "a storage that has no plain dtype: save the tensor as another dtype"_t},
  };
  for (const Hint& hint : kHints) {
    if (module.find(hint.part) != std::string_view::npos ||
        name.find(hint.part) != std::string_view::npos) {
      return hint.hint;
    }
  }
  return {};
}

}  // namespace msprobe::formats
