// The time in the names of files.
//
//   const std::string name = fmt::format("compare_result_{}.csv", TimeStamp(std::time(nullptr)));
#pragma once

#include <string>

namespace msprobe::cli {

// "20260102030405", in local time, as in the file names of the older tools.
std::string TimeStamp(long long seconds_since_epoch);

}  // namespace msprobe::cli
