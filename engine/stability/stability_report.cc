#include "engine/stability/stability_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/formats/tables/csv.h"

namespace msprobe::stability {

Status StabilityReport::Open(const std::string& folder) {
  const std::string path = JoinPath(folder, kReportFile);
  if (file_.is_open() && file_.path() == path) return Status::Ok();
  MSPROBE_ASSIGN_OR_RETURN(file_, AppendFile::Open(path, /*keep=*/false));
  return file_.Append("rank,pert_mode,stage,step,api_name,max_rel,dtype,shape,output_index\n");
}

Status StabilityReport::Add(const StabilityRow& row, const std::string& where) {
  if (worst_.empty() || row.verdict.size > worst_size_) {
    worst_size_ = row.verdict.size;
    worst_ =
        fmt::format("{} of step {}, max_rel {}{}", row.call, row.step, row.verdict.max_rel, where);
  }
  formats::CsvWriter cells;
  cells.IntegerCell(row.rank);
  cells.NumberCell(row.perturbation);
  cells.NumberCell(row.backward ? "backward" : "forward");
  cells.IntegerCell(row.step);
  cells.TextCell(row.call);
  cells.NumberCell(row.verdict.max_rel);
  cells.TextCell(row.dtype);
  cells.NumberCell(fmt::format("torch.Size([{}])", fmt::join(row.shape, ", ")));
  row.output_index < 0 ? cells.NumberCell("") : cells.IntegerCell(row.output_index);
  cells.EndRow();
  return file_.Append(cells.text());
}

std::vector<std::string> StabilityReport::Lines(const dump::FreeBenchmarkRules& rules,
                                                int64_t period) const {
  std::vector<std::string> lines;
  if (judged_ == 0 && not_sampled_ == 0 && skipped_.empty()) return lines;
  std::string line =
      fmt::format("free_benchmark, {}, {}: {} calls judged, {} inconsistent", rules.name(),
                  rules.backward ? "backward" : "forward", judged_, inconsistent_);
  if (rules.fix) line += fmt::format(", {} fixed", fixed_);
  if (not_sampled_ > 0) {
    line += fmt::format("; {} calls not sampled, to keep \"budget\" {:g} (at last 1 call in {})",
                        not_sampled_, rules.budget, period);
  }
  std::vector<std::pair<std::string, int64_t>> reasons(skipped_.begin(), skipped_.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const char* before = "; skipped: ";
  for (const auto& [why, count] : reasons) {
    line += fmt::format("{}{} {}", before, count, why);
    before = ", ";
  }
  lines.push_back(std::move(line));
  if (!worst_.empty()) lines.push_back("the worst inconsistent call: " + worst_);
  return lines;
}

}  // namespace msprobe::stability
