// The result tables that one or more runs of compare left in a folder.
//
//   MSPROBE_ASSIGN_OR_RETURN(ResultFolder found, FindResultTables("out"));
//   for (const ResultTable& t : found.tables) Print("rank {}: {}", t.rank, t.path);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::results {

struct ResultTable {
  std::string path;
  int32_t step = -1, rank = -1;  // -1: without a number
  std::string time;              // the 14 digits in its name
};
// "compare_finding_20260102030405.json": the document of --format json (finding_json.h), which
// compare writes beside its tables.
inline constexpr std::string_view kFindingFile = "compare_finding_";

struct ResultFolder {
  std::vector<ResultTable> tables;  // ordered by step and rank; of each pair the newest
  // The document of the comparison that wrote the tables, or ""; of parts that of merge_result.
  std::string finding;
  std::vector<Message> notes;  // sentences on what is left out, or is of different times
};

// compare_result*[_rankN]_TIME.csv and .xlsx in `folder`, and in its folders stepN. Errors: those
// of the folder. None found is not an error.
Result<ResultFolder> FindResultTables(const std::string& folder);

// One table, with the document that compare wrote beside it. A table of another name has none.
ResultFolder FindOneTable(const std::string& path);

}  // namespace msprobe::results
