#include "engine/dump/graphs/graph_names.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

constexpr char kParameter[] = "Parameter";

template <typename Number>
bool ReadNumber(std::string_view text, Number* value) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  return !text.empty() && error == std::errc() && last == end && *value >= 0;
}

bool IsNumber(std::string_view text) {
  uint64_t ignored = 0;
  return ReadNumber(text, &ignored);
}

// Operators that change a parameter by its gradient. In a function compiled by ms.jit no scope says
// so.
bool IsUpdate(std::string_view type) {
  for (const std::string_view begin : {"Apply", "SparseApply", "FusedAdam", "FusedSparse",
                                       "FusedWeight", "FusedCast", "ResourceApply"}) {
    if (type.starts_with(begin)) return true;
  }
  for (const std::string_view name :
       {"Adam", "AdamWeightDecay", "AdamNoUpdateParam", "AdamW", "SGD", "Lamb", "LARSUpdate"}) {
    if (type == name) return true;
  }
  return false;
}

GraphPart PartOf(std::string_view type, std::string_view name) {
  if (type == kParameter) return GraphPart::kParameter;
  if (name.starts_with("Gradients/") || name.starts_with("Gradients_")) return GraphPart::kBackward;
  for (const std::string_view scope : {"/optimizer-", "_optimizer-"}) {
    if (name.find(scope) != name.npos) return GraphPart::kOptimizer;
  }
  return IsUpdate(type) ? GraphPart::kOptimizer : GraphPart::kForward;
}

// "Cell.network.fc1.Dense" of "Default/network-Net/fc1-Dense/MatMul".
std::string ModuleOf(std::string_view stem) {
  std::vector<std::string_view> scopes = Split(stem, '/');
  if (scopes.size() < 3 || scopes[0] != "Default") return "";
  std::string module = "Cell", last;
  for (size_t i = 1; i + 1 < scopes.size(); ++i) {
    const size_t dash = scopes[i].rfind('-');
    if (dash == scopes[i].npos) return "";  // not a Cell: a function, a composite operator
    module.append(".").append(scopes[i].substr(0, dash));
    last = scopes[i].substr(dash + 1);
  }
  return module + "." + last;
}

}  // namespace

std::optional<GraphFileName> ParseGraphFile(std::string_view file_name) {
  if (!file_name.ends_with(".npy")) return std::nullopt;
  const std::vector<std::string_view> parts = Split(file_name, '.');
  // Read from the end: the name of an operator may have dots. Type, name, task, stream and time
  // stand before "input"; after the slot there may be a format and a dtype.
  for (size_t io = parts.size() - 2; io >= 5; --io) {
    if (parts.size() - io > 5) break;
    if (parts[io] != "input" && parts[io] != "output") continue;
    GraphFileName found{.type = parts[0], .is_output = parts[io] == "output"};
    if (!ReadNumber(parts[io + 1], &found.slot) || !ReadNumber(parts[io - 1], &found.time) ||
        !IsNumber(parts[io - 2]) || !IsNumber(parts[io - 3]) || found.type.empty()) {
      continue;
    }
    const size_t end = static_cast<size_t>(parts[io - 3].data() - file_name.data()) - 1;
    const size_t begin = found.type.size() + 1;
    if (end <= begin) continue;
    found.name = file_name.substr(begin, end - begin);
    if (io + 4 < parts.size()) found.dtype = parts[io + 3];
    return found;
  }
  return std::nullopt;
}

GraphOperator ParseGraphOperator(std::string_view type, std::string_view name) {
  GraphOperator found{.stem = name, .part = PartOf(type, name)};
  if (found.part == GraphPart::kParameter) return found;
  const size_t mark = name.rfind("-op");
  if (mark != name.npos && mark > 0 && ReadNumber(name.substr(mark + 3), &found.number)) {
    found.stem = name.substr(0, mark);
  } else {
    found.number = 0;
  }
  // MindSpore names gradients after the first Cell of their kind, not after their own.
  if (found.part == GraphPart::kForward) found.module = ModuleOf(found.stem);
  return found;
}

std::string GraphNameInFiles(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

}  // namespace msprobe::dump
