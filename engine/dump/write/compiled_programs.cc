#include "engine/dump/write/compiled_programs.h"

#include "engine/base/file.h"
#include "engine/dump/write/coverage.h"

namespace msprobe::dump {

std::vector<std::string> CompiledPrograms(const std::string& folder) {
  std::vector<std::string> programs;
  const Result<Coverage> coverage = ReadCoverage(JoinPath(folder, kCoverageFile));
  if (!coverage.ok()) return programs;  // what it would tell is not needed to compare
  for (const Coverage::Api& module : coverage->modules_not_observed) {
    if (module.reason == RanCompiled()) programs.push_back(module.name);
  }
  return programs;
}

}  // namespace msprobe::dump
