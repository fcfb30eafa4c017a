#include "engine/exports/databases/vis_db.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/ranks/exchange_keys.h"
#include "engine/exports/databases/node_values.h"
#include "engine/exports/databases/overflow_level.h"

namespace msprobe::exports {
namespace {

constexpr const char* kTables = R"SQL(
CREATE TABLE tb_nodes (
    id TEXT PRIMARY KEY,
    graph_id TEXT NOT NULL,
    node_order INTEGER NOT NULL,
    node_name TEXT NOT NULL,
    node_type TEXT NOT NULL,
    up_node TEXT,
    sub_nodes TEXT,
    precision_index INTEGER,
    overflow_level TEXT,
    micro_step_id INTEGER NOT NULL,
    matched_node_link TEXT,
    stack_id TEXT,
    parallel_merge_info TEXT,
    matched_distributed TEXT,
    modified INTEGER NOT NULL,
    input_data TEXT,
    output_data TEXT,
    data_source TEXT,
    dump_data_dir TEXT,
    step INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    is_distributed INTEGER
);
CREATE TABLE tb_stack (
    id TEXT PRIMARY KEY,
    stack_info TEXT
);
CREATE TABLE tb_config (
    id TEXT PRIMARY KEY,
    graph_type TEXT NOT NULL,
    task TEXT,
    tool_tip TEXT,
    micro_steps INTEGER,
    overflow_check INTEGER,
    node_colors TEXT NOT NULL,
    rank_list TEXT NOT NULL,
    step_list TEXT NOT NULL
);
)SQL";

constexpr const char* kIndexes = R"SQL(
CREATE INDEX index1 ON tb_nodes (step, rank, data_source, up_node, node_order);
CREATE INDEX index2 ON tb_nodes (step, rank, data_source, node_name);
CREATE INDEX index3 ON tb_nodes (step, rank, data_source, node_order);
CREATE INDEX index4 ON tb_nodes (step, rank, node_order);
CREATE INDEX index5 ON tb_nodes (step, rank, micro_step_id, node_order);
CREATE INDEX index6 ON tb_nodes (step, rank, modified, matched_node_link);
CREATE INDEX index7 ON tb_nodes (is_distributed);
)SQL";

// precision_index of a node. Between two of them a color ends.
constexpr double kPassed = 0, kInherited = 0.35, kNotCompared = 0.5, kDiffers = 1;

constexpr std::string_view kColors =
    R"({"#FFFCF3": {"value": [0, 0.3], "description": "equal, or within rounding", "accuracy_level": "pass"}, )"
    R"("#FFE9B8": {"value": [0.3, 0.4], "description": "differs, and what goes in differs already: inherited", "accuracy_level": "warning"}, )"
    R"("#FFDC7F": {"value": [0.4, 0.6], "description": "a value could not be compared", "accuracy_level": "warning"}, )"
    R"("#FF704D": {"value": [0.6, 1], "description": "a value differs by more than rounding explains, and the error begins here", "accuracy_level": "error"}, )"
    R"("#C7C7C7": {"value": [], "description": "recorded on one side only", "accuracy_level": "unmatched node"}})";

template <typename Names>
std::string JsonList(const Names& names) {
  std::string json = "[";
  for (const std::string_view name : names) {
    if (json.size() > 1) json += ", ";
    AppendJsonString(&json, name);
  }
  return json + "]";
}

std::string NumberList(const std::set<int32_t>& numbers) {
  std::string json = "[";
  for (const int32_t number : numbers) {
    if (json.size() > 1) json += ", ";
    AppendInteger(&json, number);
  }
  return json + "]";
}

// As `compare` judges the call: one that inherits its error is not the place to look at.
double IndexOfPair(const compare::Comparison& c, int32_t pair) {
  switch (VerdictOfPair(c, pair)) {
    case NodeVerdict::kPass:
      return kPassed;
    case NodeVerdict::kWarning:
      return kNotCompared;
    case NodeVerdict::kError:
      break;
  }
  const bool inherited = c.classes[pair] == compare::CallClass::kInherited && pair != c.first.pair;
  return inherited ? kInherited : kDiffers;
}

std::string_view TaskOf(compare::Mode mode) {
  switch (mode) {
    case compare::Mode::kTensor:
      return "all";
    case compare::Mode::kChecksum:
      return "md5";
    case compare::Mode::kStatistics:
      break;
  }
  return "summary";
}

// The folder of the tensor files, from which the plugin reads them; "" when the dump has none.
std::string TensorFolder(const Dump& dump) {
  if (dump.task != Task::kTensor || dump.tensor_folder.empty()) return "";
  std::error_code error;
  std::string absolute = std::filesystem::absolute(dump.tensor_folder, error).string();
  return error ? dump.tensor_folder : absolute;
}

// For each record of a dump, which has no stack and is a backward call: the stack of its forward
// call. For others their own; -1: none.
std::vector<int32_t> StacksOf(const Dump& dump) {
  std::vector<int32_t> stacks;
  stacks.reserve(dump.records.size());
  bool missing = false;
  for (const Record& r : dump.records) {
    stacks.push_back(r.stack);
    missing |= r.stack < 0 && r.direction == Direction::kBackward;
  }
  if (!missing || dump.stacks.empty()) return stacks;
  std::map<std::pair<std::string_view, int64_t>, int32_t> forward;
  for (const Record& r : dump.records) {
    if (r.direction == Direction::kForward && r.stack >= 0)
      forward.emplace(std::pair(r.api.view(), r.call), r.stack);
  }
  for (size_t i = 0; i < stacks.size(); ++i) {
    const Record& r = dump.records[i];
    if (stacks[i] >= 0 || r.direction != Direction::kBackward) continue;
    if (const auto found = forward.find({r.api, r.call}); found != forward.end())
      stacks[i] = found->second;
  }
  return stacks;
}

// For each node of one side its partner on the other, and the pair that they are; -1: none.
struct Partners {
  std::vector<int32_t> nodes, pairs;

  Partners(const compare::Comparison& c, const NodeTree& own, const NodeTree& other, bool target)
      : nodes(own.nodes().size(), -1), pairs(own.nodes().size(), -1) {
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (!c.pairs[p].matched()) continue;
      const int32_t node = own.NodeOf(target ? c.pairs[p].target : c.pairs[p].golden);
      nodes[node] = other.NodeOf(target ? c.pairs[p].golden : c.pairs[p].target);
      pairs[node] = static_cast<int32_t>(p);
      // A collection belongs to the one that holds the partner of its first call.
      const int32_t around = own.nodes()[node].parent;
      const int32_t theirs = other.nodes()[nodes[node]].parent;
      const bool collections = own.nodes()[around].kind == NodeKind::kApiCollection &&
                               other.nodes()[theirs].kind == NodeKind::kApiCollection;
      if (collections && nodes[around] < 0) nodes[around] = theirs;
    }
    nodes[own.root()] = other.root();
  }
};

}  // namespace

// One dump of what is added.
struct VisDb::Side {
  const Dump& dump;
  const NodeTree& tree;
  std::string_view source;  // "NPU": the target, or the only dump; "Bench": the golden
  int32_t step = 0, rank = 0;
  // Of a comparison, else null. The golden has no values of its pairs and no verdicts.
  const compare::Comparison* comparison = nullptr;
  const NodeTree* other = nullptr;
  const Partners* partners = nullptr;
  NodeValues* values = nullptr;
  std::vector<int32_t> to_first = {};  // the nodes from the root to the first divergence

  std::string GraphId() const { return fmt::format("{}_{}_{}", source, step, rank); }

  // One of the numbers of kColors; none: it has no partner, or is not judged.
  std::optional<double> VerdictOf(int32_t node) const {
    if (values == nullptr || partners->nodes[node] < 0 || node == tree.root()) return std::nullopt;
    if (partners->pairs[node] >= 0) {
      const double index = IndexOfPair(*comparison, partners->pairs[node]);
      // A closed module shows that the first divergence is in it.
      const bool leads = std::find(to_first.begin(), to_first.end(), node) != to_first.end();
      return leads && index == kInherited ? kDiffers : index;
    }
    double worst = kPassed;  // of the calls in a collection
    for (const int32_t child : tree.ChildrenOf(node)) {
      if (partners->pairs[child] >= 0)
        worst = std::max(worst, IndexOfPair(*comparison, partners->pairs[child]));
    }
    return worst;
  }

  // The path to the partner.
  std::string LinkOf(int32_t node) const {
    std::vector<std::string_view> names;
    if (partners != nullptr && partners->nodes[node] >= 0) {
      for (const int32_t n : other->PathTo(partners->nodes[node]))
        names.push_back(other->nodes()[n].name);
    }
    return JsonList(names);
  }
};

VisDb::VisDb(Database db, const VisDbOptions& options) : db_(std::move(db)), options_(options) {}

Result<std::unique_ptr<VisDb>> VisDb::Create(const std::string& path, const VisDbOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(Database db, Database::Create(path));
  std::unique_ptr<VisDb> graph(new VisDb(std::move(db), options));
  MSPROBE_RETURN_IF_ERROR(graph->db_.Execute(kTables));
  MSPROBE_ASSIGN_OR_RETURN(
      graph->insert_node_,
      graph->db_.Prepare("INSERT INTO tb_nodes VALUES "
                         "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  MSPROBE_ASSIGN_OR_RETURN(graph->insert_stack_,
                           graph->db_.Prepare("INSERT INTO tb_stack VALUES (?, ?)"));
  return graph;
}

Status VisDb::AddDump(const Dump& dump, const GraphPlace& place) {
  MSPROBE_RETURN_IF_ERROR(CheckHasTree(dump));
  const NodeTree tree(dump);
  const std::lock_guard lock(mutex_);
  return AddSide({.dump = dump,
                  .tree = tree,
                  .source = "NPU",
                  .step = std::max(place.step, 0),
                  .rank = std::max(place.rank, 0)});
}

Status VisDb::AddComparison(const compare::Comparison& c, const GraphPlace& place) {
  MSPROBE_RETURN_IF_ERROR(CheckHasTree(c.target));
  MSPROBE_RETURN_IF_ERROR(CheckHasTree(c.golden));
  const NodeTree target(c.target), golden(c.golden);
  const Partners of_target(c, target, golden, true), of_golden(c, golden, target, false);
  NodeValues values(c);
  const int32_t first = c.first.pair < 0 ? -1 : c.pairs[c.first.pair].target;
  const std::lock_guard lock(mutex_);
  if (!mode_) mode_ = c.mode;
  const int32_t step = std::max(place.step, 0), rank = std::max(place.rank, 0);
  MSPROBE_RETURN_IF_ERROR(AddSide(
      {.dump = c.target,
       .tree = target,
       .source = "NPU",
       .step = step,
       .rank = rank,
       .comparison = &c,
       .other = &golden,
       .partners = &of_target,
       .values = &values,
       .to_first = first < 0 ? std::vector<int32_t>() : target.PathTo(target.NodeOf(first))}));
  return AddSide({.dump = c.golden,
                  .tree = golden,
                  .source = "Bench",
                  .step = step,
                  .rank = rank,
                  .comparison = &c,
                  .other = &target,
                  .partners = &of_golden});
}

Status VisDb::AddSide(const Side& side) {
  steps_.insert(side.step), ranks_.insert(side.rank);
  micro_steps_ = std::max(micro_steps_, side.tree.micro_steps());
  const std::vector<int32_t> stacks = StacksOf(side.dump);
  std::vector<int64_t> numbers(side.dump.stacks.size(), -1);
  stacks_.clear();
  std::map<int32_t, int64_t> exchange_rows;  // record -> row
  std::vector<compare::NumberedExchange> exchanges = compare::NumberExchanges(side.dump, side.rank);
  for (const compare::NumberedExchange& e : exchanges) exchange_rows.emplace(e.record, 0);
  for (size_t i = 0; i < side.tree.nodes().size(); ++i) {
    const int32_t record = side.tree.nodes()[i].record;
    MSPROBE_ASSIGN_OR_RETURN(const std::string stack,
                             StackOf(side, record < 0 ? -1 : stacks[record], &numbers));
    MSPROBE_RETURN_IF_ERROR(AddNode(side, static_cast<int32_t>(i), stack));
    if (const auto found = exchange_rows.find(record); found != exchange_rows.end())
      found->second = insert_node_->row();
  }
  for (const compare::NumberedExchange& e : exchanges) {
    const int32_t node = side.tree.NodeOf(e.record);
    for (const std::string& key : e.keys) {
      exchanges_[fmt::format("{} {} {}", side.source, side.step, key)].push_back(
          {.row = exchange_rows.at(e.record),
           .step = side.step,
           .rank = side.rank,
           .kind = std::string(e.exchange.kind),
           .name = std::string(side.tree.nodes()[node].name),
           .verdict = side.VerdictOf(node)});
    }
  }
  return Status::Ok();
}

// The id of a stack, an index into Dump::stacks; -1: an empty one.
Result<std::string> VisDb::StackOf(const Side& side, int32_t stack, std::vector<int64_t>* numbers) {
  int64_t number = stack < 0 ? -1 : (*numbers)[stack];
  if (number < 0) {
    std::string text = stack < 0 ? "[]" : JsonList(side.dump.stacks[static_cast<size_t>(stack)]);
    const auto [found, is_new] =
        stacks_.emplace(std::move(text), static_cast<int64_t>(stacks_.size()));
    number = found->second;
    if (stack >= 0) (*numbers)[stack] = number;
    if (is_new) {
      MSPROBE_RETURN_IF_ERROR(insert_stack_->Text(fmt::format("{}_{}", side.GraphId(), number))
                                  .Text(found->first)
                                  .Run());
    }
  }
  return fmt::format("{}_{}", side.GraphId(), number);
}

Status VisDb::AddNode(const Side& side, int32_t index, std::string_view stack) {
  const TreeNode& node = side.tree.nodes()[index];
  const Record* record = node.record < 0 ? nullptr : &side.dump.records[node.record];
  std::vector<std::string_view> children;
  for (const int32_t child : side.tree.ChildrenOf(index))
    children.push_back(side.tree.nodes()[child].name);
  std::string inputs, outputs;
  if (record == nullptr) {
    inputs = outputs = "{}";
  } else if (side.values != nullptr && side.partners->pairs[index] >= 0) {
    side.values->OfPair(side.partners->pairs[index], &inputs, &outputs);
  } else {
    AppendRecordedValues(side.dump, *record, &inputs, &outputs);
  }
  const std::optional<double> verdict = side.VerdictOf(index);
  const std::string_view overflow =
      options_.overflow_check && record != nullptr && side.source == "NPU"
          ? OverflowLevel(side.dump, *record)
          : "";
  const std::string folder = record == nullptr ? "" : TensorFolder(side.dump);
  Insert& row = *insert_node_;
  row.Text(fmt::format("{}_{}", side.GraphId(), node.name)).Text(side.GraphId()).Integer(index);
  row.Text(node.name).Text(fmt::format("{}", static_cast<int>(node.kind)));
  row.Text(node.parent < 0 ? "" : side.tree.nodes()[node.parent].name);
  row.Text(children.empty() ? "" : JsonList(children));
  verdict ? row.Real(*verdict) : row.Null();
  overflow.empty() ? row.Null() : row.Text(overflow);
  row.Integer(node.micro_step).Text(side.LinkOf(index)).Text(stack).Text("").Text("{}").Integer(0);
  row.Text(inputs).Text(outputs).Text(side.source);
  folder.empty() ? row.Null() : row.Text(folder);
  row.Integer(side.step).Integer(side.rank).Integer(node.name.starts_with("Distributed."));
  ++nodes_;
  return row.Run();
}

// Calls of one exchange on several ranks know each other.
Status VisDb::LinkExchanges() {
  constexpr size_t kMostLinks = 128;  // of one call
  struct Links {
    const std::string* kind = nullptr;
    std::string nodes;  // "5": [0.5, "Distributed.recv.0.forward"], ...
    size_t count = 0;
  };
  std::map<int64_t, Links> by_row;
  for (const auto& [key, nodes] : exchanges_) {
    for (const ExchangeNode& node : nodes) {
      Links& links = by_row[node.row];
      links.kind = &node.kind;
      for (const ExchangeNode& other : nodes) {
        if (other.rank == node.rank || links.count == kMostLinks) continue;
        const std::optional<double> verdict = Judged(other);
        links.nodes += fmt::format("{}\"{}\": [{}, ", links.count++ == 0 ? "" : ", ", other.rank,
                                   verdict ? fmt::format("{}", *verdict) : "null");
        AppendJsonString(&links.nodes, other.name);
        links.nodes += ']';
      }
    }
  }
  MSPROBE_ASSIGN_OR_RETURN(
      Insert update, db_.Prepare("UPDATE tb_nodes SET matched_distributed = ? WHERE rowid = ?"));
  for (const auto& [row, links] : by_row) {
    if (links.count == 0) continue;
    std::string json = "{\"communications_type\": ";
    AppendJsonString(&json, *links.kind);
    json += fmt::format(", \"nodes_info\": {{{}}}}}", links.nodes);
    MSPROBE_RETURN_IF_ERROR(update.Text(json).Integer(row).Run());
  }
  return Status::Ok();
}

void VisDb::Judge(std::span<const compare::RankResult> results) {
  const std::lock_guard lock(mutex_);
  const int32_t first_wrong_step = compare::FirstWrongStep(results);
  for (const compare::RankResult& r : results) {
    const std::pair place(std::max(r.step, 0), std::max(r.rank, 0));
    const compare::StepState state = compare::StateOf(r, first_wrong_step);
    if (state == compare::StepState::kRounding) limits_[place] = kPassed;
    if (state == compare::StepState::kInherited) limits_[place] = kInherited;
  }
}

// A value that could not be compared stays one.
std::optional<double> VisDb::Judged(const ExchangeNode& node) const {
  const auto limit = limits_.find({node.step, node.rank});
  const bool limited = limit != limits_.end() && node.verdict && *node.verdict != kNotCompared;
  return limited ? std::min(*node.verdict, limit->second) : node.verdict;
}

Status VisDb::WriteJudgements() {
  MSPROBE_ASSIGN_OR_RETURN(
      Insert update,
      db_.Prepare("UPDATE tb_nodes SET precision_index = ?1 WHERE step = ?2 AND rank = ?3 AND "
                  "precision_index > ?1 AND precision_index <> ?4"));
  for (const auto& [place, limit] : limits_) {
    MSPROBE_RETURN_IF_ERROR(
        update.Real(limit).Integer(place.first).Integer(place.second).Real(kNotCompared).Run());
  }
  return Status::Ok();
}

Status VisDb::WriteConfig() {
  MSPROBE_ASSIGN_OR_RETURN(Insert config,
                           db_.Prepare("INSERT INTO tb_config VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  config.Text("1").Text(mode_ ? "compare" : "build").Text(mode_ ? TaskOf(*mode_) : "");
  mode_ ? config.Text(NodeValues::Explanations(*mode_)) : config.Null();
  config.Integer(micro_steps_).Integer(options_.overflow_check).Text(mode_ ? kColors : "null");
  return config.Text(NumberList(ranks_)).Text(NumberList(steps_)).Run();
}

Status VisDb::Finish() {
  const std::lock_guard lock(mutex_);
  MSPROBE_RETURN_IF_ERROR(LinkExchanges());
  MSPROBE_RETURN_IF_ERROR(WriteConfig());
  insert_node_.reset(), insert_stack_.reset();
  MSPROBE_RETURN_IF_ERROR(db_.Execute(kIndexes));
  MSPROBE_RETURN_IF_ERROR(WriteJudgements());  // finds its rows by an index
  return db_.Commit();
}

}  // namespace msprobe::exports
