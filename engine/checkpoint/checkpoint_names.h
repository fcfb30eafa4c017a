// Which parameter of one checkpoint is which of the other, and how its elements are named.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/parameter_mapping.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::checkpoint {

struct PairedNames {
  std::vector<std::string> target, golden;         // as tables show them, one a tensor
  std::vector<std::pair<int32_t, int32_t>> pairs;  // by golden order where both have it; -1: none
  std::vector<char> mapped;                        // one a target: called differently on purpose
  std::vector<std::string> notes;
};
PairedNames PairNames(const Checkpoint& target, const Checkpoint& golden,
                      const ParameterMapping& mapping = {});

// "1.5 against 1.25 at [2, 0]; relative L2 ...": one row of a comparison.
std::string WorstElement(const compare::Comparison& comparison, size_t row);

}  // namespace msprobe::checkpoint
