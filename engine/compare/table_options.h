// Which generation's table is written. The generations differ in columns, in the spelling of cells
// and in how they judge a row; ours are behind the columns of each.
#pragma once

#include <cstdint>

namespace msprobe {

enum class Generation : uint8_t {
  k1,   // msprobe 1.0: compare.json, Accuracy Reached or Not, no requires_grad
  k8,   // msprobe 8: compare.json, Accuracy Reached or Not
  k26,  // msprobe 26: -tp and -gp, Result
};

struct TableOptions {
  Generation generation = Generation::k26;
  bool stacks = true;      // the column NPU_Stack_Info, where the target has call stacks
  bool highlight = false;  // generation 8: the rules that color rows are applied, and explained
};

}  // namespace msprobe
