// Which calls a mode of the fronts of the older tools wants, by the names that lines have.
//
//   PklScope scope(style);
//   if (scope.Wants("Functional_relu_0_forward")) Record();      // each call, in their order
#pragma once

#include <string_view>

#include "engine/dump/config/pkl_style.h"

namespace msprobe::dump {

// list: names that begin with one of the scope; a number at its end is a whole one, so that
// "Tensor_abs_1" is not the beginning of "Tensor_abs_10". range: in ptdbg_ascend 0.1 the numbers
// in front of the names, both included; later from the first call that the first name fits to the
// first that the second fits. stack: all of them, a list of one, or a range. api_list: a part of
// the name, whatever its case.
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
