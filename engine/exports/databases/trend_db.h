// Statistics over steps and ranks as the .trend.db file that the page "Trend Analyzer" of msprobe
// 26 opens: tables monitoring_*, trend_data and global_stats of SQLite.
//
//   MSPROBE_ASSIGN_OR_RETURN(auto trend, TrendDb::Create(path, {{"forward"}, {"norm", "max"}}));
//   const TrendTarget target{.name = "Functional.linear.input.0", .tags = tags};
//   MSPROBE_RETURN_IF_ERROR(trend->Add(target, {.step = 3, .rank = 0, .metric = 0}, {{1.5, 0.5}}));
//   MSPROBE_RETURN_IF_ERROR(trend->Finish());   // now the file has its name
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/exports/databases/database.h"

namespace msprobe::exports {

struct TrendColumns {
  std::vector<std::string> metrics;     // "forward", "backward"
  std::vector<std::string> statistics;  // "norm", "max": columns of trend_data
  // Of each metric the statistics that it has; empty: all of them.
  std::vector<std::vector<std::string>> of_metrics;
};

// A word under which the page finds a target.
struct TrendTag {
  std::string category;  // default, index, layer, module, function
  std::string name;
};

struct TrendTarget {
  std::string_view name;
  int32_t vpp_stage = 0;
  int32_t number = 0;  // of the targets with this name in one step
  std::span<const TrendTag> tags;
};

struct TrendPlace {
  int64_t step = 0, rank = 0;
  size_t metric = 0;  // index into TrendColumns::metrics
};

// As the page shows it: numbers beyond 1e9 are 1e9, infinity is 1e9 + 1, the same below zero. NaN
// stays, and is NULL in the file.
double ClampTrend(double value);

// Errors: those of Database.
class TrendDb {
 public:
  static Result<std::unique_ptr<TrendDb>> Create(const std::string& path,
                                                 const TrendColumns& columns);
  // One row: a number for each statistic, NaN where there is none. Of several rows for one place
  // and target the first is kept.
  Status Add(const TrendTarget& target, const TrendPlace& place,
             std::span<const double> statistics);
  // Row by row, step s becomes s / from * to + s % from: room for more passes in each step.
  Status SpreadSteps(int64_t from, int64_t to);
  Status Finish();
  int64_t rows() const { return rows_; }

 private:
  explicit TrendDb(Database db, const TrendColumns& columns);
  Result<int64_t> IdOf(const TrendTarget& target);
  Status AddTags(const TrendTarget& target, int64_t target_id, size_t metric);

  Database db_;
  const TrendColumns columns_;
  std::optional<Insert> insert_row_, insert_target_, insert_tag_, insert_mapping_;
  std::map<std::tuple<std::string, int32_t, int32_t>, int64_t> targets_;
  std::map<std::tuple<std::string, std::string, size_t>, int64_t> tags_;
  std::set<std::pair<int64_t, size_t>> tagged_;  // target and metric
  int64_t rows_ = 0;
};

// The tags of the parts of a name: "layers.0" and "mlp.fc.Linear" of "layers.0.mlp.fc.Linear". With
// `each_part`, "layers", "mlp", "fc" and "Linear" besides "layers.0".
void AppendPathTags(std::string_view path, bool each_part, std::vector<TrendTag>* tags);

}  // namespace msprobe::exports
