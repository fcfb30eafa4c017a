// How a pair of elements is counted in a DiffHistogram, and how two neighbouring parts are
// combined.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/kernels/diff_histogram.h"
#include "engine/kernels/diff_pairs.h"

namespace msprobe::kernels {

// Index into DiffHistogram::decades of a distance, finite and greater than zero. No logarithm: a
// power of two has its decade in a table, and the next decade begins at most once before the next
// power of two.
inline size_t DecadeOf(double distance) {
  using H = DiffHistogram;
  constexpr int kExponents = 2048, kBias = 1023;
  struct Table {
    std::array<double, H::kHighest - H::kLowest + 1> power;  // 10^k
    std::array<uint8_t, kExponents> decade;                  // of 2^(e - kBias)
    Table() {
      for (int k = H::kLowest; k <= H::kHighest; ++k) power[k - H::kLowest] = PowerOfTen(k);
      for (int e = 0; e < kExponents; ++e) {
        const double least = std::ldexp(1.0, e - kBias);
        size_t k = 0;
        while (k + 1 < power.size() && least >= power[k + 1]) ++k;
        decade[e] = static_cast<uint8_t>(k);
      }
    }
    // The double nearest to 10^k.
    static double PowerOfTen(int k) {
      long double power = 1;
      for (int i = 0; i < std::abs(k); ++i) power *= 10;
      return static_cast<double>(k < 0 ? 1 / power : power);
    }
  };
  static const Table table;
  const size_t k = table.decade[std::bit_cast<uint64_t>(distance) >> 52 & (kExponents - 1)];
  return k + (k + 1 < table.power.size() && distance >= table.power[k + 1] ? 1 : 0);
}

// Whether `a` stands before `b` in DiffHistogram::worst.
inline bool IsWorse(const DiffHistogram::Place& a, const DiffHistogram::Place& b) {
  return a.distance != b.distance ? a.distance > b.distance : a.index < b.index;
}

// Keeps the worst places in their order.
inline void AddWorst(const DiffHistogram::Place& place, DiffHistogram::Places* worst) {
  constexpr size_t kMost = DiffHistogram::kMostPlaces;
  if (worst->count == kMost && !IsWorse(place, worst->place[kMost - 1])) return;
  size_t at = worst->count < kMost ? worst->count++ : kMost - 1;
  for (; at > 0 && IsWorse(place, worst->place[at - 1]); --at)
    worst->place[at] = worst->place[at - 1];
  worst->place[at] = place;
}

// Counts the pair, whose index is greater than those that were added before.
inline void AddPair(const Pair& pair, PairKind kind, int64_t index, DiffHistogram* h) {
  ++h->count;
  if (pair.Same()) {
    ++h->equal;
    return;
  }
  const bool finite = pair.Finite(), complex = kind == PairKind::kComplex;
  const double distance = finite ? pair.Distance(kind) : std::numeric_limits<double>::infinity();
  if (!finite) {
    ++h->nonfinite;
  } else {
    ++h->decades[DecadeOf(distance)];
  }
  const DiffHistogram::Place place = {index, complex ? Modulus(pair.t, pair.ti) : pair.t,
                                      complex ? Modulus(pair.g, pair.gi) : pair.g, distance};
  if (h->first.count < DiffHistogram::kMostPlaces) h->first.place[h->first.count++] = place;
  AddWorst(place, &h->worst);
}

struct DiffHistogramNode : DiffHistogram {
  // `right` is of the elements after those of `left`.
  static DiffHistogramNode Combine(const DiffHistogramNode& left, const DiffHistogramNode& right) {
    DiffHistogramNode both = left;
    both.count += right.count;
    both.equal += right.equal;
    both.nonfinite += right.nonfinite;
    for (size_t k = 0; k < both.decades.size(); ++k) both.decades[k] += right.decades[k];
    for (const Place& place : right.first.span()) {
      if (both.first.count < kMostPlaces) both.first.place[both.first.count++] = place;
    }
    for (const Place& place : right.worst.span()) AddWorst(place, &both.worst);
    return both;
  }
};

}  // namespace msprobe::kernels
