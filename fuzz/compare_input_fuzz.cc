// Reads any bytes as the compare.json of msprobe 1.0 and 8: the result is two paths, or an error
// that names the file. The paths are then translated to arguments of the present command line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/inputs/generation_arguments.h"
#include "engine/compare/compare_input.h"
#include "fuzz/target.h"

FUZZ_TARGET(compare_input) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto input = msprobe::compare::ParseCompareInput(text, "compare.json");
  if (!input.ok()) {
    const auto code = input.status().code();
    if (code != msprobe::ErrorCode::kInvalidConfig && code != msprobe::ErrorCode::kNotFound)
      std::abort();
    if (input.status().message().find("compare.json") == std::string::npos) std::abort();
    return 0;
  }
  if (input->target.empty() || input->golden.empty()) std::abort();
  const auto words = msprobe::cli::TranslateCompareArguments({"-s", "-o", "out"}, *input);
  if (!words.ok() || words->front() != "compare") std::abort();
  return 0;
}
