// ComputeDiff in the simplest way: the definition that the vector kernel is tested against, bit for
// bit.
#pragma once

#include <vector>

#include "engine/kernels/diff_pairs.h"
#include "engine/kernels/stats_scalar.h"

namespace msprobe::kernels {

// Value `v` of contiguous elements; kFloat4E2M1X2 has two a byte.
inline std::complex<double> ValueAt(DType dtype, const uint8_t* p, int64_t v) {
  if (dtype == DType::kFloat4E2M1X2) return Float4E2M1ToFloat(p[v / 2] >> (v % 2 ? 4 : 0) & 15);
  return ElementToComplex(dtype, p + v * static_cast<int64_t>(DTypeSize(dtype)));
}
inline Pair PairAt(DType t, const uint8_t* tp, DType g, const uint8_t* gp, int64_t v) {
  const std::complex<double> a = ValueAt(t, tp, v), b = ValueAt(g, gp, v);
  Pair pair{a.real(), a.imag(), b.real(), b.imag()};
  if (PairKindOf(t, g) == PairKind::kInteger) {
    pair.exact_distance =
        static_cast<double>(WholeDistance(LoadWhole(t, tp, v), LoadWhole(g, gp, v)));
  }
  return pair;
}

// `n` values from `tp` and `gp`.
inline DiffNode ChunkDiffScalar(DType t, const uint8_t* tp, DType g, const uint8_t* gp, int64_t n,
                                int64_t chunk) {
  DiffNode node;
  const PairKind kind = PairKindOf(t, g);
  const UlpKind ulp = UlpKindOf(t, g);
  const FloatFormat format = CoarserFormat(t, g);
  const double epsilon = EpsilonOf(t, g);
  std::array<double, 16> tt{}, gg{}, tg{}, dd{}, relative{};
  for (int64_t v = 0; v < n; ++v) {
    const Pair p = PairAt(t, tp, g, gp, v);
    node.unequal += !p.Same();
    if (!p.Finite()) {
      node.nonfinite_target += !p.TargetFinite();
      node.nonfinite_golden += !p.GoldenFinite();
      node.mismatch += !p.Same();
      node.within_1e3 += p.Same();
      node.within_5e3 += p.Same();
      continue;
    }
    const bool complex = kind == PairKind::kComplex;
    const double distance = p.Distance(kind);
    const double golden = complex ? Modulus(p.g, p.gi) : std::fabs(p.g);
    const double shifted = (p.t + epsilon) - epsilon;
    const double numerator = golden != 0 ? distance
                             : complex   ? Modulus(shifted, p.ti)
                                         : std::fabs(shifted);
    const double error = numerator / (golden != 0 ? golden : epsilon);
    const size_t lane = static_cast<size_t>(v % 16);
    if (complex) {
      const double target_squares = p.t * p.t + p.ti * p.ti,
                   golden_squares = p.g * p.g + p.gi * p.gi;
      const double products = p.t * p.g + p.ti * p.gi;
      tt[lane] += target_squares;
      gg[lane] += golden_squares;
      tg[lane] += products;
    } else {
      tt[lane] += p.t * p.t;
      gg[lane] += p.g * p.g;
      tg[lane] += p.t * p.g;
    }
    dd[lane] += distance * distance;
    if (golden != 0) relative[lane] += error;
    node.golden_zero += golden == 0;
    node.within_1e3 += error < 0.001;
    node.within_5e3 += error < 0.005;
    node.max_abs = std::max(node.max_abs, distance);
    node.max_relative = std::max(node.max_relative, error);
    ++node.finite;
    uint64_t steps = 0;
    if (ulp == UlpKind::kDifference) {
      steps = kind == PairKind::kInteger ? WholeDistance(LoadWhole(t, tp, v), LoadWhole(g, gp, v))
                                         : static_cast<uint64_t>(distance);
    } else if (ulp == UlpKind::kFormat) {
      steps = OrdinalDistance(Ordinal(p.t, format), Ordinal(p.g, format));
    }
    node.max_ulp = std::max(node.max_ulp, steps);
  }
  node.tt = AddLanesScalar(tt);
  node.gg = AddLanesScalar(gg);
  node.tg = AddLanesScalar(tg);
  node.dd = AddLanesScalar(dd);
  node.relative = AddLanesScalar(relative);
  node.SetChunk(chunk);
  return node;
}

// Same count of values on both sides.
inline Diff ComputeDiffScalar(const TensorView& target, const TensorView& golden) {
  const DType t = target.dtype, g = golden.dtype;
  const int64_t count = target.numel() * ValuesPerElement(t);
  if (count == 0) return Diff();
  const auto copy = [](const TensorView& view) {
    std::vector<uint8_t> bytes(static_cast<size_t>(view.numel()) * DTypeSize(view.dtype));
    CopyContiguous(view, bytes.data());
    return bytes;
  };
  const std::vector<uint8_t> tb = copy(target), gb = copy(golden);
  const auto at = [](const std::vector<uint8_t>& bytes, DType dtype, int64_t value) {
    return bytes.data() + value / ValuesPerElement(dtype) * static_cast<int64_t>(DTypeSize(dtype));
  };
  const DiffNode node =
      FoldScalar<DiffNode>(0, (count + kChunkElements - 1) / kChunkElements, [&](int64_t chunk) {
        const int64_t first = chunk * kChunkElements;
        return ChunkDiffScalar(t, at(tb, t, first), g, at(gb, g, first),
                               std::min(kChunkElements, count - first), chunk);
      });
  Diff diff = FinishDiff(node, UlpKindOf(t, g), count);
  const PairKind kind = PairKindOf(t, g);
  bool mismatch = false;
  double worst = 0;
  for (int64_t v = 0; v < count && !mismatch; ++v) {
    const Pair p = PairAt(t, tb.data(), g, gb.data(), v);
    if (p.Same()) continue;
    if (diff.first_index < 0) diff.first_index = v;
    mismatch = !p.Finite();
    if (!mismatch && p.Distance(kind) <= worst) continue;
    if (!mismatch) worst = p.Distance(kind);
    diff.worst_index = v;
    diff.worst_target = kind == PairKind::kComplex ? Modulus(p.t, p.ti) : p.t;
    diff.worst_golden = kind == PairKind::kComplex ? Modulus(p.g, p.gi) : p.g;
  }
  return diff;
}

}  // namespace msprobe::kernels
