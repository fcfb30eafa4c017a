// Pairs the parameters of two checkpoints by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/parameter_mapping.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::checkpoint {

struct PairedNames {
  std::vector<std::string> target, golden;  // the name of each tensor, as tables show it
  // Indices of tensors of the target and of the golden; -1: no partner. In the order of the golden;
  // tensors of the target alone follow.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  std::vector<char> mapped;  // for each target tensor: whether the mapping gives it another name
  std::vector<Message> notes;
};
PairedNames PairNames(const Checkpoint& target, const Checkpoint& golden,
                      const ParameterMapping& mapping = {});

// Describes one row of a comparison of checkpoints: "1.5 against 1.25 at [2, 0]; relative L2 ...".
Message WorstElement(const compare::Comparison& comparison, size_t row);

}  // namespace msprobe::checkpoint
