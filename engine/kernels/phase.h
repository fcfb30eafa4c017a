// Phases: the numbers e^(i a) that a sketch (sketch.h) weighs elements with.
//
//   std::complex<double> z = PhaseOf(kColumnStep * uint64_t{7});   // e^(i 7 T)
//
// An angle is counted in turns of 2^-64: a multiple of a step is exact, however large it is.
// Everything here gives the same bits on every machine; the libraries' sin and cos do not.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>

namespace msprobe::kernels {

// The angle from one index to the next: of the last dimension (0.618..., the golden section), of
// the one before it (0.414..., from the square root of 2), and so on: fractions of the roots of 3,
// 7, 11, 13, 17 and 19. No two of them, and no small multiples, are near to each other.
inline constexpr int kMostPhases = 8;
inline constexpr std::array<uint64_t, kMostPhases> kPhaseSteps = {
    0x9e3779b97f4a7c15, 0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
inline constexpr uint64_t kColumnStep = kPhaseSteps[0], kRowStep = kPhaseSteps[1];

std::complex<double> PhaseOf(uint64_t angle);

// e^(i k step) for k below kPhaseTable, rounded to multiples of 2^-29: the product with a float32
// is exact in double, so that a fused multiply-add gives the same bits as two operations.
inline constexpr int64_t kPhaseTable = 1024;
struct PhaseTable {
  static constexpr size_t kPadding = 16;  // zeros, which vectors may load
  alignas(64) std::array<double, kPhaseTable + kPadding> re{}, im{};
};
const PhaseTable& ColumnPhases();
const PhaseTable& RowPhases();
// PhaseOf(angle), rounded like that.
std::complex<double> RoundedPhaseOf(uint64_t angle);

// ColumnPhases() rounded to float.
struct FloatPhases {
  alignas(64) std::array<float, kPhaseTable + PhaseTable::kPadding> re{}, im{};
};
const FloatPhases& ColumnFloatPhases();
// PhaseOf(kColumnStep * kPhaseTable * piece).
std::complex<double> PhaseOfPiece(int64_t piece);

}  // namespace msprobe::kernels
