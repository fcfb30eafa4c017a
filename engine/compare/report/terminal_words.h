// Words and colours that the reports on a terminal share.
#pragma once

#include <string_view>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

inline constexpr std::string_view kRed = "\x1b[1;31m", kYellow = "\x1b[33m", kGreen = "\x1b[1;32m",
                                  kBold = "\x1b[1m", kDim = "\x1b[2m", kReset = "\x1b[0m";

std::string_view ColorOf(RowVerdict verdict);
std::string_view Headline(RowVerdict verdict);  // "DIFFERS"
// 0 equal, 1 noise, 2 unknown, 3 differs: the worst verdict of several has the largest number.
int Badness(RowVerdict verdict);

}  // namespace msprobe::compare
