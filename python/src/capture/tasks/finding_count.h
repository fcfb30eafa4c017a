// Calls that a task looked for and found: said one by one; after so many, collection ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "capture/recording/recording.h"

namespace msprobe::capture {

class FoundCalls {
 public:
  // `complete` writes what belongs to a step before collection ends.
  FoundCalls(Recording* recording, std::function<void()> complete)
      : recording_(recording), complete_(std::move(complete)) {}

  // One more, made at `site`, a number of the table of stacks; `limit`: -1 is no end. `kind`:
  // "overflow".
  void Count(std::string_view what, int64_t limit, std::string_view kind, int64_t site);
  void Forget() { found_ = 0; }

 private:
  Recording* recording_;
  std::function<void()> complete_;
  int64_t found_ = 0;
};

}  // namespace msprobe::capture
