// The sentences of msprobe 1.0 and 8.
#include <fmt/format.h>

#include "engine/compare/model/value_text.h"
#include "engine/compare/table/legacy_rules.h"

namespace msprobe::compare {
namespace {

using Note = LegacyNote;

std::string NoteText(Note note, Generation generation, const Thresholds::Highlight& h) {
  const bool first = generation <= Generation::k1;
  switch (note) {
    case Note::kNoGolden:
      return "";  // of either side: AppendLegacyMessage
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
      return first ? "This is type of scalar data, can not compare."
                   : "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One "
                     "Thousandth Err Ratio' and 'Five Thousandths Err Ratio'. ";
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
      return first ? "Need double check api accuracy." : "Need double check api accuracy. ";
    case Note::kRedNonFinite:
      return "maximum or minimum is nan, -inf, or inf";
    case Note::kRedHuge:
      return fmt::format("maximum absolute error exceeds {:g}", h.max_abs_error);
    case Note::kRedThousandth:
      return fmt::format(
          "The input/parameter's one thousandth err ratio exceeds {:g}, while the output's is "
          "below "
          "{:g}",
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
          "The output's one thousandth err ratio decreases by more than {:g} compared to the "
          "input/parameter's",
          h.thousandth_drop);
    case Note::kYellowCosine:
      return fmt::format(
          "The output's cosine decreases by more than {:g} compared to the input/parameter's",
          h.cosine_drop);
    case Note::kYellowRelative:
      return fmt::format(
          "The output's maximum relative error exceeds {:g}, while the input/parameter's is below "
          "{:g}",
          h.output_relative_yellow, h.input_relative);
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

std::string_view LegacyWordText(LegacyWord word) {
  switch (word) {
    case LegacyWord::kNothing:
      return "";
    case LegacyWord::kYes:
      return "Yes";
    case LegacyWord::kNo:
      return "No";
    case LegacyWord::kNone:
      return "None";
    case LegacyWord::kUnmatched:
      return "Unmatched";
    case LegacyWord::kAbsent:
      return "N/A";
    case LegacyWord::kWarning:
      return "Warning";
    case LegacyWord::kPass:
      return "pass";
    case LegacyWord::kDifferent:
      return "Different";
  }
  return "";
}

void AppendLegacyMessage(std::string* out, const Comparison& comparison, size_t row,
                         const LegacyVerdict& verdict, Generation generation) {
  Thresholds scratch;
  const Thresholds::Highlight& highlight = LegacyThresholds(comparison, row, &scratch).highlight;
  const size_t start = out->size();
  for (int i = 0; i < kLegacyNoteCount; ++i) {
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
}

}  // namespace msprobe::compare
