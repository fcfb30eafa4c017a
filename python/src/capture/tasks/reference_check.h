// "bench_path": records only forward calls that differ from the reference dump.
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
#include "capture/tasks/findings.h"
#include "engine/dump/session/reference_search.h"

namespace msprobe::capture {

class ReferenceCheck {
 public:
  ReferenceCheck(Recording* recording, Findings* findings)
      : recording_(recording), findings_(findings) {}

  void Configure();
  bool on() const { return search_ != nullptr; }
  // Opens the reference dump of this step and rank. False: there is none, and the step is not
  // recorded.
  Result<bool> Begin(std::optional<int> rank);
  bool Differs(const Entry& entry);
  // To be called after a call that differs was recorded: counts it.
  void Count(const std::string& name, int64_t site);
  void Report();  // logs how many calls were compared

 private:
  Recording* recording_;
  Findings* findings_;
  std::unique_ptr<dump::ReferenceSearch> search_;
};

}  // namespace msprobe::capture
