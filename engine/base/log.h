// One line per event: "2026-01-02 03:04:05 (1234) [rank 0] [WARNING] message". Control characters
// become '_'. MSPROBE_LOG_LEVEL: 0 debug, 1 info (default), 2 warning, 3 error, 4 silent.
//
//   Log(LogLevel::kWarning, "the disk is full: collection stopped"_t);
#pragma once

#include "engine/base/messages/message.h"

namespace msprobe {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kSilent };

// Thread-safe; one write(2) to standard error, in the reader's language.
void Log(LogLevel level, const Message& message);
void SetLogRank(int rank);  // negative: no rank (the default)

}  // namespace msprobe
