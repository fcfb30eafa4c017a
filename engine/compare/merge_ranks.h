// `msprobe merge_result`: collects the values of chosen calls from the result tables of many ranks.
// The result has one sheet for each metric and one column for each rank.
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
  // A row is taken when one of these occurs in its NPU Name, followed by a dot.
  std::vector<std::string> apis;
  std::vector<std::string> indices;  // names of columns; empty: all metrics of the tables
};
// Reads YAML with the keys `api` (required) and `compare_index`, both lists of texts. Errors:
// kNotFound; kInvalidConfig.
Result<MergeConfig> ReadMergeConfig(const std::string& path);

struct MergedTables {
  struct Row {
    std::string name;
    std::map<int64_t, std::string> values;  // by rank; a rank without this row has no value
  };
  struct Index {
    std::string name;
    std::vector<Row> rows;  // in the order of the lowest rank; rows of further ranks follow
  };
  std::vector<int64_t> ranks;
  std::vector<Index> indices;
  std::vector<Message> notes;  // files, columns and values that were left out, and why
};

// Reads the files compare_result_rank<N>[-rank<N>]_<14 digits>.csv or .xlsx in `folder`; when a
// rank has several, the newest one. A cell without a number becomes "NPU:<max>  Bench:<max>".
// Errors: fewer than two ranks; no row that the configuration names; an index that no table has; a
// file that cannot be read.
Result<MergedTables> MergeRanks(const std::string& folder, const MergeConfig& config);

Status WriteMerged(const MergedTables& merged, const std::string& path);

}  // namespace msprobe::compare
