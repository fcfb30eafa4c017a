#include "engine/kernels/phase.h"

#include <cmath>

namespace msprobe::kernels {
namespace {

// The polynomials of FreeBSD's msun (k_sin.c, k_cos.c) for |x| <= pi / 4. Not fused
// (CMakeLists.txt).
double SinOf(double x) {
  const double z = x * x;
  double p = 1.58969099521155010221e-10;
  p = p * z - 2.50507602534068634195e-08;
  p = p * z + 2.75573137070700676789e-06;
  p = p * z - 1.98412698298579493134e-04;
  p = p * z + 8.33333333332248946124e-03;
  p = p * z - 1.66666666666666324348e-01;
  return x + x * z * p;
}

double CosOf(double x) {
  const double z = x * x;
  double p = -1.13596475577881948265e-11;
  p = p * z + 2.08757232129817482790e-09;
  p = p * z - 2.75573143513906633035e-07;
  p = p * z + 2.48015872894767294178e-05;
  p = p * z - 1.38888888888741095749e-03;
  p = p * z + 4.16666666666666019037e-02;
  const double half = 0.5 * z, near = 1.0 - half;
  return near + ((1.0 - near - half) + z * z * p);
}

double Rounded(double x) { return std::floor(x * 0x1p29 + 0.5) * 0x1p-29; }

PhaseTable TableOf(uint64_t step) {
  PhaseTable table;
  for (size_t k = 0; k < kPhaseTable; ++k) {
    const std::complex<double> phase = RoundedPhaseOf(step * k);
    table.re[k] = phase.real();
    table.im[k] = phase.imag();
  }
  return table;
}

}  // namespace

std::complex<double> PhaseOf(uint64_t angle) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const uint64_t quarter = (angle + (uint64_t{1} << 61)) >> 62;  // the nearest one
  const double x =
      static_cast<double>(static_cast<int64_t>(angle - (quarter << 62))) * (kTwoPi * 0x1p-64);
  const double c = CosOf(x), s = SinOf(x);
  switch (quarter & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

std::complex<double> RoundedPhaseOf(uint64_t angle) {
  const std::complex<double> phase = PhaseOf(angle);
  return {Rounded(phase.real()), Rounded(phase.imag())};
}

const PhaseTable& ColumnPhases() {
  static const PhaseTable table = TableOf(kColumnStep);
  return table;
}

const FloatPhases& ColumnFloatPhases() {
  static const FloatPhases table = [] {
    FloatPhases phases;
    for (size_t k = 0; k < kPhaseTable; ++k) {
      const std::complex<double> phase = PhaseOf(kColumnStep * k);
      phases.re[k] = static_cast<float>(phase.real());
      phases.im[k] = static_cast<float>(phase.imag());
    }
    return phases;
  }();
  return table;
}

std::complex<double> PhaseOfPiece(int64_t piece) {
  constexpr size_t kKnown = 64;
  const auto of = [](uint64_t k) { return PhaseOf(kColumnStep * kPhaseTable * k); };
  static const std::array<std::complex<double>, kKnown> known = [&] {
    std::array<std::complex<double>, kKnown> phases;
    for (size_t k = 0; k < kKnown; ++k) phases[k] = of(k);
    return phases;
  }();
  const auto k = static_cast<uint64_t>(piece);
  return k < kKnown ? known[k] : of(k);
}

const PhaseTable& RowPhases() {
  static const PhaseTable table = TableOf(kRowStep);
  return table;
}

}  // namespace msprobe::kernels
