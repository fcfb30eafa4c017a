// The graph of a dump, or of a comparison, as the .vis.db file that the plugin tb_graph_ascend of
// TensorBoard opens: tables tb_nodes, tb_stack and tb_config of SQLite, as msprobe 26 writes them.
//
//   MSPROBE_ASSIGN_OR_RETURN(auto graph, VisDb::Create("out/compare.vis.db", {}));
//   MSPROBE_RETURN_IF_ERROR(graph->AddComparison(comparison, {.step = 3, .rank = 0}));
//   graph->Judge(results);                      // all steps are known
//   MSPROBE_RETURN_IF_ERROR(graph->Finish());   // now the file has its name
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/exports/databases/database.h"
#include "engine/exports/databases/node_tree.h"

namespace msprobe::exports {

// The plugin of TensorBoard becomes slow with larger files.
inline constexpr uint64_t kLargeVisDb = uint64_t{2} << 30;

struct VisDbOptions {
  bool overflow_check = false;  // fill overflow_level
};

struct GraphPlace {
  int32_t step = -1, rank = -1;  // -1: without a number, 0 in the file
};

// One file holds either dumps or comparisons. Rows are written at once; what stays in memory is a
// few bytes for each call of torch.distributed. Thread-safe. Errors: those of Database;
// kInvalidArgument when a dump has no modules.
class VisDb {
 public:
  static Result<std::unique_ptr<VisDb>> Create(const std::string& path,
                                               const VisDbOptions& options);
  Status AddDump(const Dump& dump, const GraphPlace& place);
  Status AddComparison(const compare::Comparison& comparison, const GraphPlace& place);
  // What the steps are to each other, which no comparison of one step tells; to be called after
  // JudgeSteps. In a step that inherits its error, or begins with weights that were updated
  // wrongly, no call is shown as the place where an error begins; where the differences are the
  // rounding of the step before, all calls are.
  void Judge(std::span<const compare::RankResult> results);
  Status Finish();
  int64_t nodes() const { return nodes_; }

 private:
  struct Side;
  // A call of an exchange, until the calls of the other ranks are known.
  struct ExchangeNode {
    int64_t row = 0;  // in tb_nodes
    int32_t step = 0, rank = 0;
    std::string kind, name;
    std::optional<double> verdict;
  };

  explicit VisDb(Database db, const VisDbOptions& options);
  Status AddSide(const Side& side);
  Status AddNode(const Side& side, int32_t node, std::string_view stack);
  Result<std::string> StackOf(const Side& side, int32_t record, std::vector<int64_t>* numbers);
  Status WriteJudgements();
  std::optional<double> Judged(const ExchangeNode& node) const;
  Status LinkExchanges();
  Status WriteConfig();

  std::mutex mutex_;
  Database db_;
  const VisDbOptions options_;
  std::optional<Insert> insert_node_, insert_stack_;
  std::optional<compare::Mode> mode_;  // of comparisons; none: dumps
  std::set<int32_t> steps_, ranks_;
  // The highest precision_index that a node may have, by step and rank; of those that have a limit.
  std::map<std::pair<int32_t, int32_t>, double> limits_;
  int32_t micro_steps_ = 1;
  int64_t nodes_ = 0;
  // Of one side, while it is written: the text of a stack, and its number.
  std::unordered_map<std::string, int64_t> stacks_;
  // By side, step and key of the exchange (exchange_keys.h).
  std::map<std::string, std::vector<ExchangeNode>> exchanges_;
};

}  // namespace msprobe::exports
