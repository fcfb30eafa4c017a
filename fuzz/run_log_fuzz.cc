// Reads any bytes as the log that a training writes under `msprobe selfcheck`.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/selfcheck/run_log.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(run_log) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  const auto log = msprobe::selfcheck::ReadRunLog(path);
  if (!log.ok()) {
    msprobe::CheckRefusal(log.status(), path);
    return 0;
  }
  if (log->StepCount() > log->steps.size()) std::abort();
  for (const msprobe::selfcheck::RunLog::Step& step : log->steps)
    for (const msprobe::selfcheck::RunLog::Value& value : step.values)
      if (msprobe::selfcheck::ValueKindName(value.kind).empty()) std::abort();
  return 0;
}
