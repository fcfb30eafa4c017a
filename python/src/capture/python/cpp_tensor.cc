#include "capture/python/cpp_tensor.h"

#include "capture/python/loaded_library.h"
#include "capture/python/torch_headers.h"

namespace msprobe::capture {

const CppTensor& CppTensor::Get() {
  static const CppTensor instance = [] {
    CppTensor found;
    // Other versions have another layout: there, a Python tensor may borrow its C++ tensor.
    if (!TorchHeaderHas("torch/csrc/autograd/python_variable.h",
                        {"structTHPVariable{PyObject_HEAD//Payloadat::Tensorcdata;"}))
      return found;
    FindLoaded(&found.is_neg_, "libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE");
    FindLoaded(&found.output_number_, "libtorch_cpu.so", "_ZNK2at10TensorBase9output_nrEv");
    if (found.is_neg_ != nullptr && found.output_number_ != nullptr)
      FindLoaded(&found.requires_grad_, "libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv");
    return found;
  }();
  return instance;
}

}  // namespace msprobe::capture
