#include "capture/tasks/reference_check.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {

void ReferenceCheck::Configure() {
  const std::string& path = recording_->config().bench_path;
  search_ = path.empty() ? nullptr : std::make_unique<dump::ReferenceSearch>(path);
}

Result<bool> ReferenceCheck::Begin(std::optional<int> rank) {
  dump::Session& session = *recording_->session;
  // A step that is not wanted needs no earlier dump: the session says that it is not wanted.
  if (!session.StepIsWanted() || !session.filter().WantsRank(rank.value_or(-1))) return true;
  Result<bool> found = search_->Begin(session.step(), rank);
  if (!found.ok()) session.Fail(found.status());
  // Checksums are compared with those of the dump.
  recording_->options.summary = session.config().summary;
  if (search_->checksum() != kernels::Checksum::kNone)
    recording_->options.summary.checksum = search_->checksum();
  return found;
}

bool ReferenceCheck::Differs(const Entry& entry) {
  return search_->Write(entry).ok() &&
         search_->verdict() == dump::ReferenceSearch::Verdict::kDiffers;
}

void ReferenceCheck::Count(const std::string& name, int64_t site) {
  findings_->Count("{} gives different outputs than in {} for the same inputs"_t(
                       name, recording_->config().bench_path),
                   recording_->config().diff_nums, "{} calls that differ are recorded"_t, site);
}

void ReferenceCheck::Report() {
  if (search_ == nullptr) return;
  if (const Message report = search_->Report(); !report.empty()) Log(LogLevel::kInfo, report);
}

}  // namespace msprobe::capture
