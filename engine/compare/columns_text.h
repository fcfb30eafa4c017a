// How the tables spell what they took from a dump: as Python printed it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msprobe {

// The file's spelling of a statistic as the tables print it: "Nan", " inf", " -inf", "None",
// "True"; "N/A" when absent.
std::string_view StatisticText(std::string_view spelled);

// Appends Python's repr() of a list of strings: ['a', "it's"], the form of the stack and Data_name
// cells.
void AppendPythonList(std::string* out, const std::vector<std::string_view>& items);

// Appends `value` rounded to 12 decimals and spelled as Python prints a float: how the earlier
// tools round their metrics.
void AppendRounded(std::string* out, double value, int decimals = 12);

}  // namespace msprobe
