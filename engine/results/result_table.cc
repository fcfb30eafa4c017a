#include "engine/results/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/text/json.h"
#include "engine/results/comparison_builder.h"

namespace msprobe::results {
namespace {

using kernels::Diff;

// Cells of a row by the names of their columns.
class Header {
 public:
  explicit Header(std::span<const std::string_view> names) : names_(names.begin(), names.end()) {}

  // The first column with one of these names; -1: there is none.
  int Find(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found != names_.end()) return static_cast<int>(found - names_.begin());
    }
    return -1;
  }

 private:
  std::vector<std::string> names_;
};

// A cell that a spreadsheet would run as a formula was written with an apostrophe in front.
std::string_view WithoutGuard(std::string_view text) {
  const bool guarded = text.size() > 1 && text[0] == '\'' &&
                       std::string_view("=+-@\t\r\xef").find(text[1]) != std::string_view::npos;
  return guarded ? text.substr(1) : text;
}

double Number(std::string_view text) {
  double scale = 1;
  if (text.ends_with('%')) text.remove_suffix(1), scale = 0.01;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return scale * formats::JsonNumber(text);
}

int64_t Count(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

template <typename Word, typename NameOf>
std::optional<Word> WordOf(std::string_view text, int words, NameOf name_of) {
  for (int i = 0; i < words; ++i) {
    if (name_of(static_cast<Word>(i)) == text) return static_cast<Word>(i);
  }
  return std::nullopt;
}

class TableRows {
 public:
  TableRows(const Header& header, ComparisonBuilder* builder) : builder_(*builder) {
    const std::string_view sides[] = {"NPU", "Bench"};
    for (int s = 0; s < 2; ++s) {
      const std::string side(sides[s]);
      const auto find = [&](std::string_view name) {
        return header.Find({side + " " + std::string(name)});
      };
      Side& c = sides_[s];
      c.name = find("Name");
      c.dtype = std::max(find("Dtype"), find("Tensor Dtype"));
      c.shape = find("Tensor Shape");
      c.requires_grad = find("Requires_grad");
      c.max = find("max"), c.min = find("min"), c.mean = find("mean"), c.norm = find("l2norm");
      c.checksum = s == 0 ? header.Find({"NPU MD5"}) : header.Find({"BENCH MD5", "Bench MD5"});
      c.nan = find("NaN"), c.pos_inf = find("+Inf"), c.neg_inf = find("-Inf");
      c.worst = find("at Worst");
    }
    cosine_ = header.Find({"Cosine"}), max_abs_ = header.Find({"MaxAbsErr"});
    max_rel_ = header.Find({"MaxRelativeErr"}), rmse_ = header.Find({"RMSE"});
    relative_l2_ = header.Find({"Relative L2"}), ulp_ = header.Find({"Max ULP"});
    verdict_ = header.Find({"Verdict"}), class_ = header.Find({"Class"});
    severity_ = header.Find({"Severity"}), reason_ = header.Find({"Reason"});
    confidence_ = header.Find({"Confidence"}), stack_ = header.Find({"NPU_Stack_Info"});
    source_line_ = header.Find({"Source Line"});
  }

  bool known() const { return sides_[0].name >= 0 && sides_[1].name >= 0; }
  bool has_verdicts() const { return verdict_ >= 0; }

  void Add(std::span<const std::string_view> cells) {
    const auto cell = [&](int column) {
      return column >= 0 && static_cast<size_t>(column) < cells.size() ? WithoutGuard(cells[column])
                                                                       : std::string_view();
    };
    ResultRow row;
    ResultValue* const values[] = {&row.target, &row.golden};
    for (int s = 0; s < 2; ++s) {
      const Side& c = sides_[s];
      *values[s] = {.name = cell(c.name),
                    .dtype = cell(c.dtype),
                    .shape = cell(c.shape),
                    .requires_grad = cell(c.requires_grad),
                    .max = cell(c.max),
                    .min = cell(c.min),
                    .mean = cell(c.mean),
                    .norm = cell(c.norm),
                    .checksum = cell(c.checksum),
                    .counts = {Count(cell(c.nan)), Count(cell(c.pos_inf)), Count(cell(c.neg_inf))}};
    }
    if (verdict_ >= 0) {
      row.verdict = WordOf<compare::RowVerdict>(cell(verdict_), 4, &compare::VerdictName);
      if (!row.verdict) row.verdict = compare::RowVerdict::kUnknown;
    }
    if (class_ >= 0)
      row.call_class = WordOf<compare::CallClass>(cell(class_), 5, &compare::ClassName);
    if (severity_ >= 0) row.severity = Number(cell(severity_));
    row.reason = cell(reason_), row.stack = cell(stack_), row.source_line = cell(source_line_);
    if (const double sure = Number(cell(confidence_)); sure >= 0 && sure <= 1)
      row.confidence = sure;
    const Diff diff{.cosine = Number(cell(cosine_)),
                    .relative_l2 = Number(cell(relative_l2_)),
                    .max_abs_error = Number(cell(max_abs_)),
                    .max_rel_error = max_abs_ < 0 ? Diff::kNaN : Number(cell(max_rel_)),
                    .rmse = Number(cell(rmse_)),
                    .max_ulp = Count(cell(ulp_)),
                    .worst_target = Number(cell(sides_[0].worst)),
                    .worst_golden = Number(cell(sides_[1].worst))};
    if (!std::isnan(diff.cosine) || !std::isnan(diff.max_abs_error)) row.diff = diff;
    builder_.Add(row);
  }

 private:
  struct Side {  // columns; -1: not there
    int name, dtype, shape, requires_grad, max, min, mean, norm, checksum, nan, pos_inf, neg_inf,
        worst;
  };
  ComparisonBuilder& builder_;
  Side sides_[2];
  int cosine_, max_abs_, max_rel_, rmse_, relative_l2_, ulp_;
  int verdict_, class_, severity_, reason_, confidence_, stack_, source_line_;
};

}  // namespace

Result<compare::Comparison> ReadResultTable(const std::string& path) {
  ComparisonBuilder builder(path);
  std::optional<TableRows> rows;
  std::string sheet, found;
  bool no_table = false;
  MSPROBE_RETURN_IF_ERROR(formats::ReadTableFile(path, [&](const formats::TableLine& line) {
    if (rows && line.sheet != sheet) {
      // A long table continues on further sheets, each with the header; the last one is a summary.
      sheet = line.sheet;
      return Header(line.cells).Find({"NPU Name"}) >= 0;
    }
    if (rows) {
      rows->Add(line.cells);
      return true;
    }
    sheet = line.sheet;
    rows.emplace(Header(line.cells), &builder);
    no_table = !rows->known();
    if (no_table && !line.cells.empty()) found = line.cells[0];
    return !no_table;
  }));
  if (!rows || no_table) {
    return InvalidDump(path)
        .Expected("a result table with the columns \"NPU Name\" and \"Bench Name\""_t)
        .Found(rows ? "a table that begins with \"{}\""_t(Excerpt(found)) : "no row"_t)
        .Hint("pass the compare_result_TIME.csv or .xlsx that msprobe compare wrote"_t);
  }
  compare::Comparison c = builder.Finish();
  c.not_observed.push_back(
      "the calls are those of a result table: weights, data and settings of the runs are not in "
      "it"_t);
  if (!rows->has_verdicts()) {
    c.not_observed.push_back(
        "the table has no column Verdict: its values were judged by the numbers that it shows"_t);
  }
  return c;
}

}  // namespace msprobe::results
