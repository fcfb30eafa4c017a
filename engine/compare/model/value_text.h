// How tables spell values of a dump: as Python prints them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

std::string_view MatchName(Match value);  // "exact", "aligned", "target only", "golden only"

// How tables print a statistic that the file spells so: "Nan", " inf", " -inf", "None", "True";
// "N/A" when there is none.
std::string_view StatisticText(std::string_view spelled);

// The recorded checksum. Of a plain value without one: the CRC-32 of what Python's str() gives for
// it, as msprobe 1.2 to 26 compare plain values; of a process group, the list of its ranks. "" when
// there is none.
std::string ChecksumText(const Leaf& leaf);
bool IsProcessGroup(const Leaf& leaf);

// Whether a spreadsheet takes the text for a number. "-1+1" is not a number: it would be computed.
bool IsPlainNumber(std::string_view text);

// Appends Python's repr() of a list of strings: ['a', "it's"], the form of the stack and Data_name
// cells.
void AppendPythonList(std::string* out, const std::vector<std::string_view>& items);

// The form of ptdbg_ascend: [['net.py', '18', 'forward', 'y = relu(x)'], ...].
void AppendFrameLists(std::string* out, const std::vector<std::string_view>& frames);

// The position of a row-major index in a shape: "[2, 0, 5]" for 53 in [4, 3, 8]. The number itself
// when the extents of the shape are not known.
std::string IndexText(int64_t index, Shape shape);

// `value` rounded to so many decimals. Most generations round their metrics to 12.
double Rounded(double value, int decimals);

}  // namespace msprobe::compare
