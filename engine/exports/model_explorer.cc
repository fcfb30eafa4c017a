#include "engine/exports/model_explorer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/model/names.h"
#include "engine/report_page/data_links.h"

namespace msprobe::exports {
namespace {

using compare::CallClass;
using compare::Comparison;
using compare::StepState;

std::string_view ColorOf(CallClass call_class) {
  switch (call_class) {
    case CallClass::kIntroduced:
      return "#d7263d";
    case CallClass::kInherited:
      return "#f4a259";
    case CallClass::kUnknown:
      return "#b8b8b8";
    case CallClass::kNoise:
      return "#cfe3f7";
    case CallClass::kEqual:
      break;
  }
  return "";  // that of the viewer
}

class Graph {
 public:
  explicit Graph(const Comparison& c) : c_(c), made_by_(report_page::MakersOf(c.target)) {
    pair_of_.assign(c.target.records.size(), -1);
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (c.pairs[p].target >= 0) pair_of_[c.pairs[p].target] = static_cast<int32_t>(p);
    }
  }

  ExportPart Make(std::string_view id) {
    json_ = "{\"id\":";
    AppendJsonString(&json_, id);
    json_ += ",\"nodes\":[";
    bool any = false;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      const Record& record = compare::RecordOf(c_, static_cast<int32_t>(p));
      // Modules with calls inside are namespaces.
      if (record.is_module && c_.target.level != Level::kL0) continue;
      if (any) json_ += ',';
      any = true;
      NodeInEachState(static_cast<int32_t>(p), record);
    }
    part_.Append(json_ + "]}");
    return std::move(part_);
  }

 private:
  void Text(std::string_view key, std::string_view text) {
    if (json_.back() != '{') json_ += ',';
    AppendJsonString(&json_, key);
    json_ += ':';
    AppendJsonString(&json_, text);
  }
  void Attribute(std::string_view key, std::string_view value) {
    if (value.empty()) return;
    json_ += json_.back() == '[' ? "{" : ",{";
    Text("key", key), Text("value", value);
    json_ += '}';
  }

  // "layers/3/mlp", with the direction first: forward and backward are two halves. An optimizer
  // stands after them: as a part of the forward half it would turn the arrow between them round.
  std::string Namespace(int32_t pair, const Record& record) const {
    if (compare::IsOptimizerCall(record.api)) return "optimizer";
    const std::string around =
        record.is_module ? ModuleForPeople(record.name) : compare::ModuleAround(c_, pair);
    std::string path = record.direction == Direction::kBackward ? "backward" : "forward";
    for (const std::string_view part : Split(around.substr(0, around.rfind(" (")), '.')) {
      if (!part.empty()) (path += '/') += part;
    }
    return path;
  }

  void NodeInEachState(int32_t pair, const Record& record) {
    if (c_.classes[pair] == CallClass::kEqual) return Node(pair, record, StepState::kOwn);
    part_.Append(std::exchange(json_, {}));
    std::array<std::string, ExportPart::kStates> nodes;
    for (const StepState state : compare::kStepStates) {
      Node(pair, record, state);
      nodes[static_cast<size_t>(state)] = std::exchange(json_, {});
    }
    part_.Append(nodes);
  }

  void Node(int32_t pair, const Record& record, StepState state) {
    const CallClass call_class = compare::ClassInStep(c_.classes[pair], state);
    json_ += '{';
    Text("id", std::to_string(pair));
    Text("label", compare::EntryName(c_, pair));
    Text("namespace", Namespace(pair, record));
    Edges(pair);
    json_ += ",\"attrs\":[";
    Attribute("class", compare::ClassName(call_class));
    if (const double error = LargestError(pair); !std::isnan(error))
      Attribute("roundings", compare::ShortNumber(error));
    if (!c_.pairs[pair].matched())
      Attribute("only in", c_.pairs[pair].target >= 0 ? "the target" : "the golden");
    Attribute("source", compare::SourceLineOf(c_, pair));
    if (pair == c_.first.pair && state == StepState::kOwn)
      Attribute("first divergence", c_.first.why.English());
    json_ += ']';
    Outputs(pair);
    if (const std::string_view color = ColorOf(call_class); !color.empty()) {
      json_ += ",\"style\":{";
      Text("backgroundColor", color);
      json_ += '}';
    }
    json_ += '}';
  }

  void Edges(int32_t pair) {
    if (c_.pairs[pair].target < 0) return;
    const Record& record = c_.target.records[c_.pairs[pair].target];
    std::vector<std::pair<int32_t, size_t>> edges;  // maker, place among the values
    for (uint32_t i = 0; i < record.leaf_count; ++i) {
      if (c_.target.leaves[record.first_leaf + i].slot == Slot::kOutput) continue;
      const int32_t maker = made_by_[record.first_leaf + i];
      if (maker < 0 || pair_of_[maker] < 0 || pair_of_[maker] == pair) continue;
      if (c_.target.records[maker].is_module && c_.target.level != Level::kL0) continue;
      edges.emplace_back(pair_of_[maker], i);
    }
    if (edges.empty()) return;
    json_ += ",\"incomingEdges\":[";
    for (const auto& [maker, place] : edges) {
      json_ += json_.back() == '[' ? "{" : ",{";
      Text("sourceNodeId", std::to_string(maker));
      Text("sourceNodeOutputId", "0");
      Text("targetNodeInputId", std::to_string(place));
      json_ += '}';
    }
    json_ += ']';
  }

  void Outputs(int32_t pair) {
    if (c_.pairs[pair].target < 0) return;
    json_ += ",\"outputsMetadata\":[";
    size_t number = 0;
    for (const Leaf& leaf : c_.target.LeavesOf(c_.target.records[c_.pairs[pair].target])) {
      if (leaf.slot != Slot::kOutput || leaf.kind != LeafKind::kTensor) continue;
      json_ += json_.back() == '[' ? "{" : ",{";
      Text("id", std::to_string(number++));
      json_ += ",\"attrs\":[";
      Attribute("shape", leaf.shape);
      Attribute("dtype", leaf.dtype);
      json_ += "]}";
    }
    json_ += ']';
  }

  double LargestError(int32_t pair) const {
    double largest = kernels::Diff::kNaN;
    const compare::RecordPair& p = c_.pairs[pair];
    for (uint32_t r = p.first_row; r < p.first_row + p.row_count; ++r) {
      const double severity = c_.measures[r].severity;
      if (!std::isnan(severity) && !(severity <= largest)) largest = severity;
    }
    return largest;
  }

  const Comparison& c_;
  const std::vector<int32_t> made_by_;
  std::vector<int32_t> pair_of_;  // of each target record; -1: none
  ExportPart part_;
  std::string json_;  // what follows `part_`
};

}  // namespace

ExportPart ModelExplorerExporter::Part(const Comparison& comparison, const PairPlace& place) const {
  const std::string where = PlaceText(place);
  return Graph(comparison).Make(where.empty() ? "comparison" : where);
}

std::string ModelExplorerExporter::File(std::span<std::string> parts) const {
  std::string file = "{\"label\":\"msprobe\",\"graphs\":[";
  for (std::string& part : parts) {
    if (part.empty()) continue;
    if (file.back() != '[') file += ',';
    file += std::exchange(part, {});
  }
  return file + "]}\n";
}

}  // namespace msprobe::exports
