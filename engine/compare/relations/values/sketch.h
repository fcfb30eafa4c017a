// Distances of two tensors by their sketches (kernels/sketch.h), which tell their elements apart
// where moments agree: rows in another order, other elements with the same moments, parts of a
// whole.
//
//   const RowSketch a = SketchOf(dump, 7), b = SketchOf(dump, 8);
//   const Apart apart = DistanceOf(a, b, /*size=*/1);
//   if (apart.in_order > bound && apart.rows <= bound) SameRowsInAnotherOrder();
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/sketch.h"
#include "engine/model/table.h"

namespace msprobe::compare::relations {

// A sketch, and of how many rows and columns it is.
struct RowSketch {
  int64_t rows = 0, columns = 0;  // 0 rows: none was recorded
  kernels::Sketch sums;
  // Which of its numbers are known: of a value that was joined of those of several ranks not all.
  // Its grid says itself whether it is.
  bool has_rows = true, has_squares = true, has_wave = true;
  bool joined = false;
  bool known() const { return rows > 0; }
};

// That of a tensor, as its dump has it; of one element its statistics say the same.
RowSketch SketchOf(const Dump& dump, int32_t leaf);

// That of `factor` times the elements.
RowSketch Times(double factor, RowSketch sketch);

// How far two tensors are apart.
struct Apart {
  double in_order = 0;    // their elements as they stand
  double rows = 0;        // their rows in any order
  bool proven = false;    // by sketches; false: moments alone say so
  bool compared = false;  // `in_order` is that of the elements themselves
  bool one_row = false;   // a vector: only moments tell whether its elements stand in another order
  // One of the two was joined of those of several ranks: that its elements stand in the golden's
  // order is known as exactly as phases are rounded.
  bool joined = false, joined_in_order = false;
};
// Of two sketches of equal rows and columns, relative to `size`: the norm of the elements, at least
// that of the terms that were added up to them.
Apart DistanceOf(const RowSketch& a, const RowSketch& b, double size);

// How far several tensors together are from several others, relative to `size`: all rows of one
// side are those of the other; the sum of one side is that of the other; laid side by side they are
// the same. Infinity: their shapes do not allow it.
double DistanceOfRows(std::span<const RowSketch> a, std::span<const RowSketch> b, double size);
double DistanceOfSums(std::span<const RowSketch> a, std::span<const RowSketch> b, double size);
double DistanceSideBySide(std::span<const RowSketch> a, std::span<const RowSketch> b, double size);

// How far a tensor is from the rows of a shorter one and further rows that are equal among
// themselves: of k rows r these add k r to the sum of rows and k |r|^2 to the sum of squares.
// Infinity: it is not longer, or the further rows are too small to tell.
double DistanceOfPadded(const RowSketch& longer, const RowSketch& shorter, double size);

}  // namespace msprobe::compare::relations
