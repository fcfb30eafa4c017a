// How the tables spell what they took from a dump: as Python printed it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

std::string_view MatchName(Match value);  // "exact", "aligned", "target only", "golden only"

// The file's spelling of a statistic as the tables print it: "Nan", " inf", " -inf", "None",
// "True"; "N/A" when absent.
std::string_view StatisticText(std::string_view spelled);

// The recorded checksum. Of a plain value without one: the CRC-32 of its text, as the tools of all
// generations compare plain values. "" when there is none.
std::string ChecksumText(const Leaf& leaf);

// Whether a spreadsheet reads it as a number, and not as a sum ("-1+1").
bool IsPlainNumber(std::string_view text);

// Appends Python's repr() of a list of strings: ['a', "it's"], the form of the stack and Data_name
// cells.
void AppendPythonList(std::string* out, const std::vector<std::string_view>& items);

// The form of ptdbg_ascend: [['net.py', '18', 'forward', 'y = relu(x)'], ...].
void AppendFrameLists(std::string* out, const std::vector<std::string_view>& frames);

// "[2, 0, 5]" of a row-major index and a shape such as "[4, 3, 8]"; the number itself where the
// shape does not tell.
std::string IndexText(int64_t index, std::string_view shape);

// `value` rounded to decimals as the earlier tools round their metrics (to 12).
double Rounded(double value, int decimals);

}  // namespace msprobe::compare
