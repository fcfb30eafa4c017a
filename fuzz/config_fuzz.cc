// Reads any bytes as config.json: the result is a configuration, or an error that names the file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/dump/config/config.h"
#include "fuzz/target.h"

FUZZ_TARGET(config) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = msprobe::dump::ParseConfig(text, "config.json");
  if (config.ok()) {
    for (const msprobe::Message& line : config->warnings)
      if (line.empty()) std::abort();
    if (!std::is_sorted(config->step.begin(), config->step.end())) std::abort();
    return 0;
  }
  if (config.status().code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
  if (config.status().message().find("config.json") == std::string::npos) std::abort();
  return 0;
}
