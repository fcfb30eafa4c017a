// "bench_path": only forward calls that differ from an earlier dump are recorded.
//
//   check.Configure();                        // by the session's configuration
//   if (check.on()) MSPROBE_RETURN_IF_ERROR(check.Begin(rank).status());
//   if (check.on() && check.Differs(entry)) Record();
//   check.Report();                           // at stop
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "capture/recording/recording.h"
#include "capture/tasks/finding_count.h"
#include "engine/dump/session/reference_search.h"

namespace msprobe::capture {

class ReferenceCheck {
 public:
  ReferenceCheck(Recording* recording, FoundCalls* found) : recording_(recording), found_(found) {}

  void Configure();
  bool on() const { return search_ != nullptr; }
  // Opens the earlier dump of this step and rank. False: there is none, and the step is not
  // recorded.
  Result<bool> Begin(std::optional<int> rank);
  bool Differs(const Entry& entry);
  // A call that differs was recorded.
  void Count(const std::string& name, int64_t site);
  void Report();  // logs how many calls were compared

 private:
  Recording* recording_;
  FoundCalls* found_;
  std::unique_ptr<dump::ReferenceSearch> search_;
};

}  // namespace msprobe::capture
