// The names in a dump of a MindSpore graph.
//
//   ParseGraphFile(
//       "MatMul.Default_fc1-Dense_MatMul-op0.0.3.1795441006033.input.1.DefaultFormat.Float32.npy");
//   // operator "MatMul", name "Default_fc1-Dense_MatMul-op0", input 1 of dtype "Float32"
//   ParseGraphOperator("MatMul", "Default/fc1-Dense/MatMul-op0").module;   // "Cell.fc1.Dense"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::dump {

struct GraphFileName {
  std::string_view type;   // of the operator: "MatMul"; "Parameter" of a parameter or an input
  std::string_view name;   // "Default_fc1-Dense_MatMul-op0"; of a parameter "fc1_weight"
  uint64_t time = 0;       // microseconds, when the file was written
  bool is_output = false;  // else an input
  int32_t slot = 0;        // among the inputs, or the outputs
  std::string_view dtype;  // "Float32"; "" in files of older versions
};
// nullopt: the name has another form.
std::optional<GraphFileName> ParseGraphFile(std::string_view file_name);

enum class GraphPart : uint8_t { kForward, kBackward, kOptimizer, kParameter };

struct GraphOperator {
  std::string_view stem;  // without the number: "Default/fc1-Dense/MatMul"
  int64_t number = 0;     // 2 of "...-op2"; 0 when there is none
  GraphPart part = GraphPart::kForward;
  // The Cell around a forward operator; "" when the name does not tell it.
  std::string module;
};
// `name` with slashes, as the graph has it, or with the underscores that file names have in their
// place; the second does not tell the Cell.
GraphOperator ParseGraphOperator(std::string_view type, std::string_view name);

// "Default_fc1-Dense_MatMul-op0" of "Default/fc1-Dense/MatMul-op0": as file names have it.
std::string GraphNameInFiles(std::string_view name);

}  // namespace msprobe::dump
