#include "engine/compare/judge/judge.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The four statistics of one leaf, and the scale that the difference of each is divided by.
struct Quartet {
  std::string_view text[4];
  double value[4];
};
constexpr int kMax = 0, kMin = 1, kMean = 2, kNorm = 3;

Quartet QuartetOf(const Leaf& leaf) {
  return {{leaf.max, leaf.min, leaf.mean, leaf.norm},
          {leaf.max_value, leaf.min_value, leaf.mean_value, leaf.norm_value}};
}

bool Recorded(std::string_view text) { return !text.empty() && text != "null" && text != "None"; }

// Whether the text is a NaN of the data. Other text that is no number is a plain value.
bool IsNaNText(std::string_view text) { return text == "NaN" || text == "nan"; }

double Relative(double diff, double golden) {
  if (std::isnan(diff)) return diff;
  if (diff == 0) return 0;
  return golden == 0 ? kInf : std::abs(diff / golden);
}

void SetDifference(int which, double target, double golden, Differences* d) {
  double* const diffs[] = {&d->max_diff, &d->min_diff, &d->mean_diff, &d->norm_diff};
  double* const rels[] = {&d->max_rel, &d->min_rel, &d->mean_rel, &d->norm_rel};
  *diffs[which] =
      target == golden ? 0 : target - golden;  // infinities of one sign differ by nothing
  *rels[which] = Relative(*diffs[which], golden);
}

void Settle(Measure* m, RowVerdict verdict, Reason reason, double severity) {
  m->verdict = verdict;
  m->reason = reason;
  m->severity = severity;
}

bool CountsDiffer(int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; }
bool NonFiniteCountsDiffer(const Leaf& t, const Leaf& g) {
  return CountsDiffer(t.counts->nan, g.counts->nan) ||
         CountsDiffer(t.counts->pos_inf, g.counts->pos_inf) ||
         CountsDiffer(t.counts->neg_inf, g.counts->neg_inf);
}

Rounding RoundingFor(const Leaf& target, const Leaf& golden, const JudgeOptions& options) {
  const ElementType judged = JudgedType(target.dtype, golden.dtype, options.noise_dtype);
  return judged == options.noise_dtype ? RoundingOf(judged)
                                       : CoarserRounding(target.dtype, golden.dtype);
}

// The reason to report for a pair that is judged by the rounding `r`.
Reason DTypeReason(const Leaf& target, const Leaf& golden, const Rounding& r) {
  if (target.dtype != golden.dtype && r.kind != NumberKind::kOther &&
      RoundingOf(target.dtype).name != RoundingOf(golden.dtype).name)
    return Reason::kDTypeDiffers;
  const bool own = r.epsilon == CoarserRounding(target.dtype, golden.dtype).epsilon;
  return own || r.kind == NumberKind::kOther ? Reason::kNone : Reason::kCoarserBefore;
}

double Disagreement(double a, double b, double scale, const Rounding& r) {
  if (a == b) return 0;
  if (r.epsilon == 0) return kInf;  // exact kinds
  return std::abs(a - b) / (r.epsilon * std::max(scale, r.min_normal));
}

// Judges NaN and infinities among the statistics; true: the row has its verdict.
bool JudgeNonFinite(const Quartet& t, const Quartet& g, Measure* m) {
  bool both_nan = false;
  for (int i = 0; i < 4; ++i) {
    if (!Recorded(t.text[i]) || !Recorded(g.text[i])) continue;
    const bool t_finite = std::isfinite(t.value[i]), g_finite = std::isfinite(g.value[i]);
    if (t_finite && g_finite) continue;
    const bool t_nan = std::isnan(t.value[i]), g_nan = std::isnan(g.value[i]);
    // A norm may overflow in a 16-bit type on one run and be finite on the other, although all
    // elements are finite: then maximum and minimum decide.
    if (i == kNorm && !t_nan && !g_nan && std::isfinite(t.value[kMax]) &&
        std::isfinite(g.value[kMax]))
      continue;
    if (t_nan && g_nan) {
      both_nan = true;
    } else if (t_nan || g_nan || t.value[i] != g.value[i]) {
      Settle(m, RowVerdict::kDiffers, Reason::kNonFinite, kInf);
      return true;
    }
  }
  if (both_nan) Settle(m, RowVerdict::kUnknown, Reason::kBothNaN, Measure().severity);
  return both_nan;
}

// Judges by the statistics that both sides recorded; judge.h has the scale of each. The severity is
// the largest difference in roundings. Example, float32 with 100 elements, max 4, min -1, norm 10:
// the means are 1e-6 and 3e-6. Their difference is not divided by a mean but by the root of the
// mean square, 10 / sqrt(100) = 1. That is 2e-6 / 1.19e-7 = 17 roundings; 64 are explained: noise.
// The severity of the elements that are no extremes; 0 when they are not known.
double RestSeverity(const JudgeOptions& options, const Rounding& r) {
  const LeafRest *t = options.target_rest, *g = options.golden_rest;
  if (t == nullptr || g == nullptr) return 0;
  const double scale = std::max(
      {std::abs(t->max), std::abs(t->min), std::abs(g->max), std::abs(g->min), options.magnitude});
  return std::max({Disagreement(t->max, g->max, scale, r), Disagreement(t->min, g->min, scale, r),
                   Disagreement(t->norm, g->norm, std::max(t->norm, g->norm), r)});
}

bool ExtremesDiffer(const JudgeOptions& options) {
  const LeafRest *t = options.target_rest, *g = options.golden_rest;
  return t != nullptr && g != nullptr && t->extremes != g->extremes;
}

void JudgeStatistics(const Leaf& target, const Leaf& golden, const JudgeOptions& options,
                     bool other_bits, Measure* m) {
  const Quartet t = QuartetOf(target), g = QuartetOf(golden);
  const Rounding r = RoundingFor(target, golden, options);
  bool any = false, same = true;
  for (int i = 0; i < 4; ++i) {
    if (!Recorded(t.text[i]) || !Recorded(g.text[i])) continue;
    any = true;
    same = same && (t.text[i] == g.text[i] || t.value[i] == g.value[i]) && !IsNaNText(t.text[i]);
  }
  if (NonFiniteCountsDiffer(target, golden)) {
    return Settle(m, RowVerdict::kDiffers, Reason::kNonFinite, kInf);
  }
  if (!any) return Settle(m, RowVerdict::kUnknown, Reason::kNoCommonNumber, Measure().severity);
  if (JudgeNonFinite(t, g, m)) return;
  if (ExtremesDiffer(options)) return Settle(m, RowVerdict::kDiffers, Reason::kExtremes, kInf);

  const Reason dtype = DTypeReason(target, golden, r);
  const double rest = RestSeverity(options, r);
  if (same && rest == 0 && !CountsDiffer(target.counts->zero, golden.counts->zero)) {
    return other_bits ? Settle(m, RowVerdict::kNoise, Reason::kOtherBits, 0)
                      : Settle(m, RowVerdict::kEqual, dtype, 0);
  }
  double severity = rest;
  const auto both = [&](int i) { return Recorded(t.text[i]) && Recorded(g.text[i]); };
  double scale = options.magnitude;
  for (const int i : {kMax, kMin}) {
    if (both(i)) scale = std::max({scale, std::abs(t.value[i]), std::abs(g.value[i])});
  }
  for (const int i : {kMax, kMin}) {
    if (both(i)) severity = std::max(severity, Disagreement(t.value[i], g.value[i], scale, r));
  }
  // Generations that record mean and norm of integers sum them in float32.
  const Rounding& sums = r.kind == NumberKind::kInteger || r.kind == NumberKind::kBool
                             ? RoundingOf(DType::kFloat32)
                             : r;
  const auto n = static_cast<double>(golden.shape.elements());
  const double summed = n > 0 ? options.magnitude * std::sqrt(n) : 0;
  const double norm = std::max({std::abs(t.value[kNorm]), std::abs(g.value[kNorm]), summed});
  if (both(kNorm) && std::isfinite(norm)) {
    severity = std::max(severity, Disagreement(t.value[kNorm], g.value[kNorm], norm, sums));
  }
  if (both(kMean)) {
    const double rms = both(kNorm) && std::isfinite(norm) && n > 0 ? norm / std::sqrt(n) : scale;
    severity = std::max(
        severity, Disagreement(t.value[kMean], g.value[kMean],
                               std::max({rms, std::abs(g.value[kMean]), options.magnitude}), sums));
  }
  const double limit = options.limits.Explained(r.epsilon == 0 ? sums : r, options.terms);
  Settle(m, severity <= limit ? RowVerdict::kNoise : RowVerdict::kDiffers, dtype, severity);
}

// Whether the two tensors hold numbers of two kinds: floats, integers, truth values.
bool KindsDiffer(const Leaf& target, const Leaf& golden) {
  const NumberKind t = RoundingOf(target.dtype).kind, g = RoundingOf(golden.dtype).kind;
  return t != g && t != NumberKind::kOther && g != NumberKind::kOther;
}

// Whether a plain value is a float dtype, "torch.float16".
bool IsFloatDType(std::string_view value) { return RoundingOf(value).kind == NumberKind::kFloat; }

bool FiniteNumber(std::string_view text, double* out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *out);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && std::isfinite(*out);
}

void JudgeScalars(const Leaf& target, const Leaf& golden, const JudgeOptions& options, Measure* m) {
  if (target.value == golden.value) return Settle(m, RowVerdict::kEqual, Reason::kNone, 0);
  if (target.type == "torch.device" && golden.type == "torch.device") {
    return Settle(m, RowVerdict::kUnknown, Reason::kDevice, Measure().severity);
  }
  if (IsFloatDType(target.value) && IsFloatDType(golden.value)) {
    return Settle(m, RowVerdict::kUnknown, Reason::kDTypeDiffers, Measure().severity);
  }
  double t = 0, g = 0;
  if (FiniteNumber(target.value, &t) && FiniteNumber(golden.value, &g)) {
    const bool floats = target.type == "float" || golden.type == "float";
    const Rounding& r = RoundingOf(floats ? ElementType("float") : ElementType());
    const double severity = Disagreement(t, g, std::max(std::abs(t), std::abs(g)), r);
    if (severity == 0) return Settle(m, RowVerdict::kEqual, Reason::kNone, 0);  // 1 and 1.0
    if (severity <= options.limits.Explained(r)) {
      return Settle(m, RowVerdict::kNoise, Reason::kNone, severity);
    }
    return Settle(m, RowVerdict::kDiffers, Reason::kValueDiffers, severity);
  }
  if (IsNaNText(target.value) && IsNaNText(golden.value)) {
    return Settle(m, RowVerdict::kUnknown, Reason::kBothNaN, Measure().severity);
  }
  Settle(m, RowVerdict::kDiffers, Reason::kValueDiffers, kInf);
}

bool HaveFingerprints(const Leaf& target, const Leaf& golden) {
  return !target.fingerprint.empty() && !golden.fingerprint.empty() && target.dtype == golden.dtype;
}

bool HaveChecksums(const Leaf& target, const Leaf& golden) {
  return Recorded(target.checksum) && Recorded(golden.checksum) &&
         ComparableChecksums(target, golden);
}

bool AreBitEqual(const Leaf& target, const Leaf& golden) {
  return (HaveFingerprints(target, golden) && target.fingerprint == golden.fingerprint) ||
         (HaveChecksums(target, golden) && target.checksum == golden.checksum &&
          target.dtype == golden.dtype);
}

}  // namespace

Differences DifferencesOf(const Leaf& target, const Leaf& golden) {
  Differences d;
  if (target.kind != golden.kind || target.kind == LeafKind::kNone) return d;
  if (target.kind == LeafKind::kScalar) {
    double t = 0, g = 0;
    if (FiniteNumber(target.value, &t) && FiniteNumber(golden.value, &g)) {
      for (const int i : {kMax, kMin, kMean, kNorm}) SetDifference(i, t, g, &d);
    }
    return d;
  }
  if (!target.shape.SameWithoutOnes(golden.shape) || target.shape.elements() == 0) return d;
  if (KindsDiffer(target, golden)) return d;
  const Quartet t = QuartetOf(target), g = QuartetOf(golden);
  for (const int i : {kMax, kMin, kMean, kNorm}) {
    if (Recorded(t.text[i]) && Recorded(g.text[i])) {
      SetDifference(i, t.value[i], g.value[i], &d);
    }
  }
  return d;
}

void JudgeLeaves(const Leaf& target, const Leaf& golden, Mode mode, const JudgeOptions& options,
                 Measure* m) {
  if (target.kind == LeafKind::kNone && golden.kind == LeafKind::kNone) {
    return Settle(m, RowVerdict::kUnknown, Reason::kNothingRecorded, Measure().severity);
  }
  if (target.kind == LeafKind::kNone || golden.kind == LeafKind::kNone) {
    return Settle(m, RowVerdict::kUnknown, Reason::kNoCommonNumber, Measure().severity);
  }
  if (target.kind != golden.kind)
    return Settle(m, RowVerdict::kDiffers, Reason::kKindDiffers, kInf);
  if (target.kind == LeafKind::kScalar) return JudgeScalars(target, golden, options, m);

  if (!target.shape.SameWithoutOnes(golden.shape)) {
    return Settle(m, RowVerdict::kDiffers, Reason::kShapeDiffers, kInf);
  }
  if (KindsDiffer(target, golden))
    return Settle(m, RowVerdict::kDiffers, Reason::kKindDiffers, kInf);
  if (target.shape.elements() == 0) return Settle(m, RowVerdict::kEqual, Reason::kEmpty, 0);

  const bool fingerprints = HaveFingerprints(target, golden);
  const bool checksums = HaveChecksums(target, golden);
  const bool bit_equal = AreBitEqual(target, golden);
  const bool other_bits = (fingerprints || checksums) && target.dtype == golden.dtype;
  // The statistics give the severity, also where the digests below decide the verdict.
  JudgeStatistics(target, golden, options, other_bits, m);
  if (bit_equal) {
    Settle(m, RowVerdict::kEqual, Reason::kNone, 0);
  } else if (mode == Mode::kChecksum) {
    if (!checksums && !fingerprints) {
      Settle(m, RowVerdict::kUnknown, Reason::kNoCommonNumber, Measure().severity);
    } else {
      m->verdict = RowVerdict::kDiffers;
      if (m->reason != Reason::kNonFinite) m->reason = Reason::kChecksumDiffers;
    }
  } else if (m->reason == Reason::kNoCommonNumber && other_bits) {
    Settle(m, RowVerdict::kDiffers, Reason::kChecksumDiffers, Measure().severity);
  }
}

namespace {

// Whether the element with the largest error is none of the extremes. It may be the largest of the
// others, whose value was written with the digits of its own dtype.
bool IsBelow(const kernels::Diff& d, const LeafRest& rest, const Rounding& r) {
  const double digits = r.epsilon * std::max(std::abs(rest.max), std::abs(rest.min));
  return d.worst_golden <= rest.max + digits && d.worst_golden >= rest.min - digits;
}

}  // namespace

void JudgeDiff(const kernels::Diff& d, const Leaf& target, const Leaf& golden,
               const JudgeOptions& options, Measure* m) {
  const Rounding r = RoundingFor(target, golden, options);
  const Reason dtype = DTypeReason(target, golden, r);
  if (d.nonfinite_mismatch > 0) return Settle(m, RowVerdict::kDiffers, Reason::kNonFinite, kInf);
  if (d.count == 0) return Settle(m, RowVerdict::kEqual, Reason::kEmpty, 0);
  const int64_t finite = d.count - d.nonfinite_target;
  if (d.unequal == 0) {
    // NaN in the same places on both sides: the finite elements agree, and of the NaN nothing is
    // known, unless all bits are the same.
    const bool only_infinities = target.counts->nan == 0 && golden.counts->nan == 0;
    if (d.nonfinite_target > 0 && !only_infinities && !AreBitEqual(target, golden))
      return Settle(m, RowVerdict::kUnknown, Reason::kBothNaN, Measure().severity);
    return Settle(m, RowVerdict::kEqual, dtype, 0);
  }
  // A mask of truth values beside one of numbers that are added.
  if (KindsDiffer(target, golden))
    return Settle(m, RowVerdict::kDiffers, Reason::kKindDiffers, kInf);
  // The norm of the golden, which Diff does not have: |T - G| / (|T - G| / |G|).
  const double norm =
      d.relative_l2 > 0 && std::isfinite(d.relative_l2) ? d.euclidean / d.relative_l2 : 0;
  const double summed = finite > 0 ? options.magnitude * std::sqrt(static_cast<double>(finite)) : 0;
  // The largest absolute value of the golden. When its statistics were not recorded, two numbers
  // that are never larger stand for it: the worst element and the root of the mean square.
  double scale = std::max(std::abs(d.worst_golden),
                          finite > 0 ? norm / std::sqrt(static_cast<double>(finite)) : 0);
  double size = norm;
  if (const LeafRest* rest = options.golden_rest; rest != nullptr && IsBelow(d, *rest, r)) {
    // The largest error is one of an ordinary element: extremes such as -1e9 are no scale for it.
    scale = std::max({std::abs(rest->max), std::abs(rest->min), options.magnitude});
    size = rest->norm;
  } else {
    for (const double v : {golden.max_value, golden.min_value, options.magnitude}) {
      if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
    }
  }
  double severity = Disagreement(d.max_abs_error, 0, scale, r);
  if (!(r.epsilon == 0) && d.euclidean > 0) {
    severity = std::max(severity, Disagreement(d.euclidean, 0, std::max(size, summed), r));
  }
  const double limit = options.limits.Explained(r, options.terms);
  Settle(m, severity <= limit ? RowVerdict::kNoise : RowVerdict::kDiffers, dtype, severity);
}

bool IsNeutral(const Measure& m) {
  return m.verdict == RowVerdict::kUnknown &&
         (m.reason == Reason::kNothingRecorded || m.reason == Reason::kUninitialised ||
          m.reason == Reason::kOverwritten || m.reason == Reason::kOtherForm ||
          m.reason == Reason::kOneFramework || m.reason == Reason::kOneRecorded ||
          m.reason == Reason::kRewritten || m.reason == Reason::kWithoutEffect ||
          m.reason == Reason::kTooWide || m.reason == Reason::kDevice ||
          m.reason == Reason::kGradientOrder || m.reason == Reason::kDTypeDiffers);
}

Message ReasonText(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return {};
    case Reason::kGradientOrder:
      return "the two tools list these gradients in different orders"_t;
    case Reason::kNoPartner:
      return "recorded on one side only"_t;
    case Reason::kNothingRecorded:
      return "nothing recorded on either side"_t;
    case Reason::kEmpty:
      return "no elements"_t;
    case Reason::kNoCommonNumber:
      return "no statistic, checksum or file that both sides have"_t;
    case Reason::kBothNaN:
      return "NaN on both sides: says nothing about the elements"_t;
    case Reason::kUninitialised:
      return "memory that nobody wrote"_t;
    case Reason::kOtherForm:
      return "passed in another form, and the results agree"_t;
    case Reason::kOneRecorded:
      return "recorded by one of the two tools only"_t;
    case Reason::kRewritten:
      return "computed by other operations, and the results agree"_t;
    case Reason::kWithoutEffect:
      return "differs, and no result of the step depends on it"_t;
    case Reason::kTooWide:
      return "rounding explains it, and would explain so much that nothing is proven"_t;
    case Reason::kOneFramework:
      return "only one of the two frameworks records it"_t;
    case Reason::kTransposed:
      return "compared with the golden's matrix transposed"_t;
    case Reason::kOverwritten:
      return "the old content of memory that the call overwrites"_t;
    case Reason::kNoFile:
      return "a tensor file is missing"_t;
    case Reason::kBadFile:
      return "a tensor file cannot be read"_t;
    case Reason::kKindDiffers:
      return "different kinds of value"_t;
    case Reason::kShapeDiffers:
      return "different shapes"_t;
    case Reason::kValueDiffers:
      return "the argument itself differs"_t;
    case Reason::kNonFinite:
      return "NaN or infinity on one side only, or of another sign"_t;
    case Reason::kExtremes:
      return "another number of extremes, such as masked elements"_t;
    case Reason::kChecksumDiffers:
      return "different checksums"_t;
    case Reason::kOtherBits:
      return "same statistics, other bits: rounded or reordered elements"_t;
    case Reason::kCoarserBefore:
      return "judged by a coarser dtype, in which values before it were computed"_t;
    case Reason::kMoved:
      return "other elements: the operation only moves elements, and its inputs are bit-equal"_t;
    case Reason::kEnlarged:
      return "this kind of operation enlarges the rounding of its inputs"_t;
    case Reason::kOtherElements:
      return "same statistics, other elements: other data, or the same data in another order"_t;
    case Reason::kDTypeDiffers:
      return "different dtypes, judged by the coarser"_t;
    case Reason::kPacked:
      return "each element holds two values on one side only: not compared"_t;
    case Reason::kDevice:
      return "devices, which may differ"_t;
  }
  return {};
}

std::string_view VerdictName(RowVerdict verdict) {
  static constexpr std::string_view kNames[] = {"equal", "noise", "differs", "unknown"};
  return kNames[static_cast<int>(verdict)];
}
std::string_view ClassName(CallClass call_class) {
  static constexpr std::string_view kNames[] = {"equal", "noise", "introduced", "inherited",
                                                "unknown"};
  return kNames[static_cast<int>(call_class)];
}
std::string_view ModeName(Mode mode) {
  static constexpr std::string_view kNames[] = {"statistics", "checksums", "tensors"};
  return kNames[static_cast<int>(mode)];
}

Message WordOf(CallClass call_class) {
  switch (call_class) {
    case CallClass::kEqual:
      return "equal"_t;
    case CallClass::kNoise:
      return "noise"_t;
    case CallClass::kIntroduced:
      return "introduced"_t;
    case CallClass::kInherited:
      return "inherited"_t;
    case CallClass::kUnknown:
      break;
  }
  return "unknown"_t;
}
Message WordOf(Mode mode) {
  switch (mode) {
    case Mode::kChecksum:
      return "checksums"_t;
    case Mode::kTensor:
      return "tensors"_t;
    case Mode::kStatistics:
      break;
  }
  return "statistics"_t;
}

}  // namespace msprobe::compare
