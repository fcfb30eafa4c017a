#include "engine/compare/model/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace msprobe::compare {
namespace {

// Of a float or complex dtype with this many bits after the point.
constexpr double Explained(int mantissa) {
  return mantissa >= 23 ? 64 : mantissa == 10 ? 8 : mantissa == 7 ? 4 : mantissa > 0 ? 2 : 1;
}

constexpr Rounding Of(DType dtype) {
  const DTypeFacts& facts = FactsOf(dtype);
  Rounding r{.name = DTypeShortName(dtype)};
  if (!IsFloatOrComplex(dtype)) {
    r.kind = facts.kind == DTypeKind::kBool ? NumberKind::kBool : NumberKind::kInteger;
    return r;
  }
  r.kind = facts.kind == DTypeKind::kFloat ? NumberKind::kFloat : NumberKind::kComplex;
  r.epsilon = facts.format.epsilon();
  r.min_normal = facts.format.smallest_normal();
  r.explained = Explained(facts.format.mantissa);
  r.accumulator = std::min(r.epsilon, DTypeEpsilon(DType::kFloat32));
  return r;
}

// In the order of ElementType::index().
constexpr std::array<Rounding, ElementType::kIndexCount> kTable = [] {
  std::array<Rounding, ElementType::kIndexCount> table;
  for (int i = 0; i < kDTypeCount; ++i) table[static_cast<size_t>(i)] = Of(static_cast<DType>(i));
  // bool, int and float of Python.
  Rounding* python = &table[kDTypeCount];
  python[0] = {.kind = NumberKind::kBool, .name = "bool"};
  python[1] = {.kind = NumberKind::kInteger, .name = "int"};
  python[2] = Of(DType::kFloat32);  // nearly always the value of a float32 tensor
  return table;
}();

}  // namespace

const Rounding& RoundingOf(ElementType type) { return kTable[static_cast<size_t>(type.index())]; }

const Rounding& CoarserRounding(ElementType target, ElementType golden) {
  const Rounding &t = RoundingOf(target), &g = RoundingOf(golden);
  if (t.kind != g.kind) return kTable.back();
  // Of float16 and bfloat16 one has the larger epsilon, the other the smaller range: epsilon
  // decides.
  return t.epsilon >= g.epsilon ? t : g;
}

ElementType CoarserType(ElementType target, ElementType golden) {
  return RoundingOf(target).epsilon >= RoundingOf(golden).epsilon ? target : golden;
}

ElementType JudgedType(ElementType target, ElementType golden, ElementType noise_dtype) {
  const Rounding& r = CoarserRounding(target, golden);
  const bool rounds = r.kind == NumberKind::kFloat || r.kind == NumberKind::kComplex;
  const bool coarser = rounds && RoundingOf(noise_dtype).epsilon > r.epsilon;
  return coarser ? noise_dtype : CoarserType(target, golden);
}

double ExplainedRoundings(const Rounding& r, double terms, double tolerance) {
  if (r.epsilon == 0) return 0;
  const double sum = terms > 1 ? std::sqrt(terms) * r.accumulator / r.epsilon : 0;
  return tolerance * (r.explained + sum);
}

}  // namespace msprobe::compare
