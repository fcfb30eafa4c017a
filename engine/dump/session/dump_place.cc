#include "engine/dump/session/dump_place.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/base/writable_folder.h"

namespace msprobe::dump {
namespace {

bool WritesNothing(const Config& config, std::optional<int> rank) {
  if (IsDisabledByEnvironment() || !config.dump_enable.value_or(true)) return true;
  if (config.level == Level::kL2 && config.task != Task::kGradProbe) return true;
  return !config.rank.empty() &&
         (!rank || !std::binary_search(config.rank.begin(), config.rank.end(), *rank));
}

}  // namespace

bool IsDisabledByEnvironment() {
  const char* disabled = std::getenv("MSPROBE_DISABLE");
  return disabled != nullptr && std::string_view(disabled) == "1";
}

Status CheckDumpPlace(const Config& config, std::optional<int> rank) {
  if (WritesNothing(config, rank)) return Status::Ok();
  Status status = CheckWritable(config.dump_path);
  if (status.ok()) return status;
  return std::move(status).Hint("name another folder in \"dump_path\""_t);
}

}  // namespace msprobe::dump
