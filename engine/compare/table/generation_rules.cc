#include "engine/compare/table/generation_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/base/threads.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/model/value_text.h"
#include "engine/compare/table/table26_rules.h"
#include "engine/dump/tensors/tensor_data.h"

namespace msprobe::compare {
namespace {

using Note = GenerationNote;
using Word = GenerationWord;

bool HasNonFiniteText(const Leaf& leaf) {
  const auto bad = [](std::string_view text) {
    return text == "NaN" || text == "Infinity" || text == "-Infinity";
  };
  return bad(leaf.max) || bad(leaf.min);
}

// What the element-wise comparison reads: bfloat16 and smaller floats become float32.
std::string_view LoadedAs(ElementType type) {
  const Rounding& r = RoundingOf(type);
  const bool kept = type.dtype() == DType::kFloat16 || type.dtype() == DType::kFloat64;
  return r.kind == NumberKind::kFloat && !kept ? RoundingOf(DType::kFloat32).name : r.name;
}

class CallJudge {
 public:
  CallJudge(const Comparison& c, const TableOptions& options,
            std::vector<GenerationVerdict>* verdicts)
      : c_(c),
        options_(options),
        verdicts_(*verdicts),
        first_(options.generation <= Generation::k1),
        columns_of_1_(options.generation <= Generation::k1_2),
        pkl_table_(IsPklTable(options.generation)) {}

  void Judge(const RecordPair& pair) {
    const uint32_t last = pair.first_row + pair.row_count;
    for (uint32_t row = pair.first_row; row < last; ++row) {
      const Row& r = c_.rows[row];
      const Leaf* target = r.target >= 0 ? &c_.target.leaves[r.target] : nullptr;
      const Leaf* golden = r.golden >= 0 ? &c_.golden.leaves[r.golden] : nullptr;
      GenerationVerdict& v = verdicts_[row];
      if (options_.generation == Generation::k8 && c_.mode != Mode::kChecksum) {
        const std::string_view a = target ? target->requires_grad : "",
                               b = golden ? golden->requires_grad : "";
        if (a != b) v.Add(Note::kRequiresGrad);
      }
      switch (c_.mode) {
        case Mode::kTensor:
          v.word = JudgeTensor(row, target, golden, &v);
          break;
        case Mode::kStatistics:
          v.word = JudgeStatistics(row, target, golden, &v);
          break;
        case Mode::kChecksum:
          v.word = JudgeChecksum(row, target, golden);
          break;
      }
    }
    if (options_.generation == Generation::k1_2 && c_.mode == Mode::kChecksum) HideGradients(pair);
    // 1.2 and the older generations color rows always; 1.0 and the older ones do not say why.
    const bool colors = columns_of_1_ || options_.highlight;
    if (colors && c_.mode != Mode::kChecksum) Highlight(pair.first_row, last);
  }

 private:
  // The limits for a row that the target has.
  const Thresholds& Of(uint32_t row) { return ThresholdsOfRow(c_, row, &scratch_); }

  // In tables of checksums, 1.2 finds no partner for the gradients of a module's parameters where
  // one of them differs.
  void HideGradients(const RecordPair& pair) {
    const bool gradients =
        pair.target >= 0 && c_.target.records[pair.target].direction == Direction::kParameterGrad;
    const auto first = verdicts_.begin() + pair.first_row;
    const auto equal = [](const GenerationVerdict& v) { return v.word == Word::kPass; };
    if (!gradients || std::all_of(first, first + pair.row_count, equal)) return;
    std::for_each(first, first + pair.row_count,
                  [](GenerationVerdict& v) { v.word = Word::kAbsent; });
  }

  Word JudgeChecksum(uint32_t row, const Leaf* target, const Leaf* golden) {
    if (target == nullptr || golden == nullptr) return Word::kAbsent;
    if (first_ && (target->checksum.empty() || golden->checksum.empty())) {
      return target->checksum == golden->checksum &&
                     c_.measures[row].verdict != RowVerdict::kDiffers
                 ? Word::kPass
                 : Word::kDifferent;
    }
    if (pkl_table_ && !ComparableChecksums(*target, *golden)) return Word::kNone;
    return ChecksumText(*target) == ChecksumText(*golden) ? Word::kPass : Word::kDifferent;
  }

  // What a difference is divided by. Up to 1.2: the larger absolute value. 8: the absolute value of
  // the larger number, which is the smaller one of two negative numbers. Of -2.48e-9 and -1.24e-9
  // 1.2 takes 2.48e-9, and 8 takes 1.24e-9.
  double WarningScale(const StatisticDifference& pair) const {
    if (options_.generation == Generation::k8) return std::abs(std::max(pair.target, pair.golden));
    return std::max(std::abs(pair.target), std::abs(pair.golden));
  }

  Word JudgeStatistics(uint32_t row, const Leaf* target, const Leaf* golden, GenerationVerdict* v) {
    if (target == nullptr || golden == nullptr) {
      v->Add(Note::kNoGolden);
      return Word::kAbsent;
    }
    if (pkl_table_ && c_.measures[row].reason == Reason::kShapeDiffers) {
      v->Add(Note::kShape);
      return Word::kUnmatched;
    }
    bool warn = c_.measures[row].reason == Reason::kNonFinite, unknown = false;
    for (int i = 0; i < 4 && !warn; ++i) {
      const StatisticDifference pair = SubtractStatistic(target, golden, i, options_.generation);
      if (pair.kind != StatisticDifference::Kind::kNumbers) continue;
      unknown |= pkl_table_ && std::isnan(pair.target) && std::isnan(pair.golden);
      const double scale = WarningScale(pair) + 1e-10;
      const bool one_nan = std::isnan(pair.target) != std::isnan(pair.golden);
      warn = one_nan || std::isinf(pair.diff) ||
             std::abs(pair.diff) / scale > Of(row).rules8.statistics;
    }
    if (!warn) return unknown ? Word::kNone : Word::kNothing;
    v->Add(Note::kDoubleCheck);
    return Word::kWarning;
  }

  // The word for a row that cannot be compared element by element, with the reason as a note;
  // kNothing when it can be compared.
  Word RefuseTensor(uint32_t row, const Leaf* target, const Leaf* golden, GenerationVerdict* v) {
    const Measure& m = c_.measures[row];
    if (target == nullptr || golden == nullptr) {
      const bool tensor = target != nullptr && HasTensorFile(*target) && !columns_of_1_;
      v->Add(tensor ? Note::kNoGoldenCall : Note::kNoGolden);
      if (target != nullptr && !tensor && !columns_of_1_) v->Add(Note::kNoTargetFile);
      return Word::kNone;
    }
    if (m.reason == Reason::kShapeDiffers) {
      v->Add(Note::kShape);
      return Word::kUnmatched;
    }
    const auto has_data = [&](const Leaf& leaf) {
      return pkl_table_ ? dump::HasTensorData(leaf) : HasTensorFile(leaf);
    };
    if (!has_data(*target) || !has_data(*golden)) {
      v->Add(columns_of_1_             ? Note::kNoGolden
             : !HasTensorFile(*target) ? Note::kNoTargetFile
                                       : Note::kNoGoldenFile);
      return Word::kNone;
    }
    if (m.reason == Reason::kEmpty) {
      v->Add(Note::kEmpty);
      return Word::kNone;
    }
    if (c_.DiffOf(row) == nullptr) {
      const bool unreadable = m.reason == Reason::kNoFile || m.reason == Reason::kBadFile;
      if (unreadable) v->Add(Note::kUnreadable);
      return Word::kNone;
    }
    return Word::kNothing;
  }

  Word JudgeTensor(uint32_t row, const Leaf* target, const Leaf* golden, GenerationVerdict* v) {
    // ptdbg_ascend records numbers of Python in the lines of the pkl file and not in tensor files.
    const bool plain = target != nullptr && golden != nullptr &&
                       target->kind == LeafKind::kScalar && golden->kind == LeafKind::kScalar;
    if (pkl_table_ && plain) {
      v->Add(Note::kScalar);
      return Word::kNone;
    }
    const Word refused = RefuseTensor(row, target, golden, v);
    if (refused != Word::kNothing) return refused;
    const kernels::Diff& diff = *c_.DiffOf(row);
    if (options_.generation >= Generation::k1_2 &&
        LoadedAs(target->dtype) != LoadedAs(golden->dtype))
      v->Add(Note::kDtype);
    if (target->shape.is_scalar()) {
      v->Add(Note::kScalar);
      return Word::kNone;
    }
    if (diff.nonfinite_mismatch > 0) {
      v->Add(Note::kNonFinitePlaces);
      return Word::kNo;
    }
    if (diff.count == 1) {
      v->Add(Note::kOneElement);
      return Word::kNone;
    }
    if (c_.measures[row].reason == Reason::kBothNaN) return Word::kNone;
    if (std::isnan(diff.cosine)) {
      v->Add(std::isinf(diff.relative_l2) ? Note::kGoldenZero : Note::kTargetZero);
      if (pkl_table_) return Word::kNone;
      if (first_) return Word::kNo;  // 1.0 computed some small number as cosine against zeros
    }
    const Thresholds::Rules8& r = Of(row).rules8;
    const bool no = (diff.cosine < r.cosine && diff.max_abs_error > r.max_abs_error) ||
                    diff.cosine < r.worst_cosine || diff.max_abs_error > r.worst_max_abs_error;
    return no ? Word::kNo : Word::kYes;
  }

  // Numbers of one row that the coloring rules look at; NaN where there are none.
  struct Seen {
    uint32_t row;
    double difference = kernels::Diff::kNaN,
           relative = kernels::Diff::kNaN;                                  // of the largest value
    double thousandth = kernels::Diff::kNaN, cosine = kernels::Diff::kNaN;  // tensors
  };

  Seen Look(uint32_t row) const {
    Seen seen{row};
    const Row& r = c_.rows[row];
    if (r.target < 0 || r.golden < 0) return seen;
    if (c_.mode == Mode::kStatistics) {
      const StatisticDifference pair = SubtractStatistic(
          &c_.target.leaves[r.target], &c_.golden.leaves[r.golden], 0, options_.generation);
      if (pair.kind != StatisticDifference::Kind::kNumbers) return seen;
      seen.difference = std::abs(pair.diff);
      const double golden = std::abs(pair.golden);
      if (first_) {
        seen.relative = seen.difference / std::max(0.01, golden);
      } else if (options_.generation == Generation::k1_2) {
        // Where the difference is infinite, one of the values is: that has made the row red.
        constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
        if (std::isfinite(seen.difference)) {
          seen.relative = seen.difference / std::max(kEpsilon, golden);
        }
      } else if (golden != 0) {
        seen.relative = seen.difference / golden;
      }
      return seen;
    }
    const kernels::Diff* diff = c_.DiffOf(row);
    if (diff == nullptr || diff->nonfinite_mismatch > 0) return seen;
    seen.difference = diff->max_abs_error;
    if (c_.target.leaves[r.target].shape.is_scalar()) return seen;
    seen.thousandth = diff->ratio_within_1e3;
    if (diff->count > 1) seen.cosine = diff->cosine;
    return seen;
  }

  void Color(uint32_t row, formats::RowColor color, Note note) {
    GenerationVerdict& v = verdicts_[row];
    v.color = color;
    if (options_.generation == Generation::k8) v.Add(note);
    if (options_.generation == Generation::k1_2) {
      if (!v.colored_by) v.colored_by = std::make_unique<std::vector<Note>>();
      v.colored_by->push_back(note);
    }
  }
  void Red(uint32_t row, Note note) { Color(row, formats::RowColor::kRed, note); }
  void Yellow(uint32_t row, Note note) { Color(row, formats::RowColor::kYellow, note); }

  // Compares every output with every input. The yellow rules are not applied to an output that is
  // red.
  void Highlight(uint32_t first, uint32_t last) {
    std::vector<Seen> inputs, outputs;
    for (uint32_t row = first; row < last; ++row) {
      const Row& r = c_.rows[row];
      const Leaf* target = r.target >= 0 ? &c_.target.leaves[r.target] : nullptr;
      const Seen seen = Look(row);
      if (target != nullptr && HasNonFiniteText(*target)) Red(row, Note::kRedNonFinite);
      if (target == nullptr) continue;
      if (seen.difference > Of(row).highlight.max_abs_error) Red(row, Note::kRedHuge);
      (target->slot == Slot::kOutput ? outputs : inputs).push_back(seen);
    }
    for (const Seen& output : outputs) {
      for (const Seen& input : inputs) ColorRed(input, output);
      if (verdicts_[output.row].color == formats::RowColor::kRed) continue;
      for (const Seen& input : inputs) ColorYellow(input, output);
    }
    for (uint32_t row = first; row < last; ++row) {
      GenerationVerdict& v = verdicts_[row];
      if (v.color != formats::RowColor::kRed && v.Has(Note::kRequiresGrad)) {
        Yellow(row, Note::kYellowRequiresGrad);
      }
    }
  }

  void ColorRed(const Seen& input, const Seen& output) {
    const Thresholds::Highlight& h = Of(output.row).highlight;
    if (input.thousandth > h.input_thousandth && output.thousandth < h.output_thousandth) {
      Red(output.row, Note::kRedThousandth);
    }
    if (output.relative > h.output_relative) Red(output.row, Note::kRedRelative);
  }

  void ColorYellow(const Seen& input, const Seen& output) {
    const Thresholds::Highlight& h = Of(output.row).highlight;
    if (input.difference > h.order_from && output.difference > h.order_from &&
        output.difference >= h.order_of_magnitude * input.difference) {
      Yellow(output.row, Note::kYellowMagnitude);
    }
    if (input.thousandth - output.thousandth > h.thousandth_drop) {
      Yellow(output.row, Note::kYellowThousandth);
    }
    if (input.cosine - output.cosine > h.cosine_drop) Yellow(output.row, Note::kYellowCosine);
    if (output.relative > h.output_relative_yellow && input.relative < h.input_relative) {
      Yellow(output.row, Note::kYellowRelative);
    }
  }

  const Comparison& c_;
  const TableOptions& options_;
  std::vector<GenerationVerdict>& verdicts_;
  const bool first_;         // 1.0 and older generations
  const bool columns_of_1_;  // 1.2 and older generations
  const bool pkl_table_;     // torch_npu.hooks, ptdbg_ascend
  Thresholds scratch_;
};

}  // namespace

std::vector<GenerationVerdict> JudgeByGeneration(const Comparison& comparison,
                                                 const TableOptions& options) {
  std::vector<GenerationVerdict> verdicts(comparison.rows.size());
  constexpr size_t kPairsPerChunk = 1024;
  const size_t pairs = comparison.pairs.size();
  ThreadPool::Default().ParallelFor(
      (pairs + kPairsPerChunk - 1) / kPairsPerChunk, [&](size_t chunk) {
        CallJudge judge(comparison, options, &verdicts);
        const size_t last = std::min(pairs, (chunk + 1) * kPairsPerChunk);
        for (size_t i = chunk * kPairsPerChunk; i < last; ++i) judge.Judge(comparison.pairs[i]);
      });
  return verdicts;
}

bool HasTensorFile(const Leaf& leaf) { return !leaf.data_name.empty() && leaf.data_name != "-1"; }

const Thresholds& ThresholdsOfRow(const Comparison& comparison, size_t row, Thresholds* scratch) {
  const int32_t target = comparison.rows[row].target;
  if (target < 0) return comparison.Thresholds().base();
  const Leaf& leaf = comparison.target.leaves[target];
  const std::string_view api = comparison.target.records[leaf.record].api;
  return comparison.Thresholds().For(api, leaf.dtype, scratch);
}

StatisticDifference SubtractStatistic(const Leaf* target, const Leaf* golden, int which,
                                      Generation generation) {
  using Kind = StatisticDifference::Kind;
  if (target == nullptr || golden == nullptr) return {Kind::kUnmatched};
  const auto number = [&](const Leaf& leaf, double* value) {
    const std::string_view text = leaf.*kStatisticTexts[which];
    const bool boolean = text == "true" || text == "false" || text == "True" || text == "False";
    if (boolean) {  // 1.0 takes True for 1 and False for 0
      *value = text[0] == 't' || text[0] == 'T';
      return generation <= Generation::k1;
    }
    *value = leaf.*kStatisticValues[which];
    // Generation 8 takes a text argument that spells a number, such as "0.5", for that number.
    if (generation == Generation::k8 && leaf.dtype == "<class 'str'>") {
      const auto end = std::from_chars(text.data(), text.data() + text.size(), *value).ptr;
      return !text.empty() && end == text.data() + text.size() && std::isfinite(*value);
    }
    return text == "NaN" || (!text.empty() && !std::isnan(*value));
  };
  StatisticDifference pair{Kind::kNumbers};
  if (!number(*target, &pair.target) || !number(*golden, &pair.golden)) return {Kind::kNoNumbers};
  pair.diff = pair.target - pair.golden;
  return pair;
}

// The sentences of Err_message and the words of the verdict.

namespace {

std::string NoteText(Note note, Generation generation, const Thresholds::Highlight& h) {
  const bool first = generation <= Generation::k1, columns_of_1 = generation <= Generation::k1_2;
  const std::string_view inputs =
      generation == Generation::k1_2 ? "input/parameters's" : "input/parameter's";
  switch (note) {
    case Note::kNoGolden:
      return "";  // of either side: AppendGenerationMessage
    case Note::kRequiresGrad:
      return "Requires_grad inconsistent. ";
    case Note::kNoTargetFile:
      return "NPU does not have data file.";
    case Note::kNoGoldenFile:
      return "Bench does not have data file.";
    case Note::kNoGoldenCall:
      return "Bench api/module unmatched.";
    case Note::kUnreadable:
      return "";  // names the files: AppendUnreadable
    case Note::kEmpty:
      return "This is empty data, can not compare.";
    case Note::kShape:
      return "Shape of NPU and bench tensor do not match. Skipped.";
    case Note::kScalar:
      if (first) return "This is type of scalar data, can not compare.";
      return fmt::format(
          "This is type of 0-d tensor, can not calculate 'Cosine', {}'One Thousandth Err Ratio' "
          "and "
          "'Five Thousandths Err Ratio'. ",
          columns_of_1 ? "" : "'EucDist', ");
    case Note::kOneElement:
      return first ? "This tensor is scalar." : "This is a 1-d tensor of length 1.";
    case Note::kNonFinitePlaces:
      return "The position of inf or nan in NPU and bench Tensor do not match.";
    case Note::kGoldenZero:
      return "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data.";
    case Note::kTargetZero:
      return "Cannot compare by Cosine Similarity, All the data is Zero in npu dump data.";
    case Note::kDtype:
      return "Dtype of NPU and bench tensor do not match.";
    case Note::kDoubleCheck:
      return columns_of_1 ? "Need double check api accuracy." : "Need double check api accuracy. ";
    case Note::kRedNonFinite:
      return "maximum or minimum is nan, -inf, or inf";
    case Note::kRedHuge:
      return fmt::format("maximum absolute error exceeds {:g}", h.max_abs_error);
    case Note::kRedThousandth:
      return fmt::format(
          "The {} one thousandth err ratio exceeds {:g}, while the output's is below {:g}", inputs,
          h.input_thousandth, h.output_thousandth);
    case Note::kRedRelative:
      return fmt::format("maximum relative error exceeds {:g}", h.output_relative);
    case Note::kYellowMagnitude:
      return fmt::format(
          "maximum absolute error of both input/parameters and output exceed {:g}, with the output "
          "larger by {}",
          h.order_from,
          h.order_of_magnitude == 10 ? "an order of magnitude"
                                     : fmt::format("a factor of {:g}", h.order_of_magnitude));
    case Note::kYellowThousandth:
      return fmt::format(
          "The output's one thousandth err ratio decreases by more than {:g} compared to the {}",
          h.thousandth_drop, inputs);
    case Note::kYellowCosine:
      return fmt::format("The output's cosine decreases by more than {:g} compared to the {}",
                         h.cosine_drop, inputs);
    case Note::kYellowRelative:
      return fmt::format(
          "The output's maximum relative error exceeds {:g}, while the {} is below {:g}",
          h.output_relative_yellow, inputs, h.input_relative);
    case Note::kYellowRequiresGrad:
      return "requires_grad is inconsistent";
  }
  return "";
}

void AppendUnreadable(std::string* out, const Comparison& c, size_t row) {
  *out += "Dump file: ";
  AppendPythonList(out, {c.target.leaves[c.rows[row].target].data_name,
                         c.golden.leaves[c.rows[row].golden].data_name});
  *out += " not found or read failed.";
}

}  // namespace

std::string_view GenerationWordText(GenerationWord word) {
  switch (word) {
    case GenerationWord::kNothing:
      return "";
    case GenerationWord::kYes:
      return "Yes";
    case GenerationWord::kNo:
      return "No";
    case GenerationWord::kNone:
      return "None";
    case GenerationWord::kUnmatched:
      return "Unmatched";
    case GenerationWord::kAbsent:
      return "N/A";
    case GenerationWord::kWarning:
      return "Warning";
    case GenerationWord::kPass:
      return "pass";
    case GenerationWord::kDifferent:
      return "Different";
  }
  return "";
}

void AppendGenerationMessage(std::string* out, const Comparison& comparison, size_t row,
                             const GenerationVerdict& verdict, Generation generation) {
  Thresholds scratch;
  const Thresholds::Highlight& highlight = ThresholdsOfRow(comparison, row, &scratch).highlight;
  const size_t start = out->size();
  for (int i = 0; i < kGenerationNoteCount; ++i) {
    const Note note = static_cast<Note>(i);
    if (!verdict.Has(note)) continue;
    if (note >= Note::kRedNonFinite && out->size() != start) *out += '\n';
    if (note == Note::kNoGolden) {
      *out += comparison.rows[row].target < 0 ? "No NPU data matched." : "No bench data matched.";
    } else if (note == Note::kUnreadable) {
      AppendUnreadable(out, comparison, row);
    } else {
      *out += NoteText(note, generation, highlight);
    }
  }
  if (!verdict.colored_by) return;
  for (const Note note : *verdict.colored_by) {
    if (out->size() != start) *out += '\n';
    *out += NoteText(note, generation, highlight);
  }
}

}  // namespace msprobe::compare
