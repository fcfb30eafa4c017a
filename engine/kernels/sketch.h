// A sketch: five to seven numbers of a tensor that show whether two tensors have the same elements
// in the same order, the same rows in another order, or parts that together are the other one.
//
//   const std::optional<Sketch> s = ComputeSketch(view);
//   if (s) Print(s->rows, s->squares, s->wave);
//
// The tensor is x[i, j]: j counts the columns, which are the last dimension, and i the rows, which
// are all other dimensions together, in logical order. Of a tensor of one dimension each element is
// a row of its own. A complex number is two columns, its real and its imaginary part; so are the
// halves of a byte of float4_e2m1fn_x2. With T, S = kColumnStep, kRowStep (phase.h), in turns
// 0.618... and 0.414...:
//
//   r_i     = sum_j x[i, j] e^(i T j)          of one row
//   rows    = sum_i r_i                        R
//   squares = sum_i |r_i|^2                    q
//   wave    = sum_i r_i e^(i S i)              W
//   grid    = sum of x e^(i sum_d t_d k_d)     V, over all elements; k_d: the index in dimension d
//
// t_d = kPhaseSteps counted from the last dimension: T, S, ... `grid` is there from three
// dimensions on (to eight); of fewer dimensions it would be `wave`.
//
// - R, W, V are linear: the sketch of a sum is the sum of the sketches.
// - R and q do not depend on the order of the rows, nor on rows of zeros. They add up over parts
// that hold whole rows, and do not change when a tensor gets another shape with the same last
// dimension.
// - Parts that hold the rows from `o` on: W = sum of PhaseOf(kRowStep * o) W_part.
// - Parts that hold the columns from `o` on: R = sum of PhaseOf(kColumnStep * o) R_part; W alike.
// - A part that begins at index o of dimension d: V = sum of PhaseOf(t_d * o) V_part.
// - The last three hold up to 2^-28 of the norm, because phases are rounded (phase.h); the others
// up to the rounding of double additions.
// - Rows of several columns of float32, float16 and bfloat16 are summed in float: r_i is rounded by
// up to 2^-21 of the row's norm, as elements of float32 are by 2^-24 each. What joins columns, or
// adds sketches up, holds so far; the others hold as above, since equal rows have equal r_i.
//
// An error e = |x - y| / |y| shows as at most sqrt(columns) e |y| in sqrt(q), and sqrt(elements) e
// |y| in R, W and V. Of roundings that are not aligned with the phases, sqrt(q) shows about e |y|.
//
// NaN and infinities count as 0. An integer counts as the double next to it, a bool as 0 or 1.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/tensor/dtype.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

struct Sketch {
  std::complex<double> rows, wave;
  double squares = 0;
  std::optional<std::complex<double>> grid;
  bool operator==(const Sketch&) const = default;
};

// How a sketch divides a tensor of these extents into rows and columns.
struct SketchShape {
  int64_t rows = 1, columns = 1;
  bool has_grid = false;
  bool operator==(const SketchShape&) const = default;
};
SketchShape SketchShapeOf(DType dtype, std::span<const int64_t> extents);

// Which elements count.
enum class SketchOf : uint8_t {
  kFinite,
  kRest,  // those that ComputeRestStats (rest_stats.h) counts: of a magnitude below 8192
};

// nullopt: the tensor has no elements, or a sum is too large for a double. The result is the same
// bits on every SIMD target, for any number of threads and for any strides.
std::optional<Sketch> ComputeSketch(const TensorView& view, ThreadPool* pool = nullptr,
                                    SketchOf of = SketchOf::kFinite);

}  // namespace msprobe::kernels
