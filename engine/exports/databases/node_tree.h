// The calls of a dump as a tree: modules, the calls inside them, and a root around all.
//
//   const NodeTree tree(dump);
//   for (const TreeNode& node : tree.nodes())
//     Print("{} in {}", node.name, node.parent < 0 ? "" : tree.nodes()[node.parent].name);
//
// A call is in the module that construct.json names. Where it names none:
// - the gradients of a module's parameters are in its last backward call;
// - a backward call is in the backward call of the module in which its forward call ran;
// - everything else is in the root. Two or more such calls of APIs, one after another, are put into
// a node of their own.
// A parent that is not recorded, a ring of parents, and a depth of more than kMaxDepth lead to the
// root as well.
//
// Nodes are in order of execution. A module is after the calls inside it, the root is last.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe::exports {

enum class NodeKind : uint8_t { kModule = 0, kApi = 1, kApiCollection = 9 };

struct TreeNode {
  std::string_view name;  // no two nodes have the same
  int32_t record = -1;    // index into Dump::records; -1: the root, or a collection
  int32_t parent = -1;    // index of a node; -1: this is the root
  // The number of the forward and backward pass within a step, from 0. As construct.json says; else
  // a call of a module in the root begins a pass when it is a forward call after a backward call.
  int32_t micro_step = 0;
  NodeKind kind = NodeKind::kModule;
};

class NodeTree {
 public:
  static constexpr int kMaxDepth = 400;

  // The dump must outlive the tree.
  explicit NodeTree(const Dump& dump);

  const std::vector<TreeNode>& nodes() const { return nodes_; }
  int32_t root() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  // The nodes directly inside a node, in order of execution.
  std::span<const int32_t> ChildrenOf(int32_t node) const {
    return {children_.data() + first_child_[node], children_.data() + first_child_[node + 1]};
  }
  int32_t NodeOf(int32_t record) const { return node_of_[record]; }
  // From the root to the node itself.
  std::vector<int32_t> PathTo(int32_t node) const;
  int32_t micro_steps() const { return micro_steps_; }

 private:
  std::vector<int32_t> ParentsOf(const Dump& dump) const;  // of each record; -1: the root
  std::vector<int32_t> MicroStepsOf(const Dump& dump, const std::vector<int32_t>& parents) const;
  void ListChildren();

  std::vector<TreeNode> nodes_;
  std::vector<int32_t> node_of_, children_, first_child_;
  std::deque<std::string> made_names_;
  int32_t micro_steps_ = 1;
};

// An error when the dump does not say which module a call ran in: it has no calls of modules.
Status CheckHasTree(const Dump& dump);

}  // namespace msprobe::exports
