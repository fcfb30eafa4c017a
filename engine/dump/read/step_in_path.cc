#include "engine/dump/read/step_in_path.h"

#include <charconv>

namespace msprobe::dump {

int32_t StepInPath(std::string_view path) {
  constexpr std::string_view kStep = "step";
  while (!path.empty()) {
    const size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    if (name.starts_with(kStep) && name.size() > kStep.size()) {
      int32_t step = -1;
      const char* const end = name.data() + name.size();
      const auto [at, error] = std::from_chars(name.data() + kStep.size(), end, step);
      if (error == std::errc() && at == end && step >= 0) return step;
    }
    path = path.substr(0, slash == path.npos ? 0 : slash);
  }
  return -1;
}

}  // namespace msprobe::dump
