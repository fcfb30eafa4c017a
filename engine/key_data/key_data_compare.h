// Compares what two runs saved by name (key_data_writer.h): a workbook <key>.xlsx for each key,
// with the columns of msprobe 26, a row for each value that both have.
//
//   MSPROBE_ASSIGN_OR_RETURN(KeyDataComparison c, CompareKeyData("runs/a", "runs/b", "out"));
//   if (c.unequal > 0) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::key_data {

inline constexpr std::string_view kKeyDataColumns[] = {"step",
                                                       "rank",
                                                       "micro_step",
                                                       "id",
                                                       "shape1",
                                                       "shape2",
                                                       "相同元素百分比(%)",
                                                       "首个不匹配元素索引",
                                                       "最大绝对误差",
                                                       "最大相对误差",
                                                       "误差在千分之一内元素占比(%)",
                                                       "误差在百分之一内元素占比(%)"};

// Two values, element by element. A NaN equals nothing, an infinity one of the same sign.
struct KeyDifference {
  double same = 0;                              // percent of the elements
  std::optional<int64_t> first_mismatch;        // its logical index
  double max_abs_error = 0, max_rel_error = 0;  // NaN when an error is; relative to the larger one
  double within_thousandth = 0, within_hundredth = 0;  // percent, by the error relative to it
};
// Of different shapes the elements that both have are compared: the smaller extent of each
// dimension; of different numbers of dimensions the first elements.
KeyDifference CompareKeyValues(const TensorView& first, const TensorView& second);

struct KeyDataComparison {
  int64_t keys = 0, values = 0, unequal = 0;  // keys with a table, compared values, unequal ones
  int64_t only_one = 0;                       // values that one side lacks
  std::vector<Message> errors;                // files that could not be read
};
// `first`, `second`: folders that hold data/. Errors: kNotFound when one has none, kIo.
Result<KeyDataComparison> CompareKeyData(const std::string& first, const std::string& second,
                                         const std::string& output);

}  // namespace msprobe::key_data
