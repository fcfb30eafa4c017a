#include "engine/compare/model/rounding.h"

#include <cmath>

namespace msprobe::compare {
namespace {

constexpr double kEps64 = 0x1p-52, kEps32 = 0x1p-23;

struct Entry {
  std::string_view name;  // lower case, without "torch."
  Rounding rounding;
};

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

constexpr Entry kTable[] = {
    {"float32", kFloat32},
    {"bfloat16", Float("bfloat16", 0x1p-7, 0x1p-126, 4, kEps32)},
    {"float16", kFloat16},
    {"float64", kFloat64},
    {"float8_e4m3fn", Float("float8_e4m3fn", 0x1p-3, 0x1p-6, 2, kEps32)},
    {"float8_e4m3fnuz", Float("float8_e4m3fnuz", 0x1p-3, 0x1p-7, 2, kEps32)},
    {"float8_e5m2", Float("float8_e5m2", 0x1p-2, 0x1p-14, 2, kEps32)},
    {"float8_e5m2fnuz", Float("float8_e5m2fnuz", 0x1p-2, 0x1p-15, 2, kEps32)},
    {"float8_e8m0fnu", Float("float8_e8m0fnu", 1, 0x1p-127, 1, kEps32)},
    {"float4_e2m1fn_x2", Float("float4_e2m1fn_x2", 0x1p-1, 1, 2, kEps32)},
    {"complex32", Complex("complex32", kFloat16)},
    {"complex64", Complex("complex64", kFloat32)},
    {"complex128", Complex("complex128", kFloat64)},
    {"bool", Exact("bool", NumberKind::kBool)},
    {"int8", Exact("int8", NumberKind::kInteger)},
    {"int16", Exact("int16", NumberKind::kInteger)},
    {"int32", Exact("int32", NumberKind::kInteger)},
    {"int64", Exact("int64", NumberKind::kInteger)},
    {"uint8", Exact("uint8", NumberKind::kInteger)},
    {"uint16", Exact("uint16", NumberKind::kInteger)},
    {"uint32", Exact("uint32", NumberKind::kInteger)},
    {"uint64", Exact("uint64", NumberKind::kInteger)},
    {"float", kFloat32},  // a Python float: nearly always the value of a float32 tensor
    {"int", Exact("int", NumberKind::kInteger)},
};

bool SameIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != lower[i]) return false;
  }
  return true;
}

}  // namespace

Rounding RoundingOf(std::string_view dtype) {
  if (dtype.starts_with("torch.")) dtype.remove_prefix(6);
  if (dtype.starts_with("<class '") && dtype.ends_with("'>"))
    dtype = dtype.substr(8, dtype.size() - 10);
  for (const Entry& entry : kTable) {
    if (SameIgnoringCase(dtype, entry.name)) return entry.rounding;
  }
  return {};
}

Rounding CoarserRounding(std::string_view target_dtype, std::string_view golden_dtype) {
  const Rounding t = RoundingOf(target_dtype);
  if (target_dtype == golden_dtype) return t;
  const Rounding g = RoundingOf(golden_dtype);
  if (t.kind != g.kind) return {};
  // Of float16 and bfloat16 one has the larger epsilon, the other the smaller range: epsilon
  // decides.
  return t.epsilon >= g.epsilon ? t : g;
}

std::string_view CoarserDType(std::string_view target_dtype, std::string_view golden_dtype) {
  if (target_dtype == golden_dtype) return target_dtype;
  return RoundingOf(target_dtype).epsilon >= RoundingOf(golden_dtype).epsilon ? target_dtype
                                                                              : golden_dtype;
}

std::string_view JudgedDType(std::string_view target_dtype, std::string_view golden_dtype,
                             std::string_view before) {
  const std::string_view own = CoarserDType(target_dtype, golden_dtype);
  const Rounding r = CoarserRounding(target_dtype, golden_dtype);
  return r.kind == NumberKind::kFloat && RoundingOf(before).epsilon > r.epsilon ? before : own;
}

double ExplainedRoundings(const Rounding& r, double terms, double tolerance) {
  if (r.epsilon == 0) return 0;
  const double sum = terms > 1 ? std::sqrt(terms) * r.accumulator / r.epsilon : 0;
  return tolerance * (r.explained + sum);
}

}  // namespace msprobe::compare
