// The section of task grad_probe: which gradients of parameters are summarised, and how much.
//
//   MSPROBE_RETURN_IF_ERROR(ReadGradientRule(place, value, &config.gradients));   // "bounds"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/config_values.h"

namespace msprobe::dump {

enum class GradLevel : uint8_t {
  kL0,  // checksum
  kL1,  // directions
  kL2,  // directions, and how the elements are spread over `bounds`
};

struct GradientRules {
  GradLevel level = GradLevel::kL1;
  std::vector<std::string> parameters;  // whole names; empty: all
  std::vector<double> bounds = {-1, 0, 1};
  std::vector<std::string> bound_texts = {"-1", "0", "1"};  // as columns are named
};

inline constexpr std::string_view kGradLevels[] = {"L0", "L1", "L2"};

// One of "grad_level", "param_list", "bounds".
Status ReadGradientRule(const ConfigPlace& place, const formats::JsonValue& value,
                        GradientRules* rules);

}  // namespace msprobe::dump
