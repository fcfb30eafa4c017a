#include "engine/compare/model/rounding.h"

#include <array>
#include <cmath>

namespace msprobe::compare {
namespace {

constexpr double kEps64 = 0x1p-52, kEps32 = 0x1p-23;

constexpr Rounding Float(std::string_view name, double epsilon, double min_normal, double explained,
                         double accumulator) {
  return {NumberKind::kFloat, epsilon, min_normal, explained, accumulator, name};
}
constexpr Rounding Exact(std::string_view name, NumberKind kind) {
  return {kind, 0, 0, 0, 0, name};
}
constexpr Rounding Complex(std::string_view name, Rounding part) {
  part.kind = NumberKind::kComplex;
  part.name = name;
  return part;
}

constexpr Rounding kFloat64 = Float("float64", kEps64, 0x1p-1022, 64, kEps64);
constexpr Rounding kFloat32 = Float("float32", kEps32, 0x1p-126, 64, kEps32);
constexpr Rounding kFloat16 = Float("float16", 0x1p-10, 0x1p-14, 8, kEps32);

// In the order of ElementType::index().
constexpr std::array<Rounding, ElementType::kIndexCount> kTable = {
    kFloat64,
    kFloat32,
    kFloat16,
    Float("bfloat16", 0x1p-7, 0x1p-126, 4, kEps32),
    Float("float8_e4m3fn", 0x1p-3, 0x1p-6, 2, kEps32),
    Float("float8_e5m2", 0x1p-2, 0x1p-14, 2, kEps32),
    Float("float8_e4m3fnuz", 0x1p-3, 0x1p-7, 2, kEps32),
    Float("float8_e5m2fnuz", 0x1p-2, 0x1p-15, 2, kEps32),
    Float("float8_e8m0fnu", 1, 0x1p-127, 1, kEps32),
    Float("float4_e2m1fn_x2", 0x1p-1, 1, 2, kEps32),
    Exact("uint8", NumberKind::kInteger),
    Exact("uint16", NumberKind::kInteger),
    Exact("uint32", NumberKind::kInteger),
    Exact("uint64", NumberKind::kInteger),
    Exact("int8", NumberKind::kInteger),
    Exact("int16", NumberKind::kInteger),
    Exact("int32", NumberKind::kInteger),
    Exact("int64", NumberKind::kInteger),
    Exact("bool", NumberKind::kBool),
    Complex("complex64", kFloat32),
    Complex("complex128", kFloat64),
    Complex("complex32", kFloat16),
    // bool, int and float of Python.
    Exact("bool", NumberKind::kBool),
    Exact("int", NumberKind::kInteger),
    kFloat32,  // a Python float: nearly always the value of a float32 tensor
    Rounding{},
};

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
