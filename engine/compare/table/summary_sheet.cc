#include "engine/compare/table/summary_sheet.h"

#include <fmt/format.h>

#include <array>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/judge/judge.h"

namespace msprobe::compare {
namespace {

class Sheet {
 public:
  explicit Sheet(const TableFormat& table)
      : table_(table), c_(table.comparison()), s_(Summarize(c_)) {}

  formats::XlsxRows Rows() {
    const formats::RowColor color = s_.verdict == RunVerdict::kDiffers   ? formats::RowColor::kRed
                                    : s_.verdict == RunVerdict::kUnknown ? formats::RowColor::kGrey
                                                                         : formats::RowColor::kNone;
    Text("verdict", RunVerdictName(s_.verdict), color);
    Text("compared by", ModeName(c_.mode));
    Text("target", c_.target.path);
    Text("golden", c_.golden.path);
    for (const auto& [label, text] : {std::pair("note", &c_.run_start.mistake),
                                      {"weights", &c_.run_start.weights},
                                      {"data", &c_.run_start.data},
                                      {"settings", &c_.run_start.settings}}) {
      if (!text->empty()) Text(label, text->English());
    }
    First();
    Counts();
    for (const Message& sentence : c_.not_observed) Text("not observed", sentence.English());
    rows_.Compress();
    return std::move(rows_);
  }

 private:
  void Text(std::string_view label, std::string_view text,
            formats::RowColor color = formats::RowColor::kNone) {
    rows_.BeginRow(color);
    rows_.TextCell(label);
    rows_.TextCell(text);
    rows_.EndRow();
  }
  void Number(std::string_view label, int64_t number) {
    rows_.BeginRow();
    rows_.TextCell(label);
    rows_.NumberCell(static_cast<double>(number));
    rows_.EndRow();
  }

  void First() {
    const FirstDivergence& f = c_.first;
    if (f.pair < 0) return Text("first divergence", "none");
    Text("first divergence", EntryName(c_, f.pair), formats::RowColor::kRed);
    Text("class", ClassName(f.call_class));
    Text("confidence", fmt::format("{:.0f}%", 100 * f.confidence));
    if (!f.module.empty()) Text("module", f.module);
    if (!f.source_line.empty()) Text("source line", f.source_line);
    if (!f.caller_line.empty()) Text("called from", f.caller_line);
    if (!f.golden_line.empty()) Text("in the golden", f.golden_line);
    Text("why", f.why.English());
    if (!f.advice.empty()) Text("next", f.advice.English());
  }

  void Counts() {
    for (int i = 0; i < 5; ++i) {
      Number(fmt::format("calls {}", ClassName(static_cast<CallClass>(i))), s_.calls[i]);
    }
    Number("calls only in the target", s_.target_only_calls);
    Number("calls only in the golden", s_.golden_only_calls);
    for (int i = 0; i < 4; ++i) {
      Number(fmt::format("values {}", VerdictName(static_cast<RowVerdict>(i))), s_.rows[i]);
    }
    std::array<int64_t, 5> results{};
    for (size_t i = 0; i < table_.rows(); ++i) ++results[static_cast<size_t>(table_.ResultOf(i))];
    for (size_t i = 0; i < results.size(); ++i) {
      Number(fmt::format("Result {}", Result26Name(static_cast<Result26>(i))), results[i]);
    }
    if (const size_t agree = table_.rows() - table_.written_rows(); agree > 0) {
      const Message said = "{} of {} agree; --all-rows writes them"_t(agree, table_.rows());
      Text("rows left out", said.English());
    }
  }

  const TableFormat& table_;
  const Comparison& c_;
  const Summary s_;
  formats::XlsxRows rows_{1};
};

}  // namespace

Status WriteSummarySheet(const TableFormat& table, formats::XlsxWriter* book) {
  MSPROBE_RETURN_IF_ERROR(book->AddSheet({.name = "summary", .widths = {26, 100}}));
  const formats::XlsxRows rows = Sheet(table).Rows();
  return book->Append({&rows, 1});
}

}  // namespace msprobe::compare
