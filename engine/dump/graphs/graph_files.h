// The values of one graph in one iteration: the names of its files, the lines of its statistic.csv.
//
//   GraphFiles graph;
//   MSPROBE_RETURN_IF_ERROR(graph.Read("dump/rank_0/net/0/2"));
//   for (const GraphValue& v : graph.values) Print(v.name, v.run, v.slot);
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe::dump {

inline constexpr char kStatisticFile[] = "statistic.csv";

// Whether the text begins as MindSpore's statistic.csv does.
bool BeginsAsStatistics(std::string_view text);

struct GraphValue {
  std::string_view type, name, dtype;  // as in GraphFileName
  bool is_output = false;
  int32_t slot = 0;
  uint64_t time = 0;
  int64_t run = 0;                        // of the operator in this iteration
  std::string_view file;                  // "": no elements
  std::string_view shape;                 // of the table; "": no line there
  std::array<std::string_view, 4> stats;  // max, min, mean, norm, as spelled; "": not recorded
  ElementCounts counts;
  std::string_view digest;  // "": not recorded
};

// The values are sorted by operator, run, inputs before outputs, slot.
struct GraphFiles {
  Status Read(const std::string& folder);

  std::vector<GraphValue> values;
  std::vector<std::string> others;  // files that are neither a tensor nor a table
  bool has_files = false;
  std::deque<std::string> texts;  // what the views point into

 private:
  Status ReadStatistics(const std::string& folder);
  void Number();
};

}  // namespace msprobe::dump
