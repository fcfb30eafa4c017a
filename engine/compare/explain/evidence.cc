#include "engine/compare/explain/evidence.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_text.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// An operation that enlarges rounding by its nature may make the relative error of its inputs so
// many times as large.
constexpr double kNaturalAmplification = 100;
// Roundings by which a plain argument that is a number is another one, and no rounded one.
constexpr double kOtherArgument = 1e4;

const Leaf& LeafOf(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return r.target >= 0 ? c.target.leaves[r.target] : c.golden.leaves[r.golden];
}

Message Percent(double relative) {
  if (!(relative < 100)) return "{} times"_t(ShortNumber(relative));
  return std::string(ShortNumber(100 * relative) + "%");
}

std::string_view KindText(const Leaf& leaf) {
  if (leaf.kind == LeafKind::kNone) return "None";
  return leaf.dtype.empty() ? leaf.type.view() : leaf.dtype.view();
}

// The non-finite elements of a leaf: "3 NaN, 1 +Inf". When they were not counted, only what maximum
// and minimum show: "NaN".
Message NonFinite(const Leaf& leaf) {
  std::vector<Message> counted;
  const auto add = [&](int64_t n, std::string_view what) {
    if (n > 0) counted.emplace_back(fmt::format("{} {}", n, what));
  };
  add(leaf.counts->nan, "NaN");
  add(leaf.counts->pos_inf, "+Inf");
  add(leaf.counts->neg_inf, "-Inf");
  if (!counted.empty()) return Message::Joined(std::move(counted), ", ");
  const double values[] = {leaf.max_value, leaf.min_value, leaf.mean_value, leaf.norm_value};
  if (leaf.has_stats && std::any_of(values, values + 2, [](double v) { return std::isnan(v); }))
    return std::string("NaN");
  for (const double v : values) {
    if (std::isinf(v)) return std::string(v > 0 ? "+Inf" : "-Inf");
  }
  return "finite"_t;
}

}  // namespace

std::string ShortNumber(double value) {
  if (std::isnan(value)) return "unknown";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e5 || size < 1e-3)) return fmt::format("{:.1e}", value);
  if (size >= 10) return fmt::format("{:.0f}", value);
  return fmt::format("{:.2g}", value);
}

const Record& RecordOf(const Comparison& c, int32_t pair) {
  const RecordPair& p = c.pairs[pair];
  return p.target >= 0 ? c.target.records[p.target] : c.golden.records[p.golden];
}

std::string_view EntryName(const Comparison& c, int32_t pair) { return RecordOf(c, pair).name; }

std::string ModuleAround(const Comparison& c, int32_t p) {
  if (RecordOf(c, p).is_module) return "";
  const auto around = [](const Dump& dump, int32_t record) {
    if (record < 0) return std::string();
    const Record& r = dump.records[record];
    return ModuleForPeople(r.parent.empty() ? r.module : r.parent);
  };
  std::string text = around(c.target, c.pairs[p].target);
  if (text.empty()) text = around(c.golden, c.pairs[p].golden);
  const bool has_forward = p < static_cast<int32_t>(c.forward_of.size()) && c.forward_of[p] >= 0;
  return text.empty() && has_forward ? ModuleAround(c, c.forward_of[p]) : text;
}

int32_t UnwrittenInput(const Comparison& c, int32_t pair) {
  const RecordPair& p = c.pairs[pair];
  for (uint32_t i = p.first_row; i < p.first_row + p.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target >= 0 && row.golden >= 0 && c.measures[i].reason == Reason::kUninitialised &&
        c.target.leaves[row.target].slot != Slot::kOutput)
      return static_cast<int32_t>(i);
  }
  return -1;
}

namespace {

// For each pair before `pair`: whether it ran inside that call, which is recorded behind it.
std::vector<char> CallsInside(const Comparison& c, int32_t pair) {
  std::vector<char> inside(pair, 0);
  if (!RecordOf(c, pair).is_module) return inside;
  std::unordered_set<std::string_view> modules{RecordOf(c, pair).name.view()};
  for (int32_t p = pair - 1; p >= 0; --p) {
    const Record& record = RecordOf(c, p);
    inside[p] = modules.contains(record.parent.view());
    if (inside[p] && record.is_module) modules.insert(record.name.view());
  }
  return inside;
}

// A gradient is recorded when it is complete, before the backward call that makes it: what is wrong
// with it is no error before the call, and gradients of older dumps stand in the forward pass.
bool IsGradientOf(const Comparison& c, int32_t gradient, int32_t pair) {
  return RecordOf(c, gradient).direction == Direction::kParameterGrad &&
         !IsOptimizerCall(RecordOf(c, pair).api) &&
         RecordOf(c, pair).direction != Direction::kParameterGrad;
}

}  // namespace

EarlierCalls CountEarlierCalls(const Comparison& c, int32_t pair) {
  EarlierCalls b;
  const std::vector<char> inside = CallsInside(c, pair);
  for (int32_t p = 0; p < pair; ++p) {
    switch (c.classes[p]) {
      case CallClass::kEqual:
        ++b.equal;
        break;
      case CallClass::kNoise:
        ++b.noise;
        break;
      case CallClass::kIntroduced:
      case CallClass::kInherited:
        b.diverged += !inside[p] && !IsGradientOf(c, p, pair);
        break;
      case CallClass::kUnknown:
        b.unjudged += !c.IsRewritten(p);
        break;
    }
    if (c.classes[p] != CallClass::kNoise) continue;
    const RecordPair& r = c.pairs[p];
    for (uint32_t i = r.first_row; i < r.first_row + r.row_count; ++i) {
      const Measure& m = c.measures[i];
      if (m.verdict == RowVerdict::kNoise && std::isfinite(m.severity)) {
        b.largest_noise = std::max(b.largest_noise, m.severity);
      }
    }
  }
  return b;
}

double ExplainedFor(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  if (r.target < 0 || r.golden < 0) return 1;
  const Record& made = c.golden.records[c.golden.leaves[r.golden].record];
  const double limit =
      Limits(c, made.api)
          .Explained(RoundingOfRow(c, row), SummedTerms(OperationsOf(c), c.golden, made));
  return limit > 0 ? limit : 1;
}

double JumpOf(const CallSummary& call) {
  if (call.in.severity <= 0) return kInf;
  return call.out.severity / std::max(call.in.severity, 1.0);
}

namespace {

// Then the rounding of the inputs is not what the result differs by.
bool TakesAnotherArgument(const Comparison& c, int32_t pair, const CallSummary& call) {
  const SideSummary& arguments = call.arguments;
  const bool is_text = arguments.severity == 0;  // or a flag: its size is not known
  const double scale = Limits(c, RecordOf(c, pair).api).Scale(RoundingOf("float"));
  return arguments.differs && (is_text || arguments.severity >= kOtherArgument * scale);
}

}  // namespace

double ConfidenceOf(const Comparison& c, int32_t pair, const CallSummary& call,
                    const EarlierCalls& before) {
  double confidence = c.pairs[pair].confidence;
  const bool inputs_known = call.in.any() || call.arguments.any();
  if (!inputs_known || call.in.unknown) {
    confidence *= 0.4;
  } else if (call.in.noise && !TakesAnotherArgument(c, pair, call)) {
    const double natural =
        AmplifiesRounding(OperationsOf(c), RecordOf(c, pair).api) ? kNaturalAmplification : 1;
    const double jump = JumpOf(call) / natural;
    confidence *= 0.9 * std::max(0.1, 1 - 1 / std::max(jump, 1.0));
  }
  const bool argument_only = call.arguments.differs && !call.out.differs;
  const bool by_size = !argument_only && c.exact.empty();
  if (by_size && call.out.worst_row >= 0 && std::isfinite(call.out.severity)) {
    const double size = call.out.severity / ExplainedFor(c, call.out.worst_row);
    // A severity of 0: only checksums were compared, and the size of the error is not known.
    confidence *= call.out.severity > 0 ? 1 - 0.5 / std::max(size, 1.0) : 1;
  }
  return confidence * before.JudgedFactor();
}

Message EqualWord(const Comparison& c) {
  if (c.mode != Mode::kStatistics) return "bit-equal"_t;
  const auto bits = [](const Dump& dump) {
    for (const Leaf& leaf : dump.leaves) {
      if (leaf.kind == LeafKind::kTensor)
        return !leaf.fingerprint.empty() || !leaf.checksum.empty();
    }
    return false;
  };
  return bits(c.target) && bits(c.golden) ? "bit-equal"_t : "equal"_t;
}

Message DescribeEarlierCalls(const Comparison& c, const EarlierCalls& b) {
  if (b.total() == 0) return "it is the first recorded call"_t;
  const auto is = [](int64_t n, const Message& what) {
    return n == 1 ? "1 call before it is {}"_t(what) : "{} calls before it are {}"_t(n, what);
  };
  // The first number says of what it is.
  std::vector<Message> parts;
  if (b.equal > 0) parts.push_back(is(b.equal, EqualWord(c)));
  const bool noise_is_first = parts.empty();
  if (b.noise > 0 && b.largest_noise > 0) {
    const std::string largest = ShortNumber(b.largest_noise);
    parts.push_back(noise_is_first
                        ? is(b.noise, "within rounding (largest {} roundings)"_t(largest))
                        : "{} within rounding (largest {} roundings)"_t(b.noise, largest));
  } else if (b.noise > 0) {  // digests of parts of a batch may differ where no statistic does
    parts.push_back(noise_is_first ? is(b.noise, "within rounding"_t)
                                   : "{} within rounding"_t(b.noise));
  }
  if (b.diverged > 0 && parts.empty()) {
    parts.push_back(b.diverged == 1 ? "1 call before it differs as well"_t
                                    : "{} calls before it differ as well"_t(b.diverged));
  } else if (b.diverged > 0) {
    parts.push_back(b.diverged == 1 ? "1 differs as well"_t : "{} differ as well"_t(b.diverged));
  }
  if (b.unjudged > 0 && parts.empty()) {
    parts.push_back(b.unjudged == 1 ? "1 call before it could not be judged"_t
                                    : "{} calls before it could not be judged"_t(b.unjudged));
  } else if (b.unjudged > 0) {
    parts.push_back("{} could not be judged"_t(b.unjudged));
  }
  return Message::Joined(std::move(parts), ", ");
}

// A number is printed as it is. Other text of a dump is shortened and made printable.
std::string PlainValue(const Leaf& leaf) {
  constexpr size_t kLongestNumber = 40;
  return leaf.has_stats && leaf.value.size() <= kLongestNumber ? std::string(leaf.value)
                                                               : Excerpt(leaf.value);
}

Message DescribeError(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  const Measure& m = c.measures[row];
  const Message label = LeafLabel(c, row);
  if (r.target < 0 || r.golden < 0) {
    const Leaf& leaf = LeafOf(c, row);
    if (leaf.kind != LeafKind::kScalar) return "{} is recorded on one side only"_t(label);
    return r.target >= 0
               ? "{} is {} in the target, and not given in the golden"_t(label, PlainValue(leaf))
               : "{} is {} in the golden, and not given in the target"_t(label, PlainValue(leaf));
  }
  const Leaf &t = c.target.leaves[r.target], &g = c.golden.leaves[r.golden];
  switch (m.reason) {
    case Reason::kShapeDiffers:
      return "{} has shape {} in the target, {} in the golden"_t(label, t.shape.view(),
                                                                 g.shape.view());
    case Reason::kWithoutEffect:
      if (t.kind != LeafKind::kScalar || g.kind != LeafKind::kScalar) break;
      [[fallthrough]];
    case Reason::kValueDiffers:
      return "{} is {} in the target, {} in the golden"_t(label, PlainValue(t), PlainValue(g));
    case Reason::kKindDiffers:
      return "{} is {} in the target, {} in the golden"_t(label, KindText(t), KindText(g));
    case Reason::kOtherElements:
      return "{} has the same statistics, and other elements"_t(label);
    case Reason::kMoved:
      return "{} holds other elements, although the operation only moves elements"_t(label);
    case Reason::kNonFinite:
      return "{} has {} in the target, {} in the golden"_t(label, NonFinite(t), NonFinite(g));
    default:
      break;
  }
  if (m.verdict == RowVerdict::kUnknown)
    return Message::Joined({label, ReasonText(m.reason)}, ": ");
  if (m.verdict == RowVerdict::kEqual)
    return EqualWord(c) == "equal" ? "{} is equal"_t(label) : "{} is bit-equal"_t(label);
  if (m.severity == 0 && t.fingerprint != g.fingerprint)
    return "{} has the same statistics, and other bits"_t(label);
  if (m.tensor >= 0) {
    const kernels::Diff& d = c.diffs[m.tensor];
    return "{} has relative L2 error {}"_t(label, ShortNumber(d.relative_l2));
  }
  if (m.reason == Reason::kChecksumDiffers && !(m.severity > 0))
    return "{} has another checksum"_t(label);
  // The statistic with the largest relative difference is named.
  struct Candidate {
    double relative, diff;
    Message name;
    bool is_mean = false;
  };
  const Differences d = DifferencesOf(t, g);
  const Candidate all[] = {{d.norm_rel, d.norm_diff, "norm"_t},
                           {d.max_rel, d.max_diff, "maximum"_t},
                           {d.min_rel, d.min_diff, "minimum"_t},
                           {d.mean_rel, d.mean_diff, "mean"_t, true}};
  const Candidate* worst = nullptr;
  for (const Candidate& s : all) {
    if (std::isnan(s.relative) || s.diff == 0) continue;
    // A mean is often near zero, and its relative difference then says nothing: it is named only
    // when no other statistic differs.
    if (worst == nullptr || (!s.is_mean && s.relative > worst->relative)) worst = &s;
  }
  if (worst == nullptr) return "{} differs"_t(label);
  if (std::isinf(worst->relative)) {
    return "{} of {} is {} where the golden's is 0"_t(worst->name, label, ShortNumber(worst->diff));
  }
  return "{} of {} is off by {}"_t(worst->name, label, Percent(worst->relative));
}

Message DescribeRow(const Comparison& c, int32_t row) {
  // A table or a document of an earlier comparison may state a class without a value.
  if (row < 0) return "none of its values is known"_t;
  Message text = DescribeError(c, row);
  const Row& r = c.rows[row];
  const Measure& m = c.measures[row];
  if (r.target < 0 || r.golden < 0 || !(m.severity > 0) || std::isinf(m.severity)) return text;
  if (m.tensor >= 0 && c.diffs[m.tensor].worst_index >= 0) {
    const kernels::Diff& d = c.diffs[m.tensor];
    text = "{}, the largest error {} at {}"_t(
        std::move(text), ShortNumber(d.max_abs_error),
        IndexText(d.worst_index, c.target.leaves[r.target].shape));
  }
  const Rounding rounding = RoundingOfRow(c, row);
  if (rounding.epsilon > 0 && !IsPlain(c, row)) {
    text = "{} ({} roundings of {})"_t(std::move(text), ShortNumber(m.severity), rounding.name);
  }
  return text;
}

}  // namespace msprobe::compare
