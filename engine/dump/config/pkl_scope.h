// Which calls are recorded in a mode (PklMode) of the fronts of the older tools. Calls have the
// names that they have in the lines of a pkl file.
//
//   PklScope scope(style);
//   if (scope.Wants("Functional_relu_0_forward")) Record();      // ask for each call, in order
#pragma once

#include <string_view>

#include "engine/dump/config/pkl_style.h"

namespace msprobe::dump {

// kList: calls whose names begin with a name of the scope. A number at the end is taken as a whole:
// "Tensor_abs_1" is not the beginning of "Tensor_abs_10". kRange: from the first call that fits the
// first name to the first call that fits the second name; in ptdbg_ascend 0.1 by the numbers in
// front of the names, both included. kStack: all calls (no name in the scope), a list (one name) or
// a range (two names). kApiList: calls whose names contain a given text, in upper or lower case.
class PklScope {
 public:
  PklScope() = default;
  explicit PklScope(const PklStyle& style);

  bool wants_all() const { return kind_ == Kind::kAll; }
  bool Wants(std::string_view name);
  void NewStep() { open_ = closed_ = false; }

 private:
  enum class Kind : uint8_t { kAll, kList, kNumbers, kRange, kParts };
  Kind kind_ = Kind::kAll;
  std::vector<std::string> names_;
  int64_t first_ = 0, last_ = 0;
  bool open_ = false, closed_ = false;
};

// The number in front of "7_Functional_relu_forward", or of "7" alone; -1: none.
int64_t NumberInFront(std::string_view name);

}  // namespace msprobe::dump
