#include "engine/compare/layouts/joined_numbers.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <optional>

#include "engine/compare/model/record_keys.h"
#include "engine/kernels/phase.h"

namespace msprobe::compare::layouts {
namespace {

using kernels::PhaseOf;

// Statistics of several tensors.
struct Totals {
  double max = -INFINITY, min = INFINITY, sum = 0, squares = 0;
  int64_t elements = 0, extremes = 0;
  double rest_max = -INFINITY, rest_min = INFINITY, rest_squares = 0;
  ElementCounts counts = kNoneOfAKind;
  bool known = true;
};

void AddCounts(const ElementCounts& from, ElementCounts* to) {
  const auto add = [](int64_t a, int64_t b) { return a < 0 || b < 0 ? int64_t{-1} : a + b; };
  *to = {.nan = add(from.nan, to->nan),
         .pos_inf = add(from.pos_inf, to->pos_inf),
         .neg_inf = add(from.neg_inf, to->neg_inf),
         .zero = add(from.zero, to->zero)};
}

// NaN stays: fmax and std::max would drop it.
double Larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double Smaller(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

void AddShard(const Dump& dump, int32_t index, Totals* t) {
  const Leaf& leaf = dump.leaves[index];
  if (leaf.shape.elements() == 0) return;  // fewer rows than ranks: it has no numbers
  t->known &= leaf.has_stats;
  t->max = Larger(t->max, leaf.max_value);
  t->min = Smaller(t->min, leaf.min_value);
  const auto n = static_cast<double>(leaf.shape.elements());
  t->sum += leaf.mean_value * n;
  t->squares += leaf.norm_value * leaf.norm_value;
  t->elements += leaf.shape.elements();
  AddCounts(*leaf.counts, &t->counts);
  const LeafRest* rest = dump.RestOf(index);
  t->extremes += rest != nullptr ? rest->extremes : 0;
  t->rest_max = std::max(t->rest_max, rest != nullptr ? rest->max : leaf.max_value);
  t->rest_min = std::min(t->rest_min, rest != nullptr ? rest->min : leaf.min_value);
  const double norm = rest != nullptr ? rest->norm : leaf.norm_value;
  t->rest_squares += norm * norm;
}

// A place where parts are added up: of the sum only the mean is known, the others are bounds.
Totals OfPlace(std::span<const ValuePart> parts, std::span<const RankRun> runs,
               const std::vector<int32_t>& place) {
  Totals sum;
  for (const int32_t i : place) {
    Totals one;
    AddShard(*runs[parts[i].run].dump, parts[i].leaf, &one);
    if (place.size() == 1) return one;
    const bool first = sum.elements == 0;
    sum.max = (first ? 0 : sum.max) + one.max;
    sum.min = (first ? 0 : sum.min) + one.min;
    sum.sum += one.sum;
    sum.squares += one.squares;
    sum.elements = one.elements;
    sum.known &= one.known;
    sum.counts = kUnknownCounts;
  }
  return sum;
}

void AddTotals(const Totals& place, Totals* all) {
  all->max = Larger(all->max, place.max);
  all->min = Smaller(all->min, place.min);
  all->sum += place.sum;
  all->squares += place.squares;
  all->elements += place.elements;
  all->extremes += place.extremes;
  all->rest_max = std::max(all->rest_max, place.rest_max);
  all->rest_min = std::min(all->rest_min, place.rest_min);
  all->rest_squares += place.rest_squares;
  all->known &= place.known;
  AddCounts(place.counts, &all->counts);
}

// What is known of a sketch.
struct Known {
  kernels::Sketch sums;
  bool rows = true, squares = true, wave = true, grid = true;
};

std::optional<Known> OfPart(const Dump& dump, int32_t index) {
  const Leaf& leaf = dump.leaves[index];
  if (const std::optional<kernels::Sketch> sketch = dump.SketchOf(index))
    return Known{.sums = *sketch, .grid = sketch->grid.has_value()};
  if (leaf.shape.elements() == 0) return Known{.sums = {.grid = std::complex<double>(0)}};
  const double x = leaf.max_value;
  if (leaf.shape.elements() != 1 || !std::isfinite(x)) return std::nullopt;
  const bool deep = leaf.shape.extents().size() >= 3;
  return Known{.sums = {.rows = x, .wave = x, .squares = x * x, .grid = std::complex<double>(x)},
               .grid = deep};
}

void AddKnown(const Known& part, std::complex<double> rows, std::complex<double> wave,
              std::complex<double> grid, Known* all) {
  all->sums.rows += rows * part.sums.rows;
  all->sums.wave += wave * part.sums.wave;
  all->sums.squares += part.sums.squares;
  all->rows &= part.rows;
  all->squares &= part.squares;
  all->wave &= part.wave;
  all->grid &= part.grid;
  if (all->grid) *all->sums.grid += grid * part.sums.grid.value_or(0);
}

// The sketch of a place: that of its part, or of the sum of its parts.
std::optional<Known> SumOf(std::span<const ValuePart> parts, std::span<const RankRun> runs,
                           const std::vector<int32_t>& place) {
  Known sum{.sums = {.grid = std::complex<double>(0)}};
  for (const int32_t i : place) {
    const std::optional<Known> part = OfPart(*runs[parts[i].run].dump, parts[i].leaf);
    if (!part) return std::nullopt;
    AddKnown(*part, 1, 1, 1, &sum);
  }
  sum.squares &= place.size() == 1;
  return sum;
}

// Of one place, where the shards before it have `offset` indices of the dimension.
void AddPlace(const Known& place, std::span<const int64_t> whole, int32_t dimension, int64_t offset,
              Known* all) {
  const auto d = static_cast<size_t>(dimension), last = whole.size() - 1;
  const auto at = static_cast<uint64_t>(offset);
  std::complex<double> rows = 1, wave = 1;
  if (d == last && last > 0) {
    rows = wave = PhaseOf(kernels::kColumnStep * at);
    all->squares = false;
  } else {
    // Rows are counted over all dimensions but the last: shards of an inner one have them here and
    // there.
    uint64_t below = 1;
    for (size_t k = d + 1; k < last; ++k) below *= static_cast<uint64_t>(whole[k]);
    wave = PhaseOf(kernels::kRowStep * at * below);
    all->wave &= std::all_of(whole.begin(), whole.begin() + dimension,
                             [](int64_t extent) { return extent == 1; });
  }
  const size_t step = last - d;
  all->grid &= step < kernels::kMostPhases;
  const std::complex<double> grid =
      all->grid ? PhaseOf(kernels::kPhaseSteps[step] * at) : std::complex<double>(1);
  AddKnown(place, rows, wave, grid, all);
}

// Shards of which nobody knows the order: whole rows add up to the same.
void AddUnordered(const Known& place, bool whole_rows, Known* all) {
  AddKnown(place, 1, 1, 1, all);
  all->wave = all->grid = false;
  all->rows &= whole_rows;
  all->squares &= whole_rows;
}

std::optional<Known> JoinSketches(const ValueLayout& layout, std::span<const ValuePart> parts,
                                  std::span<const RankRun> runs, Shape whole) {
  const Leaf& first =
      runs[parts[layout.places[0][0]].run].dump->leaves[parts[layout.places[0][0]].leaf];
  const std::optional<DType> dtype = first.dtype.dtype();
  const std::span<const int64_t> extents = whole.extents();
  // A complex number is two columns.
  if (!dtype || !whole.known() ||
      kernels::SketchShapeOf(*dtype, extents).columns !=
          (extents.size() > 1 ? extents.back() : int64_t{1}))
    return std::nullopt;
  if (layout.places.size() == 1) return SumOf(parts, runs, layout.places[0]);
  Known all{.sums = {.grid = std::complex<double>(0)}};
  int64_t offset = 0;
  for (const std::vector<int32_t>& of : layout.places) {
    const std::optional<Known> place = SumOf(parts, runs, of);
    if (!place) return std::nullopt;
    const std::span<const int64_t> own =
        runs[parts[of[0]].run].dump->leaves[parts[of[0]].leaf].shape.extents();
    // A value that was reshaped has the content, and no such dimension.
    if (layout.dimension >= 0 && own.size() == extents.size()) {
      AddPlace(*place, extents, layout.dimension, offset, &all);
      offset += own[layout.dimension];
    } else {
      const bool rows = !extents.empty() && own.size() == extents.size() && extents.size() > 1 &&
                        own.back() == extents.back();
      AddUnordered(*place, rows, &all);
    }
  }
  return all;
}

uint64_t ContentOf(const ValueLayout& layout, std::span<const ValuePart> parts,
                   std::span<const RankRun> runs, double factor) {
  uint64_t hash = HashText("joined", static_cast<uint64_t>(layout.kind) * 64 +
                                         static_cast<uint64_t>(layout.dimension + 1));
  for (const std::vector<int32_t>& place : layout.places) {
    for (const int32_t i : place) {
      const uint64_t content = ContentKey(runs[parts[i].run].dump->leaves[parts[i].leaf]);
      hash = (hash ^ content) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 31;
    }
    hash = (hash ^ 0x5bd1e995) * 0xff51afd7ed558ccd;
  }
  return hash ^ static_cast<uint64_t>(std::llround(factor * 1024)) * 0xc4ceb9fe1a85ec53;
}

}  // namespace

JoinedNumbers JoinNumbers(const ValueLayout& layout, std::span<const ValuePart> parts,
                          std::span<const RankRun> runs, Shape whole, double factor) {
  JoinedNumbers out;
  Totals all;
  bool sum = false;
  for (const std::vector<int32_t>& place : layout.places) {
    AddTotals(OfPlace(parts, runs, place), &all);
    sum |= place.size() > 1;
  }
  const bool mean = layout.kind == ValueLayout::Kind::kMean;
  const double by = 1 / (factor * (mean ? static_cast<double>(layout.places.front().size()) : 1.0));
  out.known = all.known && all.elements > 0;
  out.max = all.max * by;
  out.min = all.min * by;
  out.mean = all.sum / static_cast<double>(all.elements) * by;
  out.norm = std::sqrt(all.squares) * by;
  // One element is its mean.
  if (sum && all.elements == 1) out.max = out.min = out.mean, out.norm = std::abs(out.mean);
  out.counts = all.counts;
  out.rest = {.extremes = all.extremes,
              .max = all.rest_max * by,
              .min = all.rest_min * by,
              .norm = std::sqrt(all.rest_squares) * by};
  out.joined.sum = sum && all.elements > 1;
  if (const std::optional<Known> known = JoinSketches(layout, parts, runs, whole)) {
    out.joined.rows = known->rows;
    out.joined.squares = known->squares;
    out.joined.wave = known->wave;
    out.joined.sketch = known->sums;
    out.joined.sketch.rows *= by;
    out.joined.sketch.wave *= by;
    out.joined.sketch.squares *= by * by;
    if (known->grid)
      *out.joined.sketch.grid *= by;
    else
      out.joined.sketch.grid.reset();
  }
  out.content = ContentOf(layout, parts, runs, factor);
  return out;
}

}  // namespace msprobe::compare::layouts
