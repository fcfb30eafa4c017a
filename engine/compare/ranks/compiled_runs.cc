#include "engine/compare/ranks/compiled_runs.h"

#include <fmt/format.h>

#include <vector>

#include "engine/dump/write/compiled_programs.h"

namespace msprobe::compare {

std::string DescribeCompiledRuns(const std::string& target, const std::string& golden) {
  const std::vector<std::string> ours = dump::CompiledPrograms(target),
                                 theirs = dump::CompiledPrograms(golden);
  if (ours.empty() && theirs.empty()) return "";
  const std::string_view sides = theirs.empty() ? "the target"
                                 : ours.empty() ? "the golden"
                                                : "both runs";
  return fmt::format(
      "nothing inside {} is compared: it ran compiled (mindspore.jit) in {}; record level L0, "
      "which "
      "shows the Cells of compiled code",
      fmt::join(ours.empty() ? theirs : ours, ", "), sides);
}

}  // namespace msprobe::compare
