// Counts, during one step, which calls were observed and which were not, for coverage.json.
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
#include "engine/base/messages/message.h"
#include "engine/dump/write/coverage.h"

namespace msprobe::capture {

class CoverageCounter {
 public:
  dump::CallCounts apis, modules;                // apis.nested is counted in call_place.h
  int64_t gradients = 0, ignored_gradients = 0;  // backward calls: recorded, and left out
  int64_t expected_gradients = 0;           // calls and saved values whose gradients are waited for
  int64_t saves = 0, refused_saves = 0;     // level debug
  std::vector<dump::Coverage::Api> unseen;  // APIs that are listed and cannot be observed
  std::vector<dump::Coverage::Api> unseen_modules;  // Cells in compiled graphs
  // Where compiled code was entered, in any step that was counted: a module stays compiled.
  std::vector<dump::Coverage::Compiled> compiled;

  // To be called when a step that is recorded starts. Operations of the dispatcher are counted in
  // the first such step of the process only: counting costs time, and one step shows which
  // operations a program uses.
  void Start(bool modules_only);
  // The counts of the step so far. `is_listed`: whether an API with this last name ("relu") is
  // observed.
  using IsListed = std::function<bool(std::string_view name)>;
  dump::Coverage Stop(const IsListed& is_listed);
  void NewStep();

 private:
  void AddTally();

  int64_t nested_before_ = 0, traced_before_ = 0;
  bool modules_only_ = false, counts_ = false, counted_before_ = false;
  Message problem_;
  DispatchCount::Tally tally_;
};

}  // namespace msprobe::capture
