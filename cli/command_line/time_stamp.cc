#include "cli/command_line/time_stamp.h"

#include <ctime>

namespace msprobe::cli {

std::string TimeStamp(long long seconds_since_epoch) {
  const std::time_t time = static_cast<std::time_t>(seconds_since_epoch);
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y%m%d%H%M%S", &local));
}

}  // namespace msprobe::cli
