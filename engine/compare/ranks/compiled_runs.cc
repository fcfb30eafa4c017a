#include "engine/compare/ranks/compiled_runs.h"

#include <fmt/format.h>

#include <vector>

#include "engine/dump/write/compiled_programs.h"

namespace msprobe::compare {

Message DescribeCompiledRuns(const std::string& target, const std::string& golden) {
  const std::vector<std::string> ours = dump::CompiledPrograms(target),
                                 theirs = dump::CompiledPrograms(golden);
  if (ours.empty() && theirs.empty()) return {};
  return "nothing inside {} is compared: it ran compiled (mindspore.jit) in {}; record level L0, "
         "which shows the Cells of compiled code"_t(
             fmt::format("{}", fmt::join(ours.empty() ? theirs : ours, ", ")),
             theirs.empty() ? "the target"_t
             : ours.empty() ? "the golden"_t
                            : "both runs"_t);
}

}  // namespace msprobe::compare
