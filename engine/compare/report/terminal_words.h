// Words and colours that the reports on a terminal share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/summary.h"

namespace msprobe::compare {

inline constexpr std::string_view kRed = "\x1b[1;31m", kYellow = "\x1b[33m", kGreen = "\x1b[1;32m",
                                  kBold = "\x1b[1m", kDim = "\x1b[2m", kReset = "\x1b[0m";

std::string_view ColorOf(RunVerdict verdict);
Message Headline(RunVerdict verdict);  // "DIFFERS"
// What introduced, inherited and rounding mean, for those of these words that are in `report`; "":
// none is.
Message Legend(std::string_view report);
// The lines of "train.py:41 in forward: y = gelu(x)". Without `whole`, the code after the place is
// cut where it needs more than one further line; the place is never cut.
std::vector<std::string> SourceLines(std::string_view source, int width, bool whole);
// The lines that say where a divergence is: its module, its source line, and the line of the user's
// own code which called that.
std::vector<std::string> PlaceLines(const FirstDivergence& divergence, int width, bool whole);

}  // namespace msprobe::compare
