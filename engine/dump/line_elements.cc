#include "engine/dump/line_elements.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/text.h"
#include "engine/tensor/float_formats.h"

namespace msprobe {
namespace {

// The elements in logical order, up to the first `most`.
template <typename Visit>
void ForEachElement(const TensorView& view, int64_t most, Visit&& visit) {
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  if (view.IsContiguous()) {
    const char* at = static_cast<const char*>(view.data);
    for (int64_t i = 0, n = std::min(most, view.numel()); i < n; ++i) visit(at + i * size);
    return;
  }
  const StridedRuns runs = MakeRuns(view);
  int64_t left = most;
  const int64_t needed = runs.run == 0 ? 0 : std::min(runs.count, (most + runs.run - 1) / runs.run);
  runs.ForEach(0, needed, [&](int64_t offset) {
    const char* at = static_cast<const char*>(view.data) + offset * size;
    for (int64_t i = 0; i < runs.run && left > 0; ++i, --left)
      visit(at + i * runs.run_stride * size);
  });
}

template <typename T>
class Appender {
 public:
  explicit Appender(OwnedElements* out) : out_(*out) {}
  void Add(double value) {
    const T element = static_cast<T>(value);
    const char* bytes = reinterpret_cast<const char*>(&element);
    out_.bytes.insert(out_.bytes.end(), bytes, bytes + sizeof(T));
  }

 private:
  OwnedElements& out_;
};

}  // namespace

OwnedElements SampleElements(const TensorView& view, int64_t step) {
  OwnedElements out{.dtype = DType::kFloat64, .shape = {0}, .bytes = {}};
  Appender<double> appender(&out);
  const int64_t n = view.numel();
  int64_t i = 0;
  ForEachElement(view, n, [&](const void* p) {
    const bool at_end = i < kSampleEnd || i >= n - kSampleEnd;
    if (at_end || (i - kSampleEnd) % step == 0) {
      appender.Add(static_cast<float>(ElementToDouble(view.dtype, p)));
      ++out.shape[0];
    }
    ++i;
  });
  return out;
}

OwnedElements FloatElements(const TensorView& view) {
  OwnedElements out{
      .dtype = DType::kFloat32, .shape = {view.dims().begin(), view.dims().end()}, .bytes = {}};
  Appender<float> appender(&out);
  out.bytes.reserve(static_cast<size_t>(view.numel()) * sizeof(float));
  ForEachElement(view, view.numel(),
                 [&](const void* p) { appender.Add(ElementToDouble(view.dtype, p)); });
  return out;
}

OwnedElements StorageElements(const TensorView& view, int64_t* offset) {
  OwnedElements out{.dtype = view.dtype, .shape = {0}, .bytes = {}};
  *offset = 0;
  if (view.numel() == 0) return out;
  const std::vector<int64_t> contiguous = ContiguousStrides(view.dims());
  const int64_t* strides = view.strides == nullptr ? contiguous.data() : view.strides;
  int64_t first = 0, last = 0;
  for (int d = 0; d < view.ndim; ++d) {
    const int64_t reach = (view.shape[d] - 1) * strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  out.shape[0] = last - first + 1;
  out.bytes.resize(static_cast<size_t>(out.shape[0] * size));
  std::memcpy(out.bytes.data(), static_cast<const char*>(view.data) + first * size,
              out.bytes.size());
  *offset = -first;
  return out;
}

void ListElements(const TensorView& view, int64_t most, std::string* list) {
  bool first = true;
  ForEachElement(view, most, [&](const void* p) {
    if (!std::exchange(first, false)) *list += ", ";
    AppendPythonFloat(list, ElementToDouble(view.dtype, p));
  });
}

}  // namespace msprobe
