#include "engine/dump/pkl/pkl_elements.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <utility>

#include "engine/base/text.h"
#include "engine/formats/tensors/npy.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::dump {
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
void Append(const T& element, OwnedElements* out) {
  const char* bytes = reinterpret_cast<const char*>(&element);
  out->bytes.insert(out->bytes.end(), bytes, bytes + sizeof(T));
}

}  // namespace

OwnedElements SampleElements(const TensorView& view, int64_t step) {
  OwnedElements out{.dtype = DType::kFloat64, .shape = {0}, .bytes = {}};
  const int64_t n = view.numel();
  int64_t i = 0;
  ForEachElement(view, n, [&](const void* p) {
    const bool at_end = i < kSampleEnd || i >= n - kSampleEnd;
    if (at_end || (i - kSampleEnd) % step == 0) {
      const auto narrow = static_cast<float>(ElementToDouble(view.dtype, p));
      Append<double>(narrow, &out);
      ++out.shape[0];
    }
    ++i;
  });
  return out;
}

TensorView NumpyElements(const TensorView& view, OwnedElements* owned) {
  if (formats::IsNumpyDType(view.dtype)) return view;
  if (view.dtype == DType::kFloat4E2M1X2) {
    TensorView bytes = view;
    bytes.dtype = DType::kUInt8;
    return bytes;
  }
  const bool is_complex = view.dtype == DType::kComplex32;
  OwnedElements out{.dtype = is_complex ? DType::kComplex64 : DType::kFloat32,
                    .shape = {view.dims().begin(), view.dims().end()},
                    .bytes = {}};
  out.bytes.reserve(static_cast<size_t>(view.numel()) * DTypeSize(out.dtype));
  ForEachElement(view, view.numel(), [&](const void* p) {
    if (is_complex) {
      Append(std::complex<float>(ElementToComplex(view.dtype, p)), &out);
    } else {
      Append(static_cast<float>(ElementToDouble(view.dtype, p)), &out);
    }
  });
  *owned = std::move(out);
  return owned->view();
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

}  // namespace msprobe::dump
