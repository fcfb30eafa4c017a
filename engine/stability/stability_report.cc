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
    worst_ = Message::Joined(
        {"{} of step {}, max_rel {}"_t(row.call, row.step, row.verdict.max_rel), where}, ": ");
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

std::vector<Message> StabilityReport::Lines(const dump::FreeBenchmarkRules& rules,
                                            int64_t period) const {
  std::vector<Message> lines;
  if (judged_ == 0 && not_sampled_ == 0 && skipped_.empty()) return lines;
  const Message judged = "free_benchmark, {}, {}: {} calls judged, {} inconsistent"_t(
      rules.name(), std::string(rules.backward ? "backward" : "forward"), judged_, inconsistent_);
  const Message fixed = rules.fix ? "{} fixed"_t(fixed_) : Message();
  std::vector<Message> parts = {Message::Joined({judged, fixed}, ", ")};
  if (not_sampled_ > 0) {
    parts.push_back("{} calls not sampled, to keep \"budget\" {:g} (at last 1 call in {})"_t(
        not_sampled_, rules.budget, period));
  }
  std::vector<std::pair<Message, int64_t>> reasons;
  for (const auto& [english, reason] : skipped_) reasons.push_back(reason);
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<Message> skipped;
  for (const auto& [why, count] : reasons) skipped.push_back("{} {}"_t(count, why));
  if (!skipped.empty()) parts.push_back("skipped: {}"_t(Message::Joined(std::move(skipped), ", ")));
  lines.push_back(Message::Joined(std::move(parts), "; "));
  if (!worst_.empty()) lines.push_back("the worst inconsistent call: {}"_t(worst_));
  return lines;
}

}  // namespace msprobe::stability
