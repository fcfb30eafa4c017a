// Of one comparison what reports for continuous integration list: how each operation fared, and the
// first calls that differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// All calls of one api in one direction together: the names are the same from run to run, and few.
struct ApiTally {
  std::string name;  // "Functional.linear.forward"
  int64_t agree = 0, differ = 0, unknown = 0;
  std::string first;  // of the calls that differ: name and what is wrong with it; else ""
};

struct WrongCall {
  std::string name, what, source_line;
  CallClass call_class = CallClass::kUnknown;
};

struct RankDetails {
  std::vector<ApiTally> apis;    // in the order of their first calls
  std::vector<WrongCall> wrong;  // the first hundred, in execution order
};

RankDetails DetailsOf(const Comparison& comparison);

}  // namespace msprobe::compare
