// What reports for continuous integration list of one comparison: how many calls of each operation
// agree, and the first calls that differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The calls of one api in one direction, counted. These names are few, and the same in each run.
struct ApiTally {
  std::string name;  // "Functional.linear.forward"
  int64_t agree = 0, differ = 0, unknown = 0;
  Message first;  // the first call that differs, and what is wrong with it; "": none differs
};

struct WrongCall {
  std::string name, source_line;
  Message what;
  CallClass call_class = CallClass::kUnknown;
};

struct RankDetails {
  std::vector<ApiTally> apis;    // in the order of their first calls
  std::vector<WrongCall> wrong;  // the first hundred, in execution order
};

RankDetails DetailsOf(const Comparison& comparison);

}  // namespace msprobe::compare
