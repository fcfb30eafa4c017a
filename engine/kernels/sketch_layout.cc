#include <cmath>
#include <utility>

#include "engine/kernels/sketch_node.h"
#include "engine/kernels/sketch_scalar.h"

namespace msprobe::kernels {
namespace {

// The phases in `grid` of the rows of a block: dimensions of these extents, from the right, and
// `parts` indices of the next dimension.
PhaseTable GridPhases(std::span<const int64_t> extents, int64_t parts) {
  PhaseTable table;
  size_t k = 0;
  // angle_of(d): adds the rows of the dimensions below d to the table.
  const auto fill = [&](auto&& self, size_t d, uint64_t angle) -> void {
    if (d == 0) {
      const std::complex<double> phase = RoundedPhaseOf(angle);
      table.re[k] = phase.real();
      table.im[k++] = phase.imag();
      return;
    }
    const int64_t extent = d <= extents.size() ? extents[d - 1] : parts;
    for (int64_t i = 0; i < extent; ++i, angle += kPhaseSteps[d]) self(self, d - 1, angle);
  };
  fill(fill, extents.size() + (parts > 1 ? 1 : 0), 0);
  return table;
}

// The tables of the last shapes: training meets the same shapes in each step.
std::shared_ptr<const PhaseTable> KnownGridPhases(std::span<const int64_t> extents, int64_t parts) {
  struct Known {
    std::array<int64_t, kMostPhases> key{};
    std::shared_ptr<const PhaseTable> table;
  };
  constexpr size_t kSlots = 32;  // of 16 KiB, for each thread
  thread_local std::array<Known, kSlots> known;
  std::array<int64_t, kMostPhases> key{};
  std::copy(extents.begin(), extents.end(), key.begin());
  key.back() = parts;
  uint64_t hash = 0;
  for (const int64_t number : key)
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15;
  Known& slot = known[hash >> 59];
  static_assert(kSlots == 1 << (64 - 59));
  if (slot.table == nullptr || slot.key != key)
    slot = {key, std::make_shared<const PhaseTable>(GridPhases(extents, parts))};
  return slot.table;
}

}  // namespace

std::complex<double> Turned(std::complex<double> z, std::complex<double> phase) {
  return {z.real() * phase.real() - z.imag() * phase.imag(),
          z.real() * phase.imag() + z.imag() * phase.real()};
}

SketchShape SketchShapeOf(DType dtype, std::span<const int64_t> extents) {
  SketchShape shape{.columns = SketchValues(dtype)};
  const size_t n = extents.size();
  if (n > 1) shape.columns *= extents[n - 1];
  for (size_t d = 0; d < (n > 1 ? n - 1 : n); ++d) shape.rows *= extents[d];
  shape.has_grid = n > 2 && n <= kMostPhases;
  return shape;
}

SketchLayout::SketchLayout(DType dtype, std::span<const int64_t> extents) {
  const SketchShape shape = SketchShapeOf(dtype, extents);
  rows_ = block_ = span_ = shape.rows;
  columns_ = shape.columns;
  in_float_ = columns_ > 1 &&
              (dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16);
  has_grid_ = shape.has_grid;
  if (!has_grid_) {
    block_ = std::min(kPhaseTable, rows_);
    return;
  }
  dimensions_ = static_cast<int>(extents.size()) - 1;
  std::reverse_copy(extents.begin(), extents.end() - 1, extents_.begin());
  int whole = 0;      // dimensions that lie in a block as a whole
  int64_t inner = 1;  // their rows
  while (whole < dimensions_ && inner * extents_[whole] <= kPhaseTable) inner *= extents_[whole++];
  int64_t parts = 1;
  if (whole < dimensions_) {
    parts = kPhaseTable / inner;
    block_ = inner * parts;
    span_ = inner * extents_[whole];
  }
  // Only one dimension has more than one index in a block: the last before the columns.
  const bool is_wave = inner == extents_[0] ? parts == 1 : whole == 0;
  if (!is_wave)
    grid_phases_ = KnownGridPhases({extents_.data(), static_cast<size_t>(whole)}, parts);
}

std::optional<Sketch> FinishSketch(const SketchNode& node) {
  const SketchSums& sums = node.whole;
  // -0 becomes 0, so that the order of elements does not matter.
  const auto plain = [](std::complex<double> z) {
    return std::complex<double>{z.real() + 0.0, z.imag() + 0.0};
  };
  Sketch sketch{.rows = plain(sums.rows), .wave = plain(sums.wave), .squares = sums.squares};
  if (node.layout->has_grid()) sketch.grid = plain(sums.grid);
  // A row is not larger than its square but where both are small; its phases change no infinity.
  const auto finite = [](std::complex<double> z) {
    return std::isfinite(z.real()) && std::isfinite(z.imag());
  };
  const bool all = finite(sketch.rows) && finite(sketch.wave) && std::isfinite(sketch.squares) &&
                   (!sketch.grid || finite(*sketch.grid));
  return all ? std::optional(sketch) : std::nullopt;
}

}  // namespace msprobe::kernels
