#include "engine/compare/align/mapping.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <unordered_map>

#include "engine/base/text.h"
#include "engine/compare/align/mapping_files.h"
#include "engine/compare/align/mapping_layers.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/align/rename.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

bool IsMindSpore(const Dump& dump) { return dump.framework == "mindspore"; }

// "net.fc.Dense" of "Cell.net.fc.Dense" and "Module.net.fc.Dense".
std::string_view WithoutPrefix(std::string_view api) { return api.substr(api.find('.') + 1); }

class MappingBuilder {
 public:
  MappingBuilder(const MappingRequest& request, const Dump& target, const Dump& golden)
      : request_(request),
        target_(target),
        golden_(golden),
        cross_(IsMindSpore(target) != IsMindSpore(golden)) {}

  Result<NameMapping> Build() {
    MSPROBE_RETURN_IF_ERROR(ReadFiles());
    std::set<std::string_view> seen;
    for (const Record& r : golden_.records) golden_apis_.insert(r.api);
    for (const Record& r : target_.records) {
      if (!seen.insert(r.api).second) continue;
      std::string name = r.is_module ? Module(r.api) : Api(r.api);
      for (size_t i = 0; i < renames_.size(); ++i) {
        std::string renamed = renames_[i].Apply(name);
        if (renamed != name) ++rename_hits_[i];
        name = std::move(renamed);
      }
      if (name != r.api) out_.apis.emplace(std::string(r.api), std::move(name));
    }
    NoteWhatNamesNothing();
    return std::move(out_);
  }

 private:
  Status ReadFiles() {
    for (const std::string& expression : request_.renames) {
      MSPROBE_ASSIGN_OR_RETURN(Rename rename, Rename::Parse(expression));
      renames_.push_back(std::move(rename));
    }
    rename_hits_.assign(renames_.size(), 0);
    if (!request_.data_file.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(const NamePairs pairs, ReadNamePairs(request_.data_file));
      out_.leaves.insert(pairs.begin(), pairs.end());
    }
    if (request_.cell_file && !request_.cell_file->empty()) {
      MSPROBE_ASSIGN_OR_RETURN(cells_, ReadNamePairs(*request_.cell_file));
    }
    if (request_.api_file && !request_.api_file->empty()) {
      MSPROBE_ASSIGN_OR_RETURN(ApiMapping mapping, ReadApiMapping(*request_.api_file));
      for (std::string& line : mapping.skipped) out_.notes.push_back(std::move(line));
      for (const ApiPair& pair : mapping.apis) AddApi(pair);
    }
    if (request_.layer_file) {
      LayerRules rules;
      if (!request_.layer_file->empty()) {
        MSPROBE_ASSIGN_OR_RETURN(rules, ReadLayerMapping(*request_.layer_file));
      }
      MSPROBE_ASSIGN_OR_RETURN(layers_, LayerMapping::Make(std::move(rules), target_, golden_));
    }
    return Status::Ok();
  }

  void AddApi(const ApiPair& pair) {
    apis_[pair.target] = pair.golden;
    NameMapping::Places places;
    for (const auto& [list, slot] : {std::pair{&pair.inputs, Slot::kInput},
                                     {&pair.outputs, Slot::kOutput},
                                     {&pair.parameters, Slot::kParameter},
                                     {&pair.gradients, Slot::kParameterGrad}}) {
      if (!list->given) continue;
      places.listed.insert(SlotClass(slot));
      for (const auto& [from, to] : list->pairs) places.moved[{SlotClass(slot), from}] = to;
    }
    if (!places.listed.empty()) out_.places[pair.target] = std::move(places);
  }

  std::string Api(std::string_view api) {
    if (const auto found = apis_.find(std::string(api)); found != apis_.end()) {
      ++api_hits_;
      return found->second;
    }
    if (!cross_) return std::string(api);
    std::string known =
        IsMindSpore(target_) ? PyTorchApiOf(api, golden_apis_) : MindSporeApiOf(api, golden_apis_);
    return known;
  }

  std::string Module(std::string_view api) {
    if (const auto found = apis_.find(std::string(api)); found != apis_.end()) {
      ++api_hits_;
      return found->second;
    }
    const std::string_view rest = WithoutPrefix(api);
    const std::string_view own = api.substr(0, api.size() - rest.size());
    std::string path = layers_ ? layers_->Map(rest) : Cell(rest);
    return std::string(!cross_ ? own : IsMindSpore(golden_) ? "Cell." : "Module.") + path;
  }

  // A key of the file that is the whole "path.Class" wins; otherwise each key is replaced where it
  // first occurs in the name.
  std::string Cell(std::string_view name) {
    std::string out(name);
    for (const auto& [from, to] : cells_) {
      if (from != name) continue;
      ++cell_hits_;
      return to;
    }
    for (const auto& [from, to] : cells_) {
      const size_t at = out.find(from);
      if (at == out.npos) continue;
      out.replace(at, from.size(), to);
      ++cell_hits_;
    }
    return out;
  }

  void NoteWhatNamesNothing() {
    const auto note = [&](bool asked, size_t hits, const std::string& what) {
      if (asked && hits == 0) out_.notes.push_back(what + " names nothing in the target");
    };
    note(!apis_.empty(), api_hits_, "the api mapping");
    note(!cells_.empty(), cell_hits_, "the cell mapping");
    note(layers_ && layers_->has_rules(), layers_ ? layers_->hits() : 0, "the layer mapping");
    if (layers_) {
      for (const std::string& shift : layers_->shifts()) out_.notes.push_back(shift);
    }
    for (size_t i = 0; i < renames_.size(); ++i) {
      if (rename_hits_[i] == 0)
        out_.notes.push_back("--rename " + renames_[i].expression() +
                             " changes no name of the target");
    }
  }

  const MappingRequest& request_;
  const Dump& target_;
  const Dump& golden_;
  const bool cross_;
  NameMapping out_;
  std::set<std::string_view> golden_apis_;
  std::unordered_map<std::string, std::string> apis_;
  NamePairs cells_;
  std::optional<LayerMapping> layers_;
  std::vector<Rename> renames_;
  std::vector<size_t> rename_hits_;
  size_t api_hits_ = 0, cell_hits_ = 0;
};

}  // namespace

Result<NameMapping> BuildMapping(const MappingRequest& request, const Dump& target,
                                 const Dump& golden) {
  return MappingBuilder(request, target, golden).Build();
}

std::string DataMappingYaml(const Comparison& c) {
  std::string text;
  for (const Row& row : c.rows) {
    if (row.target < 0 || row.golden < 0) continue;
    AppendJsonString(&text, c.target.leaves[row.target].name);
    text += ": ";
    AppendJsonString(&text, c.golden.leaves[row.golden].name);
    text += '\n';
  }
  return text;
}

}  // namespace msprobe::compare
