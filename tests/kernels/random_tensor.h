// Random tensors of every dtype and layout, and a way to run a test on every SIMD target this CPU
// has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/tensor/float_formats.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

using Random = std::mt19937_64;

inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline int64_t Uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

enum class Values {
  kAnyBits,   // random bits: in float formats many NaN, infinities and denormals
  kOrdinary,  // values around 1, a few zeros
  kPlaced,    // ordinary, with a few NaN, infinities, -0, denormals and huge numbers put somewhere
};

// Encodes a double as an element; formats without an encoder here keep random bits.
inline void EncodeElement(DType dtype, double value, uint8_t* out) {
  const auto put = [&](auto v) { std::memcpy(out, &v, sizeof(v)); };
  switch (dtype) {
    case DType::kFloat64:
      put(value);
      break;
    case DType::kFloat32:
      put(static_cast<float>(value));
      break;
    case DType::kFloat16:
      put(FloatToHalf(static_cast<float>(value)));
      break;
    case DType::kBFloat16:
      put(FloatToBFloat16(static_cast<float>(value)));
      break;
    default:
      break;
  }
}

struct RandomTensor {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> shape, strides;
  DType dtype;
  int64_t base = 0;  // elements before element (0, ..., 0)

  TensorView view() const {
    return {.data = bytes.data() + base * static_cast<int64_t>(DTypeSize(dtype)),
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data(),
            .strides = strides.data()};
  }
  std::string Text() const {
    return std::string(DTypeTorchName(dtype)) + " " + ShapeText(shape) + " strides " +
           ShapeText(strides);
  }
};

inline void Fill(Random& random, DType dtype, Values values, uint8_t* bytes, int64_t elements) {
  const size_t size = DTypeSize(dtype);
  for (size_t i = 0; i < static_cast<size_t>(elements) * size; ++i)
    bytes[i] = static_cast<uint8_t>(random());
  if (dtype == DType::kBool) {
    for (int64_t i = 0; i < elements; ++i) bytes[i] &= 1;
  }
  if (values == Values::kAnyBits) return;
  const bool complex = DTypeKindOf(dtype) == DTypeKind::kComplex;
  const DType part = dtype == DType::kComplex32    ? DType::kFloat16
                     : dtype == DType::kComplex64  ? DType::kFloat32
                     : dtype == DType::kComplex128 ? DType::kFloat64
                                                   : dtype;
  const size_t part_size = complex ? size / 2 : size;
  const int64_t parts = complex ? elements * 2 : elements;
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < parts; ++i) {
    const double v = random() % 16 == 0 ? 0.0 : normal(random);
    EncodeElement(part, v, bytes + static_cast<size_t>(i) * part_size);
  }
  if (values == Values::kOrdinary || parts == 0) return;
  const double special[] = {std::numeric_limits<double>::quiet_NaN(),
                            kInf,
                            -kInf,
                            -0.0,
                            0.0,
                            1e-310,
                            -1e-40,
                            6e-8,
                            1e-30,
                            60000.0,
                            -3e38,
                            1e200,
                            -1e308};
  for (int k = 0; k < 4; ++k) {
    EncodeElement(part, special[random() % std::size(special)],
                  bytes + static_cast<size_t>(Uniform(random, 0, parts - 1)) * part_size);
  }
}

// A layout: contiguous, permuted, sliced with steps, reversed, expanded or overlapping; 0-d and
// empty too.
inline RandomTensor MakeRandomTensor(Random& random, DType dtype, Values values,
                                     int64_t max_elements = 40000) {
  RandomTensor t;
  t.dtype = dtype;
  const int ndim = static_cast<int>(Uniform(random, 0, 5));
  int64_t numel = 1;
  for (int d = 0; d < ndim; ++d) {
    const int64_t pick = Uniform(random, 0, 19);
    int64_t extent = pick == 0   ? Uniform(random, 0, 1)
                     : pick < 15 ? Uniform(random, 1, 12)
                                 : Uniform(random, 1, 9000);
    if (numel * extent > max_elements) extent = std::max<int64_t>(1, max_elements / numel);
    numel *= std::max<int64_t>(1, extent);
    t.shape.push_back(extent);
  }
  t.strides.assign(t.shape.size(), 0);
  std::vector<int> order(t.shape.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int>(order.size() - 1 - d);
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  int64_t next = 1;
  for (const int d : order) {
    const int64_t step = random() % 4 == 0 && next < 4 * max_elements ? Uniform(random, 1, 3) : 1;
    t.strides[d] = next * step;
    next *= step * std::max<int64_t>(1, t.shape[d]);
  }
  for (size_t d = 0; d < t.strides.size(); ++d) {
    switch (random() % 10) {
      case 0:
        t.strides[d] = 0;
        break;
      case 1:
        t.strides[d] = -t.strides[d];
        break;
      case 2:
        t.strides[d] = Uniform(random, 0, 3);
        break;  // overlapping
      default:
        break;
    }
  }
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < t.strides.size(); ++d) {
    const int64_t reach = t.strides[d] * std::max<int64_t>(0, t.shape[d] - 1);
    (reach < 0 ? low : high) += reach;
  }
  t.base = -low;
  // Only the memory that elements use, so that a sanitizer reports reads beyond it.
  t.bytes.resize(static_cast<size_t>(high - low + 1) * DTypeSize(dtype));
  Fill(random, dtype, values, t.bytes.data(), high - low + 1);
  return t;
}

// `n` contiguous elements; `n` must outlive the view.
inline TensorView Flat(const void* data, DType dtype, const int64_t& n) {
  return {.data = data, .dtype = dtype, .ndim = 1, .shape = &n};
}

// Names the instances of a test whose parameter is the dtype.
inline std::string DTypeOfInstance(const testing::TestParamInfo<int>& info) {
  return std::string(DTypeShortName(static_cast<DType>(info.param)));
}

// Calls `body` once for each SIMD target that this CPU has and the engine was compiled for.
template <typename Body>
void ForEachTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline uint64_t Bits(double v) { return std::bit_cast<uint64_t>(v); }

}  // namespace msprobe::kernels
