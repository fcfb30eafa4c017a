// Source lines of a graph's operators, from the text (.ir) that MindSpore writes beside a dump.
//
//   GraphLines lines(ir, {"Default/fc1-Dense/MatMul-op0"});
//   // "File model.py, line 11, in construct, \n ..."
//   lines.Of("Default/fc1-Dense/MatMul-op0")->frames;
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace msprobe::dump {

class GraphLines {
 public:
  struct Node {
    std::vector<std::string> frames;  // as in stack.json, the innermost first
    bool of_forward = false;  // the lines of the forward operator that this one is the gradient of
  };
  // Reads the nodes named in `wanted`; `ir` is not needed later. Text of another form is skipped.
  GraphLines(std::string_view ir, const std::unordered_set<std::string>& wanted);

  // Null: the text has no such node.
  const Node* Of(const std::string& name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &found->second;
  }

 private:
  std::unordered_map<std::string, Node> nodes_;
};

}  // namespace msprobe::dump
