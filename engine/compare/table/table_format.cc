#include "engine/compare/table/table_format.h"

#include <algorithm>

#include "engine/compare/model/value_text.h"
#include "engine/compare/table/generation_cells.h"
#include "engine/dump/read/source_line.h"
#include "engine/formats/tables/csv.h"

namespace msprobe::compare {

TableOptions OptionsFor(const Comparison& comparison, TableOptions options) {
  const bool both = comparison.target.dialect == Dialect::kMsprobe1_2 &&
                    comparison.golden.dialect == Dialect::kMsprobe1_2;
  if (options.recognize_1_2 && both) options.generation = Generation::k1_2;
  return options;
}

TableFormat::TableFormat(const Comparison& comparison, const TableOptions& options)
    : comparison_(comparison),
      options_(options),
      columns_(ColumnsOf(comparison, options)),
      pair_of_(comparison.rows.size()),
      verdicts_(JudgeByRules26(comparison)) {
  if (options.generation != Generation::k26) {
    generation_verdicts_ = JudgeByGeneration(comparison, options);
    later_stack_ = options.generation <= Generation::k1_2 ? "None" : "N/A";
    if (IsPklTable(options.generation)) later_stack_ = "";
  }
  for (size_t i = 0; i < comparison.pairs.size(); ++i) {
    const RecordPair& pair = comparison.pairs[i];
    std::fill_n(pair_of_.begin() + pair.first_row, pair.row_count, static_cast<uint32_t>(i));
  }
  for (const auto& frames : comparison.target.stacks) {
    IsPklTable(options.generation) ? AppendFrameLists(&stack_texts_.emplace_back(), frames)
                                   : AppendPythonList(&stack_texts_.emplace_back(), frames);
    formats::CsvWriter cell;
    cell.NumberCell(stack_texts_.back());
    stack_cells_.emplace_back(cell.text());
    target_sources_.push_back(dump::UserSourceLine(frames));
  }
  for (const auto& frames : comparison.golden.stacks)
    golden_sources_.push_back(dump::UserSourceLine(frames));
  if (options.only_differing) LeaveAgreeingOut();
}

// What could not be judged may differ: it does not agree.
bool TableFormat::Agrees(size_t row) const {
  const RowVerdict verdict = comparison_.measures[row].verdict;
  if (verdict != RowVerdict::kEqual && verdict != RowVerdict::kNoise) return false;
  if (verdicts_[row].result != Result26::kPass || ColorOf(row) != formats::RowColor::kNone)
    return false;
  const GenerationVerdict* v = GenerationVerdictOf(row);
  return v == nullptr || v->word == GenerationWord::kNothing || v->word == GenerationWord::kYes ||
         v->word == GenerationWord::kPass;
}

void TableFormat::LeaveAgreeingOut() {
  only_differing_ = true;
  first_of_call_.resize(rows());
  for (size_t row = 0; row < rows(); ++row) {
    if (Agrees(row)) continue;
    first_of_call_[row] = written_.empty() || pair_of_[written_.back()] != pair_of_[row];
    written_.push_back(static_cast<uint32_t>(row));
  }
}

bool TableFormat::IsFirstOfCall(size_t row) const {
  return only_differing_ ? first_of_call_[row] : row == comparison_.pairs[pair_of_[row]].first_row;
}

formats::RowColor TableFormat::ColorOf(size_t row) const {
  if (!generation_verdicts_.empty()) return generation_verdicts_[row].color;
  switch (verdicts_[row].result) {
    case Result26::kError:
      return formats::RowColor::kRed;
    case Result26::kWarning:
      return formats::RowColor::kYellow;
    case Result26::kUnmatched:
    case Result26::kUnknown:
      return formats::RowColor::kGrey;
    case Result26::kPass:
      break;
  }
  return formats::RowColor::kNone;
}

const GenerationVerdict* TableFormat::GenerationVerdictOf(size_t row) const {
  return generation_verdicts_.empty() ? nullptr : &generation_verdicts_[row];
}

void TableFormat::Fill(size_t row, TableRow* out) const {
  TextBuffer& text = out->text;
  text.Clear();
  out->cells.clear();
  GenerationCells cells(*this, row, &text);
  for (const Column& column : columns_) {
    const size_t start = text.size();
    const CellKind kind = column.write(cells);
    out->cells.push_back(
        {static_cast<uint32_t>(start), static_cast<uint32_t>(text.size() - start), kind});
  }
}

void TableFormat::AppendCsv(size_t row, TextBuffer* out) const {
  GenerationCells cells(*this, row, out, /*quoted=*/true);
  for (const Column& column : columns_) {
    const size_t start = out->size();
    const CellKind kind = column.write(cells);
    if (kind == CellKind::kText || kind == CellKind::kSentence)
      formats::QuoteCsvCell(out, start, kind == CellKind::kText);
    *out += ',';
  }
  out->data()[out->size() - 1] = '\n';
}

}  // namespace msprobe::compare
