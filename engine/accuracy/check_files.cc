#include "engine/accuracy/check_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "engine/accuracy/check_csv.h"
#include "engine/accuracy/row_verdict.h"
#include "engine/base/text.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::accuracy {
namespace {

constexpr std::string_view kResultStart = "accuracy_checking_result_",
                           kDetailsStart = "accuracy_checking_details_", kEnd = ".csv";

bool IsTime(std::string_view text) {
  return text.size() == 14 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Without the row that a kill cut off: up to the last line end outside of quotes.
std::string_view WholeRows(std::string_view text) {
  size_t end = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) end = i + 1;
  }
  return text.substr(0, end);
}

using Row = std::vector<std::string>;

// The rows below the titles. `less`: cells that a row may have less than there are titles.
struct Rows {
  size_t width = 0;  // of the titles
  std::vector<Row> rows;
};
Result<Rows> ReadRows(const std::string& path, std::string_view first_title, size_t older,
                      size_t most, size_t less) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Rows found;
  Status wrong;
  MSPROBE_RETURN_IF_ERROR(
      formats::ReadCsv(WholeRows(file.bytes()), path, [&](const formats::TableLine& line) {
        const size_t cells = line.cells.size();
        if (found.width == 0) {
          found.width = cells;
          if (line.cells[0] != first_title || (cells != older && cells != most)) {
            wrong = InvalidDump(path)
                        .Expected("{} columns, the first {}"_t(older, first_title))
                        .Found("{}, the first {}"_t(line.cells.size(), Excerpt(line.cells[0])));
          }
        } else if (cells + less < found.width || cells > found.width) {
          wrong = InvalidDump(path)
                      .Expected("{} cells in row {}"_t(found.width, line.number))
                      .Found(std::to_string(line.cells.size()));
        } else {
          found.rows.emplace_back(line.cells.begin(), line.cells.end());
        }
        return wrong.ok();
      }));
  if (!wrong.ok()) return wrong;
  if (found.width == 0) return InvalidDump(path).Expected("a row of titles"_t).Found("no row"_t);
  return found;
}

Status Twice(const std::string& path, std::string_view name) {
  return InvalidDump(path)
      .Expected("each name once"_t)
      .Found("{} twice"_t(Excerpt(name, 100)))
      .Hint("remove one of the rows, or begin anew without the file"_t);
}

// Of the spellings of all generations. False: it is none.
bool ReadVerdict(std::string_view text, Verdict* verdict) {
  text = Trim(text);
  if (text.empty()) {
    *verdict = Verdict::kBlank;
    return true;
  }
  for (size_t v = 0; v < kVerdictNames.size(); ++v) {
    *verdict = static_cast<Verdict>(v);
    if (text == SpelledVerdict(*verdict, Rules::kOurs) ||
        text == SpelledVerdict(*verdict, Rules::k1))
      return true;
  }
  return false;
}

// Where the rows of one call stand: most often without others between them.
struct RowsOfCall {
  size_t first = 0, count = 0;
};

std::string FirstMessage(const CheckedCall& call, bool only_skip) {
  for (const std::vector<DetailsRow>* rows : {&call.forward_rows, &call.backward_rows}) {
    for (const DetailsRow& row : *rows) {
      const bool told = only_skip ? row[kStatus] == "SKIP" : row[kStatus] != "pass";
      if (told && !IsBlankCell(row[kMessage])) return row[kMessage];
    }
  }
  return "";
}

Result<CheckedCall> EarlierCall(const std::string& path, const Row& result,
                                std::span<const Row> details) {
  CheckedCall call{.name = result[kCall]};
  for (const auto& [column, verdict] :
       {std::pair{kForward, &call.forward}, std::pair{kBackward, &call.backward}}) {
    if (!ReadVerdict(result[column], verdict)) {
      return InvalidDump(path)
          .Expected(
              "pass, warning, error, SKIP or a blank as verdict of {}"_t(Excerpt(call.name, 100)))
          .Found(Excerpt(result[column]));
    }
  }
  if (result.size() > kResultMessage) call.message = Trim(result[kResultMessage]);
  const bool beyond = result.size() > kBackwardRounding &&
                      (result[kForwardRounding] == VerdictName(Verdict::kError) ||
                       result[kBackwardRounding] == VerdictName(Verdict::kError));
  const bool passes = call.forward == Verdict::kPass &&
                      (call.backward == Verdict::kPass || call.backward == Verdict::kBlank);
  if (passes && !beyond) return call;
  for (const Row& row : details) {
    const OutputName name = ParseOutputName(row[kApiName]);
    if (name.call != call.name) continue;
    const bool forward = name.direction == "forward";
    DetailsRow& copy = (forward ? call.forward_rows : call.backward_rows).emplace_back();
    std::copy(row.begin(), row.end(), copy.begin());
  }
  if (call.message == FirstMessage(call, /*only_skip=*/false)) call.message.clear();
  return call;
}

}  // namespace

Verdict RoundingVerdictOf(const std::vector<DetailsRow>& rows) {
  Verdict found = Verdict::kBlank;
  for (const DetailsRow& row : rows) {
    if (row[kRoundingVerdict] == VerdictName(Verdict::kError)) return Verdict::kError;
    if (row[kRoundingVerdict] == VerdictName(Verdict::kPass)) found = Verdict::kPass;
  }
  return found;
}

Status CheckFiles::Open(const std::string& result_path, const std::string& details_path) {
  MSPROBE_ASSIGN_OR_RETURN(details_, AppendFile::Open(details_path, true));
  MSPROBE_ASSIGN_OR_RETURN(result_, AppendFile::Open(result_path, true));
  return Status::Ok();
}

Result<CheckFiles> CheckFiles::Create(const std::string& folder, std::string_view time, Rules rules,
                                      bool roundings) {
  if (!IsTime(time))
    return InvalidArgument().Expected("a time of 14 digits"_t).Found(Excerpt(time));
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const auto path = [&](std::string_view start) {
    return JoinPath(folder, fmt::format("{}{}{}", start, time, kEnd));
  };
  const std::string result = path(kResultStart), details = path(kDetailsStart);
  for (const std::string& file : {result, details}) {
    if (Exists(file)) return InvalidArgument("{} is already there"_t(file));
  }
  CheckFiles files(rules, roundings);
  CheckCsv details_csv, result_csv;
  details_csv.AddRow(std::span(kDetailsTitles).first(files.DetailsWidth()));
  result_csv.AddRow(std::span(kResultTitles).first(files.ResultWidth()));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(details, details_csv.text()));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(result, result_csv.text()));
  MSPROBE_RETURN_IF_ERROR(files.Open(result, details));
  files.created_ = true;
  return Result<CheckFiles>(std::move(files));
}

void CheckFiles::RemoveIfEmpty() {
  if (!created_ || !done_.empty()) return;
  (void)RemoveFile(result_path());
  (void)RemoveFile(details_path());
}

Result<CheckFiles> CheckFiles::Resume(const std::string& result_path, Rules rules) {
  const std::string name = BaseName(result_path);
  if (!name.starts_with(kResultStart) || !name.ends_with(kEnd) ||
      name.size() < kResultStart.size() + kEnd.size() ||
      !IsTime(std::string_view(name).substr(kResultStart.size(),
                                            name.size() - kResultStart.size() - kEnd.size()))) {
    return InvalidArgument(result_path)
        .Expected("accuracy_checking_result_ and a time of 14 digits"_t)
        .Found(Excerpt(name, 80));
  }
  const std::string details_path = JoinPath(
      DirectoryName(result_path), std::string(kDetailsStart) + name.substr(kResultStart.size()));
  MSPROBE_ASSIGN_OR_RETURN(
      const Rows result_rows,
      ReadRows(result_path, kResultTitles[0], kOlderResultColumns, kResultColumns, 1));
  MSPROBE_ASSIGN_OR_RETURN(
      const Rows details_rows,
      ReadRows(details_path, kDetailsTitles[0], kOlderDetailsColumns, kDetailsColumns, 0));
  const std::vector<Row>&results = result_rows.rows, &details = details_rows.rows;
  CheckFiles files(rules, result_rows.width == kResultColumns);
  if (details_rows.width != files.DetailsWidth()) {
    return InvalidDump(details_path)
        .Expected("{} columns, as {} has"_t(files.DetailsWidth(), result_path))
        .Found(std::to_string(details_rows.width));
  }
  std::set<std::string_view> outputs;
  std::map<std::string_view, RowsOfCall> with_details;
  for (size_t i = 0; i < details.size(); ++i) {
    const std::string_view output = details[i][kApiName];
    if (!outputs.insert(output).second) return Twice(details_path, output);
    RowsOfCall& rows = with_details[ParseOutputName(output).call];
    if (rows.count == 0) rows.first = i;
    rows.count = i + 1 - rows.first;
  }
  CheckCsv details_csv, result_csv;
  details_csv.AddRow(std::span(kDetailsTitles).first(files.DetailsWidth()));
  result_csv.AddRow(std::span(kResultTitles).first(files.ResultWidth()));
  std::set<std::string_view> seen;
  for (const Row& row : results) {
    const std::string& call = row[kCall];
    if (!seen.insert(call).second) return Twice(result_path, call);
    if (row[kForward] == "SKIP" || row[kBackward] == "SKIP") continue;
    // The older tools write no details of dropout.
    const auto rows = with_details.find(call);
    if (rows == with_details.end() && call.find("dropout") == std::string::npos) continue;
    const RowsOfCall which = rows == with_details.end() ? RowsOfCall{} : rows->second;
    MSPROBE_ASSIGN_OR_RETURN(
        CheckedCall earlier,
        EarlierCall(result_path, row, std::span(details).subspan(which.first, which.count)));
    result_csv.AddRow(row);
    files.done_.insert(call);
    files.earlier_.push_back(std::move(earlier));
  }
  for (const Row& row : details) {
    if (files.IsDone(ParseOutputName(row[kApiName]).call)) details_csv.AddRow(row);
  }
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(details_path, details_csv.text()));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(result_path, result_csv.text()));
  MSPROBE_RETURN_IF_ERROR(files.Open(result_path, details_path));
  return Result<CheckFiles>(std::move(files));
}

Status CheckFiles::Add(const CheckedCall& call) {
  if (IsDone(call.name)) return InvalidArgument("{} is already checked"_t(call.name));
  CheckCsv details(false), result(false);
  const auto add = [&](const std::vector<DetailsRow>& rows, std::string_view direction) {
    for (size_t i = 0; i < rows.size(); ++i) {
      DetailsRow row = rows[i];
      row[kApiName] = fmt::format("{}.{}.output.{}", call.name, direction, i);
      details.AddRow(std::span(row).first(DetailsWidth()));
    }
  };
  add(call.forward_rows, "forward");
  add(call.backward_rows, "backward");
  // The older tools write the fourth cell of calls with SKIP alone.
  const bool old = rules_ != Rules::kOurs;
  const bool skip = call.forward == Verdict::kSkip || call.backward == Verdict::kSkip;
  std::vector<std::string> row = {call.name, std::string(SpelledVerdict(call.forward, rules_)),
                                  std::string(SpelledVerdict(call.backward, rules_))};
  if (!old || skip) row.push_back(call.message.empty() ? FirstMessage(call, old) : call.message);
  if (roundings_) {
    row.resize(kOlderResultColumns);
    for (const auto* rows : {&call.forward_rows, &call.backward_rows})
      row.emplace_back(VerdictName(RoundingVerdictOf(*rows)));
  }
  result.AddRow(row);
  MSPROBE_RETURN_IF_ERROR(details_.Append(details.text()));
  MSPROBE_RETURN_IF_ERROR(result_.Append(result.text()));
  done_.insert(call.name);
  return Status::Ok();
}

}  // namespace msprobe::accuracy
