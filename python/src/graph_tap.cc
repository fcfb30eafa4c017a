// msprobe_graph_tap: what a graph that MindSpore has compiled calls after each Cell, as a kernel
// (ops.Custom with func_type="aot"; python/msprobe/mindspore/graph.py). MindSpore finds it by its
// name in the file of the extension, which this process has loaded already.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "capture/collector.h"
#include "capture/recorders/graph_recorder.h"
#include "capture/recorders/graph_taps.h"
#include "engine/tensor/dtype.h"

namespace msprobe::python {
namespace {

using capture::Collector;
using capture::FrameworkTensor;
using capture::GraphTap;
using capture::GraphTaps;

// Holds the GIL on a thread that may not be one of Python.
class TakenGil {
 public:
  TakenGil() = default;
  ~TakenGil() { PyGILState_Release(state_); }
  TakenGil(const TakenGil&) = delete;
  TakenGil& operator=(const TakenGil&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_Ensure();
};

// What goes into a kernel, as MindSpore describes it.
struct KernelArgument {
  void* data;
  int dims;
  const int64_t* shape;
  std::string_view dtype;  // "float32"
};

// The elements are read here, beside other threads of Python; the entry is made with the GIL.
void Tell(const GraphTap& tap, capture::KnownNumbers::Asked asked, const KernelArgument* tensors,
          int count) {
  capture::GraphRecorder::Tensors values;
  for (int i = 0; i < count; ++i) {
    const KernelArgument& from = tensors[i];
    const std::optional<DType> dtype = DTypeFromTorchName(from.dtype);
    if (!dtype || from.dims < 0 || from.dims > capture::HostArray::kMaxDims) return;
    const TensorView view{.data = from.data,
                          .dtype = *dtype,
                          .ndim = from.dims,
                          .shape = from.shape,
                          .strides = nullptr};
    values.emplace_back(view, capture::MeasureWithoutGil(view, asked));
  }
  const TakenGil gil;
  Collector& collector = Collector::Get();
  collector.Guarded([&] {
    if (!tap.parameter.empty()) {
      collector.OnCompiledGradient(tap.cell, tap.parameter, &values.front());
    } else if (tap.backward) {
      collector.graphs().Backward(tap.cell, &values);
    } else {
      collector.graphs().Forward(tap.cell, tap.around, &values);
    }
  });
}

}  // namespace
}  // namespace msprobe::python

// The inputs are the number of the tap, an int64, and the tensors; the output is one int32, by
// which the graph knows that the tap has run. The result is 0: the training goes on whatever
// happens here.
extern "C" __attribute__((visibility("default"))) int msprobe_graph_tap(int count, void** data,
                                                                        int* dims, int64_t** shapes,
                                                                        const char** dtypes,
                                                                        void* /*stream*/,
                                                                        void* /*extra*/) {
  using namespace msprobe::python;
  const int tensors = count - 2;
  if (tensors < 1) return 0;
  *static_cast<int32_t*>(data[count - 1]) = 0;
  const auto asked = GraphTaps::Get().wanted();
  const GraphTap* tap = GraphTaps::Get().Find(*static_cast<const int64_t*>(data[0]));
  if (!asked || tap == nullptr) return 0;
  std::vector<KernelArgument> arguments;
  for (int i = 1; i <= tensors; ++i) arguments.push_back({data[i], dims[i], shapes[i], dtypes[i]});
  Tell(*tap, *asked, arguments.data(), tensors);
  return 0;
}
