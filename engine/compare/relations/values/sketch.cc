#include "engine/compare/relations/values/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/compare/relations/values/moments.h"
#include "engine/kernels/phase.h"

namespace msprobe::compare::relations {
namespace {

double Root(double squares) { return std::sqrt(std::max(squares, 0.0)); }

// Sums of a damaged file may overflow: what is no number is far apart.
double Relative(double difference, double size) {
  if (difference == 0) return 0;
  const double by = size > 0 ? difference / size : kInfinity;
  return std::isnan(by) ? kInfinity : by;
}

// Several tensors as one.
struct SummedRows {
  int64_t rows = 0, columns = 0;
  bool one_width = true, one_height = true;
  kernels::Sketch sums;
  std::complex<double> beside;  // wave of the tensors laid side by side
};

SummedRows JoinRows(std::span<const RowSketch> parts) {
  SummedRows all;
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

double RowsApart(const kernels::Sketch& a, const kernels::Sketch& b, double size) {
  return std::max(Relative(std::abs(a.rows - b.rows), size),
                  Relative(std::abs(Root(a.squares) - Root(b.squares)), size));
}

bool AllKnown(const RowSketch& sketch) {
  return sketch.has_rows && sketch.has_squares && sketch.has_wave;
}
bool AllKnown(std::span<const RowSketch> sketches) {
  return std::all_of(sketches.begin(), sketches.end(),
                     [](const RowSketch& sketch) { return AllKnown(sketch); });
}

// Joined sketches are turned by phases, which are rounded, and rows of several columns were summed
// in float (kernels/sketch.h).
constexpr double kTurned = 0x1p-22;

// By the numbers that both have, where one was joined and has not all.
Apart DistanceOfJoined(const RowSketch& a, const RowSketch& b, double size) {
  Apart apart{.joined = true};
  const auto add = [&](bool both, double difference) {
    if (!both) return;
    apart.proven = true;
    apart.in_order =
        std::max(apart.in_order, Relative(std::max(0.0, difference - kTurned * size), size));
  };
  add(a.has_rows && b.has_rows, std::abs(a.sums.rows - b.sums.rows));
  const bool squares = a.has_squares && b.has_squares;
  add(squares, std::abs(Root(a.sums.squares) - Root(b.sums.squares)));
  // Rows alone do not tell another order.
  apart.rows = apart.in_order;
  apart.one_row = !squares || !a.has_rows || !b.has_rows || (a.rows == 1 && a.columns > 1);
  if (apart.one_row) apart.rows = 0;
  const bool waves = a.has_wave && b.has_wave, grids = a.sums.grid && b.sums.grid;
  add(waves, std::abs(a.sums.wave - b.sums.wave));
  if (grids) add(true, std::abs(*a.sums.grid - *b.sums.grid));
  apart.joined_in_order = (waves || grids) && apart.in_order == 0;
  return apart;
}

}  // namespace

RowSketch SketchOf(const Dump& dump, int32_t index) {
  const Leaf& leaf = dump.leaves[index];
  const std::optional<DType> dtype = leaf.dtype.dtype();
  // The shape of a damaged file may have more elements than can be counted.
  constexpr int64_t kMost = int64_t{1} << 60;
  const int64_t elements = leaf.shape.elements();
  if (leaf.kind != LeafKind::kTensor || !dtype || elements <= 0 || elements > kMost) return {};
  const kernels::SketchShape shape = kernels::SketchShapeOf(*dtype, leaf.shape.extents());
  if (const JoinedLeaf* joined = dump.JoinedOf(index)) {
    if (!joined->rows && !joined->squares && !joined->wave && !joined->sketch.grid) return {};
    return {.rows = shape.rows,
            .columns = shape.columns,
            .sums = joined->sketch,
            .has_rows = joined->rows,
            .has_squares = joined->squares,
            .has_wave = joined->wave,
            .joined = true};
  }
  if (const std::optional<kernels::Sketch> sums = dump.SketchOf(index))
    return {.rows = shape.rows, .columns = shape.columns, .sums = *sums};
  const double x = leaf.max_value;
  if (elements != 1 || !leaf.has_stats || leaf.max_value != leaf.min_value || !std::isfinite(x))
    return {};
  return {.rows = 1, .columns = 1, .sums = {.rows = x, .wave = x, .squares = x * x}};
}

RowSketch Times(double factor, RowSketch sketch) {
  sketch.sums.rows *= factor;
  sketch.sums.wave *= factor;
  sketch.sums.squares *= factor * factor;
  if (sketch.sums.grid) *sketch.sums.grid *= factor;
  return sketch;
}

Apart DistanceOf(const RowSketch& a, const RowSketch& b, double size) {
  if (a.joined || b.joined) return DistanceOfJoined(a, b, size);
  const double rows = RowsApart(a.sums, b.sums, size);
  const double in_order = std::max(rows, Relative(std::abs(a.sums.wave - b.sums.wave), size));
  // One row tells its elements as they stand, and nothing of them in another order.
  const bool one_row = a.rows == 1 && a.columns > 1;
  return {.in_order = in_order, .rows = one_row ? 0 : rows, .proven = true, .one_row = one_row};
}

double DistanceOfRows(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  if (!AllKnown(a) || !AllKnown(b)) return kInfinity;
  const SummedRows x = JoinRows(a), y = JoinRows(b);
  if (!x.one_width || !y.one_width || a.front().columns != b.front().columns || x.rows != y.rows)
    return kInfinity;
  return RowsApart(x.sums, y.sums, size);
}

double DistanceOfSums(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  if (!AllKnown(a) || !AllKnown(b)) return kInfinity;
  const SummedRows x = JoinRows(a), y = JoinRows(b);
  if (!x.one_width || !y.one_width || a.front().columns != b.front().columns || !x.one_height ||
      !y.one_height || a.front().rows != b.front().rows)
    return kInfinity;
  const double apart = std::max(Relative(std::abs(x.sums.rows - y.sums.rows), size),
                                Relative(std::abs(x.sums.wave - y.sums.wave), size));
  return apart * std::sqrt(static_cast<double>(b.size()));
}

double DistanceOfPadded(const RowSketch& longer, const RowSketch& shorter, double size) {
  constexpr double kSmall = 1.0 / 16;  // of the rows of the shorter one
  if (!AllKnown(longer) || !AllKnown(shorter) || longer.columns != shorter.columns ||
      longer.rows <= shorter.rows)
    return kInfinity;
  const auto further = static_cast<double>(longer.rows - shorter.rows);
  const double sum = std::abs(longer.sums.rows - shorter.sums.rows);
  const double usual = Root(shorter.sums.squares / static_cast<double>(shorter.rows));
  if (!(sum / further >= kSmall * usual)) return kInfinity;
  const double squares = longer.sums.squares - shorter.sums.squares;
  return Relative(std::abs(sum * sum / further - squares),
                  2 * size * Root(std::max(longer.sums.squares, shorter.sums.squares)));
}

double DistanceSideBySide(std::span<const RowSketch> a, std::span<const RowSketch> b, double size) {
  if (!AllKnown(a) || !AllKnown(b)) return kInfinity;
  const SummedRows x = JoinRows(a), y = JoinRows(b);
  if (x.columns != y.columns || !x.one_height || !y.one_height || a.front().rows != b.front().rows)
    return kInfinity;
  return Relative(std::abs(x.beside - y.beside), size);
}

}  // namespace msprobe::compare::relations
