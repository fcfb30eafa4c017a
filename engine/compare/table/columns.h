// Which columns a result table has, in which order, and how their cells are written. The columns of
// the older tools come first, name for name; ours follow at the end.
//
//   for (const Column& c : ColumnsOf(comparison, {})) header.emplace_back(c.name);
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/table/table_options.h"

namespace msprobe::compare {

enum class CellKind : uint8_t {
  kText,      // text of a dump or a source file: a spreadsheet must not take it for a formula
  kNumber,    // a computed number, or a number as the dump spells it; needs no quotes in csv
  kWord,      // one of the program's words: "pass", "N/A", "50.0%"; needs no quotes in csv
  kSentence,  // a sentence or list of the program; it may hold commas and quotes
};

class GenerationCells;
using CellWriter = CellKind (*)(GenerationCells&);  // appends the text of a cell

struct Column {
  std::string_view name;  // header text; no two columns of a table have the same
  bool ours;              // not a column of the generation: it comes after those
  CellWriter write;
};

std::vector<Column> ColumnsOf(const Comparison& comparison, const TableOptions& options);

}  // namespace msprobe::compare
