// `msprobe merge_result`: from the result tables of many ranks the values of chosen calls, one
// sheet a metric, one column a rank.
//
//   MSPROBE_ASSIGN_OR_RETURN(MergeConfig config, ReadMergeConfig("merge.yaml"));
//   MSPROBE_ASSIGN_OR_RETURN(MergedTables merged, MergeRanks("out", config));
//   MSPROBE_RETURN_IF_ERROR(WriteMerged(merged, "out/multi_ranks_compare_merge_TIME.xlsx"));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::compare {

struct MergeConfig {
  std::vector<std::string> apis;     // found with a dot behind it anywhere in a row's NPU Name
  std::vector<std::string> indices;  // names of columns; empty: all metrics of the tables
};
// YAML: `api` (needed) and `compare_index`, lists of texts. Errors: kNotFound; kInvalidConfig.
Result<MergeConfig> ReadMergeConfig(const std::string& path);

struct MergedTables {
  struct Row {
    std::string name;
    std::map<int64_t, std::string> values;  // by rank; a rank without the row has none
  };
  struct Index {
    std::string name;
    std::vector<Row> rows;  // in the order in which the ranks, from the lowest on, have them
  };
  std::vector<int64_t> ranks;
  std::vector<Index> indices;
  std::vector<std::string> notes;  // files and columns that were left out, and why
};

// Of the files compare_result_rank<N>[-rank<N>]_<14 digits>.csv or .xlsx in `folder`; of several of
// one rank the newest counts. Cells without a number are "NPU:<max>  Bench:<max>". Errors: fewer
// than two ranks; no row that the configuration asks for; an index that no table has; a file that
// cannot be read.
Result<MergedTables> MergeRanks(const std::string& folder, const MergeConfig& config);

Status WriteMerged(const MergedTables& merged, const std::string& path);

}  // namespace msprobe::compare
