#include "engine/exports/databases/node_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace msprobe::exports {
namespace {

constexpr std::string_view kRootName = "DefaultModel";

using RecordsByName = std::unordered_map<std::string_view, int32_t>;

// "Module.fc.Linear.backward.0" <-> "Module.fc.Linear.forward.0". "" when the name has no such
// part.
std::string WithDirection(std::string_view name, std::string_view from, std::string_view to) {
  const size_t at = name.rfind(from);
  if (at == std::string_view::npos) return "";
  return fmt::format("{}{}{}", name.substr(0, at), to, name.substr(at + from.size()));
}

int32_t Find(const RecordsByName& records, std::string_view name) {
  const auto found = records.find(name);
  return found == records.end() ? -1 : found->second;
}

// Parts of a training step that are recorded like modules.
bool IsModuleName(const Record& record) {
  return record.is_module || record.name.starts_with("optimizer") ||
         record.name.starts_with("clip_grad");
}

// Sets the parent of every record that is in a ring, or too deep, to the root.
void CutRings(std::vector<int32_t>* parents) {
  constexpr int32_t kUnknown = 0, kOpen = -1;
  std::vector<int32_t> depths(parents->size(), kUnknown);  // from 1: in the root
  std::vector<int32_t> path;
  for (size_t start = 0; start < parents->size(); ++start) {
    auto record = static_cast<int32_t>(start);
    for (; record >= 0 && depths[record] == kUnknown; record = (*parents)[record]) {
      depths[record] = kOpen;
      path.push_back(record);
    }
    // The last record of the path leads to the root, to a record of known depth, or into the path.
    int32_t depth = record >= 0 && depths[record] > 0 ? depths[record] : 0;
    if (record >= 0 && depths[record] == kOpen) (*parents)[path.back()] = -1;
    for (; !path.empty(); path.pop_back()) {
      if (depth >= NodeTree::kMaxDepth) (*parents)[path.back()] = -1, depth = 0;
      depths[path.back()] = ++depth;
    }
  }
}

}  // namespace

NodeTree::NodeTree(const Dump& dump) {
  const size_t records = dump.records.size();
  const std::vector<int32_t> parents = ParentsOf(dump);
  const std::vector<int32_t> micro_steps = MicroStepsOf(dump, parents);
  // Runs of calls of APIs in the root: for each record its run, and the last record of each run.
  std::vector<int32_t> run_of(records, -1), run_ends;
  int32_t run_length = 0, last = -1;
  const auto close_run = [&] {
    if (run_length == 1) run_of[last] = -1, run_ends.pop_back();
    run_length = 0;
  };
  for (size_t i = 0; i < records; ++i) {
    if (parents[i] >= 0) continue;
    const bool is_api = !IsModuleName(dump.records[i]);
    if (!is_api || (run_length > 0 && micro_steps[last] != micro_steps[i])) close_run();
    if (!is_api) continue;
    if (run_length++ == 0) run_ends.push_back(0);
    last = static_cast<int32_t>(i);
    run_of[i] = static_cast<int32_t>(run_ends.size()) - 1;
    run_ends.back() = last;
  }
  close_run();

  nodes_.reserve(records + run_ends.size() + 1);
  node_of_.resize(records);
  std::vector<int32_t> node_of_run(run_ends.size());
  for (size_t i = 0; i < records; ++i) {
    node_of_[i] = static_cast<int32_t>(nodes_.size());
    const Record& record = dump.records[i];
    nodes_.push_back({.name = record.name,
                      .record = static_cast<int32_t>(i),
                      .micro_step = micro_steps[i],
                      .kind = IsModuleName(record) ? NodeKind::kModule : NodeKind::kApi});
    const int32_t run = run_of[i];
    if (run < 0 || run_ends[run] != static_cast<int32_t>(i)) continue;
    node_of_run[run] = static_cast<int32_t>(nodes_.size());
    made_names_.push_back(fmt::format("Apis_Between_Modules.{}", run));
    nodes_.push_back({.name = made_names_.back(),
                      .micro_step = micro_steps[i],
                      .kind = NodeKind::kApiCollection});
  }
  nodes_.push_back({.name = kRootName});
  for (TreeNode& node : nodes_) {
    if (&node == &nodes_.back()) break;
    node.parent = root();
    if (node.record < 0) continue;
    if (parents[node.record] >= 0) node.parent = node_of_[parents[node.record]];
    if (run_of[node.record] >= 0) node.parent = node_of_run[run_of[node.record]];
    micro_steps_ = std::max(micro_steps_, node.micro_step + 1);
  }
  std::unordered_map<std::string_view, int32_t> uses;
  uses.reserve(nodes_.size());
  for (TreeNode& node : nodes_) {
    const std::string_view name = node.name;
    while (!uses.emplace(node.name, 1).second) {
      made_names_.push_back(fmt::format("{}#{}", name, ++uses[name]));
      node.name = made_names_.back();
    }
  }
  ListChildren();
}

std::vector<int32_t> NodeTree::ParentsOf(const Dump& dump) const {
  RecordsByName by_name, last_backward;  // the second by Record::api
  by_name.reserve(dump.records.size());
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    by_name.emplace(record.name, static_cast<int32_t>(i));
    if (record.is_module && record.direction == Direction::kBackward)
      last_backward[record.api] = static_cast<int32_t>(i);
  }
  std::vector<int32_t> parents(dump.records.size(), -1);
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    if (!record.parent.empty()) {
      parents[i] = Find(by_name, record.parent);
    } else if (record.direction == Direction::kParameterGrad) {
      parents[i] = Find(last_backward, record.api);
    } else if (record.direction == Direction::kBackward) {
      const int32_t twin = Find(by_name, WithDirection(record.name, ".backward", ".forward"));
      if (twin < 0 || dump.records[twin].parent.empty()) continue;
      parents[i] = Find(by_name, WithDirection(dump.records[twin].parent, ".forward", ".backward"));
    }
    if (parents[i] == static_cast<int32_t>(i)) parents[i] = -1;
  }
  CutRings(&parents);
  return parents;
}

std::vector<int32_t> NodeTree::MicroStepsOf(const Dump& dump,
                                            const std::vector<int32_t>& parents) const {
  if (!dump.micro_steps.empty()) return dump.micro_steps;
  std::vector<int32_t> steps(parents.size(), -1);
  int32_t step = 0;
  bool went_back = false;
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] >= 0) continue;
    const Record& record = dump.records[i];
    if (record.direction == Direction::kBackward) went_back = true;
    if (record.direction == Direction::kForward && record.is_module && went_back)
      ++step, went_back = false;
    steps[i] = step;
  }
  // Calls inside a module: that of the outermost module.
  std::vector<int32_t> path;
  for (size_t i = 0; i < parents.size(); ++i) {
    auto record = static_cast<int32_t>(i);
    for (; steps[record] < 0; record = parents[record]) path.push_back(record);
    for (; !path.empty(); path.pop_back()) steps[path.back()] = steps[record];
  }
  return steps;
}

void NodeTree::ListChildren() {
  first_child_.assign(nodes_.size() + 1, 0);
  for (const TreeNode& node : nodes_) {
    if (node.parent >= 0) ++first_child_[node.parent + 1];
  }
  for (size_t i = 1; i < first_child_.size(); ++i) first_child_[i] += first_child_[i - 1];
  children_.resize(first_child_.back());
  std::vector<int32_t> next(first_child_.begin(), first_child_.end() - 1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].parent >= 0) children_[next[nodes_[i].parent]++] = static_cast<int32_t>(i);
  }
}

std::vector<int32_t> NodeTree::PathTo(int32_t node) const {
  std::vector<int32_t> path;
  for (; node >= 0; node = nodes_[node].parent) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

Status CheckHasTree(const Dump& dump) {
  const bool has_modules = std::any_of(dump.records.begin(), dump.records.end(), IsModuleName);
  const bool has_parents = std::any_of(dump.records.begin(), dump.records.end(),
                                       [](const Record& r) { return !r.parent.empty(); });
  if (has_modules || has_parents) return Status::Ok();
  return InvalidArgument()
      .At(dump.path)
      .Expected("calls of modules, and construct.json beside the dump, for a graph"_t)
      .Found("no calls of modules"_t)
      .Hint("record with level L0 or mix"_t);
}

}  // namespace msprobe::exports
