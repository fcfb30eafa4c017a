#include "engine/base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <string>

namespace msprobe {
namespace {

constexpr std::string_view kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
std::atomic<int> log_rank{-1};

LogLevel Threshold() {
  static const LogLevel level = [] {
    const char* text = std::getenv("MSPROBE_LOG_LEVEL");
    if (text == nullptr || text[0] < '0' || text[0] > '4' || text[1] != '\0')
      return LogLevel::kInfo;
    return static_cast<LogLevel>(text[0] - '0');
  }();
  return level;
}

}  // namespace

void SetLogRank(int rank) { log_rank = rank; }

void Log(LogLevel level, const Message& message) {
  if (level < Threshold() || level == LogLevel::kSilent) return;
  const std::time_t now = std::time(nullptr);
  std::tm local;
  ::localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &local);
  std::string line = fmt::format("{} ({}) ", time, ::getpid());
  if (const int rank = log_rank; rank >= 0) line += fmt::format("[rank {}] ", rank);
  line += fmt::format("[{}] ", kNames[static_cast<int>(level)]);
  for (const char c : message.Shown())
    line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  line += '\n';
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace msprobe
