// The version of the engine, the command line and the wheel: one number, kept equal to
// pyproject.toml by tests/base/version_test.cc.
#pragma once

#include <string_view>

namespace msprobe {

inline constexpr std::string_view kVersion = "27.0.0";

}  // namespace msprobe
