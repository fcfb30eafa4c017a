#include "engine/compare/relations/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/kernels/phase.h"

namespace msprobe::compare::relations {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Root(double squares) { return std::sqrt(std::max(squares, 0.0)); }

double Relative(double difference, double size) {
  if (difference == 0) return 0;
  return size > 0 ? difference / size : kInfinity;
}

// Several tensors as one.
struct Together {
  int64_t rows = 0, columns = 0;
  bool one_width = true, one_height = true;
  kernels::Sketch sums;
  std::complex<double> beside;  // wave of the tensors laid side by side
};

Together Join(std::span<const RowSketch> parts) {
  Together all;
  for (const RowSketch& part : parts) {
    all.one_width &= part.columns == parts.front().columns;
    all.one_height &= part.rows == parts.front().rows;
    all.rows += part.rows;
    all.sums.wave += part.sums.wave;
    all.sums.rows += part.sums.rows;
    all.sums.squares += part.sums.squares;
    all.beside += kernels::PhaseOf(kernels::kColumnStep * static_cast<uint64_t>(all.columns)) *
                  part.sums.wave;
    all.columns += part.columns;
  }
  return all;
}

double RowsApart(const kernels::Sketch& a, const kernels::Sketch& b) {
  return std::max(std::abs(a.rows - b.rows), std::abs(Root(a.squares) - Root(b.squares)));
}

}  // namespace

RowSketch SketchOf(const Dump& dump, int32_t index) {
  const Leaf& leaf = dump.leaves[index];
  const std::optional<DType> dtype = leaf.dtype.dtype();
  if (leaf.kind != LeafKind::kTensor || !dtype) return {};
  if (const std::optional<kernels::Sketch> sums = dump.SketchOf(index)) {
    const kernels::SketchShape shape = kernels::SketchShapeOf(*dtype, leaf.shape.extents());
    return {.rows = shape.rows, .columns = shape.columns, .sums = *sums};
  }
  const double x = leaf.max_value;
  if (leaf.shape.elements() != 1 || !leaf.has_stats || leaf.max_value != leaf.min_value ||
      !std::isfinite(x))
    return {};
  return {.rows = 1, .columns = 1, .sums = {.rows = x, .wave = x, .squares = x * x}};
}

Apart DistanceOf(const RowSketch& a, const RowSketch& b, double size) {
  const double rows = RowsApart(a.sums, b.sums);
  return {.in_order = Relative(std::max(rows, std::abs(a.sums.wave - b.sums.wave)), size),
          .rows = Relative(rows, size),
          .proven = true};
}

double DistanceOfRows(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  const Together x = Join(a), y = Join(b);
  if (!x.one_width || !y.one_width || a.front().columns != b.front().columns || x.rows != y.rows)
    return kInfinity;
  return Relative(RowsApart(x.sums, y.sums), size);
}

double DistanceOfSums(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  const Together x = Join(a), y = Join(b);
  if (!x.one_width || !y.one_width || a.front().columns != b.front().columns || !x.one_height ||
      !y.one_height || a.front().rows != b.front().rows)
    return kInfinity;
  const double apart =
      std::max(std::abs(x.sums.rows - y.sums.rows), std::abs(x.sums.wave - y.sums.wave));
  return Relative(apart * std::sqrt(static_cast<double>(b.size())), size);
}

double DistanceSideBySide(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  const Together x = Join(a), y = Join(b);
  if (x.columns != y.columns || !x.one_height || !y.one_height || a.front().rows != b.front().rows)
    return kInfinity;
  return Relative(std::abs(x.beside - y.beside), size);
}

}  // namespace msprobe::compare::relations
