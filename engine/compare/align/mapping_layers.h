// Layer mappings: module paths rewritten from the outermost class inwards.
//
//   MSPROBE_ASSIGN_OR_RETURN(LayerMapping layers, LayerMapping::Make(rules, target, golden));
//   layers.Map("backbone.0.attn.qkv.Dense");   // "model.0.self_attention.linear_qkv.Linear"
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/compare/align/mapping_files.h"
#include "engine/model/table.h"

namespace msprobe::compare {

class LayerMapping {
 public:
  // kInvalidArgument when a side has no construct.json or stack.json: they tell where calls belong.
  static Result<LayerMapping> Make(LayerRules rules, const Dump& target, const Dump& golden);

  // The golden's spelling of "path.Class" of the target. Each child is renamed by the rules of the
  // class that it belongs to; of several rules that fit, the one with the longest name applies. The
  // class is the class that the golden has at that path. Numbered children ("layers.4") are shifted
  // when both sides have equally many, without a gap, but from different numbers on: one program
  // numbers the layers of each pipeline stage from 0, another counts through all stages.
  std::string Map(std::string_view name);
  bool has_rules() const { return !rules_.empty(); }
  size_t hits() const { return hits_; }
  // Sentences on what was shifted, by the path: "layers.4 and on are layers.0 and on in the
  // golden".
  const std::map<std::string, Message>& shifts() const { return shifts_; }

 private:
  std::pair<size_t, std::string_view> ByRules(const std::string& done, std::string_view rest);

  LayerRules rules_;
  std::unordered_map<std::string, std::string> target_classes_, golden_classes_;  // by path
  // The numbers that are children of each path: {0, 1} of "net.layers".
  std::unordered_map<std::string, std::set<int64_t>> target_numbers_, golden_numbers_;
  size_t hits_ = 0;
  std::map<std::string, Message> shifts_;
};

}  // namespace msprobe::compare
