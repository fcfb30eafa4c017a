#include "engine/compare/table/table26_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/value_text.h"

namespace msprobe::compare {
namespace {

// APIs to which no rule applies: their outputs are memory that is not written yet, or a plain copy.
constexpr std::array<std::string_view, 9> kIgnored = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format",
    "numpy", "to",         "__setitem__"};
// APIs that write into a buffer that is passed in: inputs and outputs are the same memory, and the
// rules that compare them do not apply.
constexpr std::array<std::string_view, 4> kOutputInInput = {
    "_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"};

template <size_t kSize>
bool Contains(const std::array<std::string_view, kSize>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string_view SecondPart(std::string_view name) {
  const size_t first = name.find('.');
  if (first == std::string_view::npos) return {};
  return name.substr(first + 1, name.find('.', first + 1) - first - 1);
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Whether the types differ in their spelling only: torch.float32 and Float32 are one dtype.
bool IsSameType(ElementType a, ElementType b) {
  return a == b || (a.dtype() && a.dtype() == b.dtype());
}

bool IsFloating(ElementType type) {
  return type.dtype() && DTypeKindOf(*type.dtype()) == DTypeKind::kFloat;
}

bool IsNonFinite(std::string_view spelled) {
  return spelled == "NaN" || spelled == "Infinity" || spelled == "-Infinity";
}

bool ParseNumber(std::string_view text, double* value) {
  if (text.empty() || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9'))) return false;
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value);
  return parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(*value);
}

// Whether the text names a device ("cuda:0"). A device says nothing about values.
bool IsDevice(std::string_view text) {
  return StartsWith(text, "npu") || StartsWith(text, "cpu") || StartsWith(text, "cuda");
}

class CallJudge26 {
 public:
  CallJudge26(const Comparison& comparison, std::vector<Verdict26>* verdicts)
      : c_(comparison), verdicts_(*verdicts) {}

  void Judge(const RecordPair& pair) {
    const uint32_t last = pair.first_row + pair.row_count;
    bool ignored = false, inputs_tell = true;
    const Record* record = pair.target >= 0   ? &c_.target.records[pair.target]
                           : pair.golden >= 0 ? &c_.golden.records[pair.golden]
                                              : nullptr;
    if (record != nullptr && !record->is_module) {
      const std::string_view api = SecondPart(record->name);
      ignored = Contains(kIgnored, api);
      inputs_tell = !Contains(kOutputInInput, api);
    }
    if (!ignored) {
      for (uint32_t row = pair.first_row; row < last; ++row) JudgeRow(row);
      if (inputs_tell && c_.mode == Mode::kStatistics) JudgeNorms(pair.first_row, last);
      if (inputs_tell && c_.mode == Mode::kTensor) JudgeTensors(pair.first_row, last);
    }
    for (uint32_t row = pair.first_row; row < last; ++row) Conclude(row);
  }

 private:
  bool Paired(uint32_t row) const { return c_.rows[row].target >= 0 && c_.rows[row].golden >= 0; }
  const Leaf& Target(uint32_t row) const { return c_.target.leaves[c_.rows[row].target]; }
  const Leaf& Golden(uint32_t row) const { return c_.golden.leaves[c_.rows[row].golden]; }
  const Thresholds::Rules26& Of(uint32_t row) {
    const Leaf& leaf = Target(row);
    const std::string_view api = c_.target.records[leaf.record].api;
    return c_.Thresholds().For(api, leaf.dtype, &scratch_).rules26;
  }
  void Fire(uint32_t row, Rule26 rule) {
    verdicts_[row].rules |= static_cast<uint16_t>(1u << static_cast<int>(rule));
  }

  void JudgeRow(uint32_t row) {
    if (c_.mode == Mode::kChecksum) return JudgeChecksum(row);
    if (!Paired(row)) return;
    const Leaf& target = Target(row);
    const Leaf& golden = Golden(row);
    if ((IsNonFinite(target.max) || IsNonFinite(target.min)) && !IsNonFinite(golden.max) &&
        !IsNonFinite(golden.min)) {
      Fire(row, Rule26::kNonFinite);
    }
    if (c_.measures[row].reason == Reason::kNonFinite && target.max.empty() && golden.max.empty())
      Fire(row, Rule26::kOneSided);
    if (target.requires_grad != golden.requires_grad && !target.requires_grad.empty() &&
        !golden.requires_grad.empty()) {
      Fire(row, Rule26::kRequiresGrad);
    }
    if (target.slot != Slot::kOutput && target.kind == LeafKind::kScalar &&
        golden.kind == LeafKind::kScalar && target.shape.is_scalar() &&
        target.dtype.names_class() && target.max != golden.max) {
      Fire(row, Rule26::kScalar);
    }
    if (!IsSameType(target.dtype, golden.dtype)) {
      const bool floats = IsFloating(target.dtype) && IsFloating(golden.dtype);
      Fire(row, floats ? Rule26::kDtypePrecision : Rule26::kDtype);
    }
    if (target.shape != golden.shape) Fire(row, Rule26::kShape);
  }

  void JudgeChecksum(uint32_t row) {
    const std::string target = c_.rows[row].target >= 0 ? ChecksumText(Target(row)) : "";
    const std::string golden = c_.rows[row].golden >= 0 ? ChecksumText(Golden(row)) : "";
    if (target == golden) return;
    Fire(row, target.empty() || golden.empty() ? Rule26::kChecksumMissing : Rule26::kChecksum);
  }

  // The rules on relative differences of the norm. A scalar among the inputs counts with its value.
  void JudgeNorms(uint32_t first, uint32_t last) {
    double worst_input = 0, worst_output = 0;
    uint32_t worst_row = last;
    for (uint32_t row = first; row < last; ++row) {
      if (!Paired(row)) continue;
      const StatisticPair norm = CompareStatistic(Target(row).norm, Golden(row).norm);
      if (norm.kind != StatisticPair::Kind::kNumbers || std::isinf(norm.relative)) continue;
      if (Target(row).slot != Slot::kOutput) {
        worst_input = std::max(worst_input, norm.relative);
      } else if (norm.relative > worst_output) {
        worst_output = norm.relative;
        worst_row = row;
      }
    }
    if (worst_row != last) {
      const Thresholds::Rules26& t = Of(worst_row);
      const double limit = worst_input == 0 ? t.norm_from_zero : t.norm_factor * worst_input;
      if (worst_output > limit) Fire(worst_row, Rule26::kTenTimes);
    }
    for (uint32_t row = first; row < last; ++row) {
      if (!Paired(row) || Target(row).slot != Slot::kOutput) continue;
      const Thresholds::Rules26& t = Of(row);
      if (!(worst_input < t.input_norm)) continue;
      const StatisticPair norm = CompareStatistic(Target(row).norm, Golden(row).norm);
      const bool infinite =
          norm.kind == StatisticPair::Kind::kPosInf || norm.kind == StatisticPair::Kind::kNegInf;
      if (infinite ||
          (norm.kind == StatisticPair::Kind::kNumbers && norm.relative > t.output_norm)) {
        Fire(row, Rule26::kNormRelative);
      }
    }
  }

  void JudgeTensors(uint32_t first, uint32_t last) {
    double input_ratio = 1, output_ratio = 1, input_cosine = 1, output_cosine = 1;
    uint32_t ratio_row = last, cosine_row = last;
    for (uint32_t row = first; row < last; ++row) {
      const kernels::Diff* diff = c_.DiffOf(row);
      if (diff == nullptr || diff->nonfinite_mismatch > 0 || diff->count <= 1) continue;
      if (Target(row).slot != Slot::kOutput) {
        input_ratio = std::min(input_ratio, diff->ratio_within_1e3);
        if (diff->cosine < input_cosine) input_cosine = diff->cosine;
      } else {
        if (diff->ratio_within_1e3 < output_ratio) {
          output_ratio = diff->ratio_within_1e3;
          ratio_row = row;
        }
        if (diff->cosine < output_cosine) {
          output_cosine = diff->cosine;
          cosine_row = row;
        }
      }
    }
    if (ratio_row != last && input_ratio > Of(ratio_row).input_thousandth &&
        output_ratio < Of(ratio_row).output_thousandth) {
      Fire(ratio_row, Rule26::kThousandth);
    }
    if (cosine_row != last && input_cosine > Of(cosine_row).input_cosine &&
        input_cosine - output_cosine > Of(cosine_row).cosine_drop) {
      Fire(cosine_row, Rule26::kCosine);
    }
  }

  void Conclude(uint32_t row) {
    Verdict26& verdict = verdicts_[row];
    for (int rule = 0; rule < kRule26Count; ++rule) {
      if (!verdict.Has(static_cast<Rule26>(rule))) continue;
      const Result26 result =
          IsErrorRule(static_cast<Rule26>(rule)) ? Result26::kError : Result26::kWarning;
      verdict.result = std::max(verdict.result, result);
    }
    if (verdict.result != Result26::kPass) return;
    if (!Paired(row)) {
      verdict.result = Result26::kUnmatched;
    } else if (c_.measures[row].verdict == RowVerdict::kUnknown && !IsNeutral(c_.measures[row])) {
      verdict.result = Result26::kUnknown;
    }
  }

  const Comparison& c_;
  std::vector<Verdict26>& verdicts_;
  Thresholds scratch_;
};

}  // namespace

std::string_view Result26Name(Result26 result) {
  switch (result) {
    case Result26::kPass:
      return "pass";
    case Result26::kUnmatched:
      return "unmatched";
    case Result26::kUnknown:
      return "unknown";
    case Result26::kWarning:
      return "warning";
    case Result26::kError:
      return "error";
  }
  return "";
}

bool IsErrorRule(Rule26 rule) { return rule < Rule26::kTenTimes; }

std::string Rule26Message(Rule26 rule, const Thresholds& thresholds) {
  const Thresholds::Rules26& t = thresholds.rules26;
  switch (rule) {
    case Rule26::kNonFinite:
      return "error: There is nan/inf/-inf in the maximum or minimum value of NPU.";
    case Rule26::kThousandth:
      return fmt::format(
          "error: The input/parameters of One Thousandth Err Ratio > {:g} while the output < {:g}.",
          t.input_thousandth, t.output_thousandth);
    case Rule26::kNormRelative:
      return fmt::format("error: The NormRelativeErr of output is greater than {:g}.",
                         t.output_norm);
    case Rule26::kRequiresGrad:
      return "error: The Required_Grad of NPU and Bench are inconsistent";
    case Rule26::kScalar:
      return "error: The scalar parameters of NPU and Bench are inconsistent.";
    case Rule26::kDtype:
      return "error: The dtype of NPU and Bench are inconsistent.";
    case Rule26::kShape:
      return "error: The shape of NPU and Bench are inconsistent.";
    case Rule26::kChecksum:
      return "error: The CRC-32 value of NPU differs from that of the bench.";
    case Rule26::kOneSided:
      return "error: There is nan/inf/-inf on one side only, or of another sign.";
    case Rule26::kTenTimes:
      return fmt::format("warning: The norm relative error of output is {:g} times that of input.",
                         t.norm_factor);
    case Rule26::kCosine:
      return fmt::format(
          "warning: The input/parameters of Cosine > {:g}, and input/parameters - output > {:g}",
          t.input_cosine, t.cosine_drop);
    case Rule26::kDtypePrecision:
      return "warning: The dtype of NPU and Bench are of different precision.";
    case Rule26::kChecksumMissing:
      return "warning: The parameter of NPU does not match the bench.";
  }
  return "";
}

std::vector<Verdict26> JudgeByRules26(const Comparison& comparison) {
  std::vector<Verdict26> verdicts(comparison.rows.size());
  constexpr size_t kPairsPerChunk = 1024;
  const size_t pairs = comparison.pairs.size();
  PageRelease pages(comparison.target, comparison.golden);
  ThreadPool::Default().ParallelFor(
      (pairs + kPairsPerChunk - 1) / kPairsPerChunk, [&](size_t chunk) {
        CallJudge26 judge(comparison, &verdicts);
        const size_t last = std::min(pairs, (chunk + 1) * kPairsPerChunk);
        const RecordPair &from = comparison.pairs[chunk * kPairsPerChunk],
                         &to = comparison.pairs[last - 1];
        pages.RowsDone(to.first_row + to.row_count - from.first_row);
        for (size_t i = chunk * kPairsPerChunk; i < last; ++i) judge.Judge(comparison.pairs[i]);
      });
  return verdicts;
}

void AppendReason(std::string* out, const Comparison& comparison, size_t row) {
  const std::string reason = ReasonText(comparison.measures[row].reason).English();
  *out += reason;
  if (comparison.notes.empty() || comparison.notes[row].empty()) return;
  if (!reason.empty()) *out += ": ";
  *out += comparison.notes[row].English();
}

void AppendErrMessage(std::string* out, const Comparison& comparison, size_t row,
                      const Verdict26& verdict) {
  *out += '[';
  const size_t start = out->size();
  const auto separate = [&] {
    if (out->size() != start) *out += ", ";
  };
  const Row& r = comparison.rows[row];
  Thresholds scratch;
  const Leaf* leaf = r.target >= 0 ? &comparison.target.leaves[r.target] : nullptr;
  const Thresholds& thresholds =
      leaf == nullptr ? comparison.Thresholds().base()
                      : comparison.Thresholds().For(comparison.target.records[leaf->record].api,
                                                    leaf->dtype, &scratch);
  for (int rule = 0; rule < kRule26Count; ++rule) {
    if (!verdict.Has(static_cast<Rule26>(rule))) continue;
    separate();
    AppendJsonString(out, Rule26Message(static_cast<Rule26>(rule), thresholds));
  }
  if (r.golden < 0 || r.target < 0) {
    separate();
    *out += r.golden < 0 ? "\"unmatched: only NPU has this parameter.\""
                         : "\"unmatched: only the bench has this parameter.\"";
  } else if (comparison.measures[row].verdict == RowVerdict::kUnknown &&
             !IsNeutral(comparison.measures[row])) {
    separate();
    std::string text = "unknown: ";
    AppendReason(&text, comparison, row);
    AppendJsonString(out, text);
  }
  *out += ']';
}

StatisticPair CompareStatistic(std::string_view target, std::string_view golden) {
  using Kind = StatisticPair::Kind;
  // NaN never equals NaN. Other texts are equal when they are spelled the same.
  if (target == "NaN" || golden == "NaN") {
    const std::string_view other = target == "NaN" ? golden : target;
    double number;
    const bool numeric = IsNonFinite(other) || ParseNumber(other, &number);
    return {other.empty() ? Kind::kAbsent : numeric ? Kind::kNan : Kind::kText};
  }
  if (target == golden) return {Kind::kSame};
  if (target.empty() || golden.empty()) return {Kind::kAbsent};
  double a, b;
  const bool a_number = ParseNumber(target, &a), b_number = ParseNumber(golden, &b);
  if (a_number && b_number) {
    const double diff = a - b;
    const double relative = diff == 0 ? 0
                            : b == 0  ? std::numeric_limits<double>::infinity()
                                      : std::fabs(diff / b);
    return {Kind::kNumbers, diff, relative};
  }
  const bool a_infinite = IsNonFinite(target), b_infinite = IsNonFinite(golden);
  if (a_infinite && (b_infinite || b_number)) {
    return {target[0] == '-' ? Kind::kNegInf : Kind::kPosInf};
  }
  if (b_infinite && a_number) return {golden[0] == '-' ? Kind::kPosInf : Kind::kNegInf};
  if (IsDevice(target) && IsDevice(golden)) return {Kind::kAbsent};
  return {Kind::kText};
}

}  // namespace msprobe::compare
