// Reads any bytes as coverage.json: if they can be read, the result can be shown and written, and
// reading the written file gives the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/dump/write/coverage.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

FUZZ_TARGET(coverage) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  const auto coverage = msprobe::dump::ReadCoverage(path);
  if (!coverage.ok()) {
    if (coverage.status().code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
    if (coverage.status().message().find(path) == std::string::npos) std::abort();
    return 0;
  }
  msprobe::dump::CoverageLines(*coverage, 3);
  const std::string written = msprobe::dump::CoverageJson(*coverage);
  file.Set(reinterpret_cast<const uint8_t*>(written.data()), written.size());
  const auto again = msprobe::dump::ReadCoverage(path);
  if (!again.ok() || msprobe::dump::CoverageJson(*again) != written) std::abort();
  return 0;
}
