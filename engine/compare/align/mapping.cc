#include "engine/compare/align/mapping.h"

#include <fmt/format.h>

#include <set>
#include <string_view>
#include <unordered_map>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/align/mapping_files.h"
#include "engine/compare/align/mapping_layers.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/align/rename.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

bool IsMindSpore(const Dump& dump) { return dump.framework == "mindspore"; }

// "net.fc" of "net.fc.Dense"; "" of "Net", the outermost module.
std::string_view PathOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

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
    for (const Record& r : golden_.records) {
      golden_apis_.insert(r.api);
      if (cross_ && r.is_module) golden_modules_.emplace(PathOf(WithoutPrefix(r.api)), r.api);
    }
    if (cross_) FindParameters();
    for (const Record& r : target_.records) {
      if (seen.insert(r.api).second) Map(r);
    }
    for (const Leaf& leaf : target_.leaves) {
      if (out_.leaves.empty()) break;
      leaf_hits_ += out_.leaves.count(std::string(leaf.name));
    }
    NoteWhatNamesNothing();
    return std::move(out_);
  }

 private:
  void Map(const Record& r) {
    std::string name = r.is_module ? Module(r.api) : Api(r.api);
    for (size_t i = 0; i < renames_.size(); ++i) {
      std::string renamed = renames_[i].Apply(name);
      if (renamed != name) ++rename_hits_[i];
      name = std::move(renamed);
    }
    if (cross_ && r.is_module) MoveParameters(r.api, name);
    if (name != r.api) out_.apis.emplace(std::string(r.api), std::move(name));
  }

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
      for (Message& line : mapping.skipped) out_.notes.push_back(std::move(line));
      for (const ApiPair& pair : mapping.apis) AddApi(pair);
    }
    return request_.layer_file ? ReadLayers(*request_.layer_file) : Status::Ok();
  }

  Status ReadLayers(const std::string& file) {
    LayerRules rules;
    if (!file.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(rules, ReadLayerMapping(file));
    }
    MSPROBE_ASSIGN_OR_RETURN(layers_, LayerMapping::Make(std::move(rules), target_, golden_));
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
    if (!cross_) return std::string(own) + path;
    const std::string name = (IsMindSpore(golden_) ? "Cell." : "Module.") + path;
    return golden_apis_.contains(name) ? name : OtherClass(name);
  }

  // The same path with the class that the golden has there; where the golden has none, with the
  // class of the table.
  std::string OtherClass(const std::string& name) const {
    const std::string_view rest = WithoutPrefix(name), path = PathOf(rest);
    if (const auto found = golden_modules_.find(path); found != golden_modules_.end())
      return std::string(found->second);
    const std::string_view own = rest.substr(path.empty() ? 0 : path.size() + 1);
    const std::string_view other =
        IsMindSpore(target_) ? PyTorchClassOf(own) : MindSporeClassOf(own);
    return name.substr(0, name.size() - own.size()).append(other);
  }

  // The names of the parameters of each module of the golden.
  void FindParameters() {
    for (const Record& r : golden_.records) {
      if (!r.is_module) continue;
      for (const Leaf& leaf : golden_.LeavesOf(r)) {
        if (leaf.slot == Slot::kParameter || leaf.slot == Slot::kParameterGrad)
          golden_parameters_[r.api].insert(LeafPlace(leaf, r));
      }
    }
  }

  // Parameters that have another name in the other framework: gamma is weight. A name that the
  // golden's module has, too, stays.
  void MoveParameters(std::string_view api, const std::string& golden) {
    const auto found = golden_parameters_.find(golden);
    if (found == golden_parameters_.end()) return;
    NameMapping::Places& places = out_.places[std::string(api)];
    for (const ParameterNames& names : OtherParameterNames()) {
      const std::string &from = IsMindSpore(target_) ? names.mindspore : names.pytorch,
                        &to = IsMindSpore(target_) ? names.pytorch : names.mindspore;
      if (found->second.contains(from) || !found->second.contains(to)) continue;
      for (const Slot slot : {Slot::kParameter, Slot::kParameterGrad}) {
        if (places.listed.contains(SlotClass(slot))) continue;  // a file of the user says more
        places.moved.emplace(std::pair{SlotClass(slot), from}, to);
      }
    }
    if (places.moved.empty() && places.listed.empty()) out_.places.erase(std::string(api));
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
    const auto note = [&](bool asked, size_t hits, const Message& what) {
      if (asked && hits == 0) out_.notes.push_back("{} names nothing in the target"_t(what));
    };
    note(!apis_.empty(), api_hits_, "the api mapping"_t);
    note(!cells_.empty(), cell_hits_, "the cell mapping"_t);
    note(!out_.leaves.empty(), leaf_hits_, "the data mapping"_t);
    note(layers_ && layers_->has_rules(), layers_ ? layers_->hits() : 0, "the layer mapping"_t);
    if (layers_) {
      for (const auto& [path, shift] : layers_->shifts()) out_.notes.push_back(shift);
    }
    for (size_t i = 0; i < renames_.size(); ++i) {
      if (rename_hits_[i] == 0)
        out_.notes.push_back(
            "--rename {} changes no name of the target"_t(renames_[i].expression()));
    }
  }

  const MappingRequest& request_;
  const Dump& target_;
  const Dump& golden_;
  const bool cross_;
  NameMapping out_;
  std::set<std::string_view> golden_apis_;
  std::unordered_map<std::string_view, std::string_view> golden_modules_;               // by path
  std::unordered_map<std::string_view, std::set<std::string_view>> golden_parameters_;  // by api
  std::unordered_map<std::string, std::string> apis_;
  NamePairs cells_;
  std::optional<LayerMapping> layers_;
  std::vector<Rename> renames_;
  std::vector<size_t> rename_hits_;
  size_t api_hits_ = 0, cell_hits_ = 0, leaf_hits_ = 0;
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
