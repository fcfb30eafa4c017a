// Keeps count, over one step, of what was observed and what was not.
//
//   counter.Start(modules_only);
//   ++counter.apis.recorded;
//   dump::Coverage coverage = counter.Stop(is_listed);   // engine/dump/write/coverage.h writes it
//   counter.NewStep();
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/calls/dispatch_count.h"
#include "engine/dump/write/coverage.h"

namespace msprobe::capture {

class CoverageCounter {
 public:
  dump::CallCounts apis, modules;                // but for apis.nested
  int64_t gradients = 0, ignored_gradients = 0;  // backward records; those that are none
  int64_t expected_gradients = 0;                // calls, or saved values, that wait for one
  int64_t saves = 0, refused_saves = 0;
  std::vector<dump::Coverage::Api> unseen;  // listed and not observed

  // A start of a step that is recorded. The dispatcher is counted in the first such step of the
  // process only: that costs time, and one step tells what a program is made of.
  void Start(bool modules_only);
  // All of the step so far. `is_listed`: whether an API of this last name ("relu") is observed.
  using IsListed = std::function<bool(std::string_view name)>;
  dump::Coverage Stop(const IsListed& is_listed);
  void NewStep();

 private:
  void AddTally();

  int64_t nested_before_ = 0, traced_before_ = 0;
  bool modules_only_ = false, counts_ = false, counted_before_ = false;
  std::string problem_;
  DispatchCount::Tally tally_;
};

}  // namespace msprobe::capture
