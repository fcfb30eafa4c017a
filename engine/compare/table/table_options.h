// Which generation's table is written. The generations differ in columns, in the spelling of cells
// and in how they judge a row; our columns follow the generation's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::compare {

enum class Generation : uint8_t {  // by age
  kHooks,                          // torch_npu.hooks: Cosine, RMSE, MAPE
  kPtdbgFirst,                     // ptdbg_ascend 0.1
  kPtdbg,                          // ptdbg_ascend 4 to 6: Accuracy Reached or Not, Result
  k1,    // msprobe 1.0: compare.json, Accuracy Reached or Not, no requires_grad
  k1_2,  // msprobe 1.2: the columns of 1.0, mostly with the words of 8
  k8,    // msprobe 8: compare.json, Accuracy Reached or Not
  k26,   // msprobe 26: -tp and -gp, Result
};

// Of more ranks than this, nobody looks at the table of each: they have only rows that differ.
inline constexpr size_t kManyRanks = 64;

// The tables of torch_npu.hooks and ptdbg_ascend.
constexpr bool IsPklTable(Generation generation) { return generation <= Generation::kPtdbg; }

struct TableOptions {
  Generation generation = Generation::k26;
  bool stacks = true;      // the column NPU_Stack_Info, where the target has call stacks
  bool highlight = false;  // generation 8: the rules that color rows are applied, and explained
  // torch_npu.hooks, ptdbg_ascend 0.1: cosines run from 0 to 1, 0.5 + 0.5 cos, as these wrote them.
  bool half_cosine = false;
  // Where msprobe 1.2 wrote both dumps, the table is that of 1.2, whatever `generation` says.
  bool recognize_1_2 = false;
  // Rows that agree are not written.
  bool only_differing = false;
};

}  // namespace msprobe::compare
