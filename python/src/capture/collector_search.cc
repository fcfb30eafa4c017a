// With "bench_path": only forward calls that differ from an earlier dump are recorded.
#include <fmt/format.h>

#include "capture/collector.h"
#include "engine/base/log.h"

namespace msprobe::capture {

Result<bool> Collector::BeginSearch(std::optional<int> rank) {
  // What is not wanted needs no dump: the session says so.
  if (!run_.session->StepIsWanted() || !run_.session->filter().WantsRank(rank.value_or(-1)))
    return true;
  Result<bool> found = search_->Begin(run_.session->step(), rank);
  if (!found.ok()) run_.session->Fail(found.status());
  // Checksums are compared with what the dump has.
  run_.options.summary = run_.session->config().summary;
  if (search_->checksum() != kernels::Checksum::kNone)
    run_.options.summary.checksum = search_->checksum();
  return found;
}

bool Collector::DiffersFromReference(OpenCall* call) {
  return search_->Write(call->entry).ok() &&
         search_->verdict() == dump::ReferenceSearch::Verdict::kDiffers;
}

void Collector::CountDifference(const std::string& name, int64_t site) {
  found_.Count(fmt::format("{} makes something else than in {} of the same inputs", name,
                           run_.session->config().bench_path),
               run_.session->config().diff_nums, "differ", site);
}

void Collector::ReportSearch() {
  if (search_ == nullptr) return;
  if (const std::string report = search_->Report(); !report.empty()) Log(LogLevel::kInfo, report);
}

}  // namespace msprobe::capture
