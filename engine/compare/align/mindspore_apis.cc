#include "engine/compare/align/mindspore_apis.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

extern const char* const kMindSporeApis;  // mindspore_apis.yaml; made by CMake

namespace {

// "layernorm" of "LayerNorm", "layer_norm" and "LayerNormExt".
std::string Plain(std::string_view name) {
  for (const std::string_view end : {"Ext", "V2", "V3"}) {
    if (name.size() > end.size() && name.ends_with(end)) name.remove_suffix(end.size());
  }
  std::string out;
  for (const char c : name) {
    if (c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

struct Table {
  using Names = std::map<std::string, std::vector<std::string>, std::less<>>;
  using Name = std::map<std::string, std::string, std::less<>>;
  Names to_pytorch, to_mindspore;
  std::map<std::string, std::vector<int>, std::less<>> operations;  // the lists that have a name
  std::vector<std::string> operation_names;                         // the first name of each list
  Names ends;
  std::map<std::string, std::vector<int>, std::less<>> arguments;
  Name to_module, to_cell, constructed_with;
  std::vector<ParameterNames> parameters;

  explicit Table(const YAML::Node& root) {
    for (const auto& from : root["same_name"]) {
      for (const auto& to : from.second) {
        for (const YAML::Node& name : to.second) {
          Add(from.first.Scalar() + "." + name.Scalar(), to.first.Scalar() + "." + name.Scalar());
        }
      }
    }
    for (const auto& pair : root["other_name"]) {
      if (pair.second.IsScalar()) {
        Add(pair.first.Scalar(), pair.second.Scalar());
        continue;
      }
      for (const YAML::Node& name : pair.second) Add(pair.first.Scalar(), name.Scalar());
    }
    for (const YAML::Node& names : root["operations"]) {
      const int list = static_cast<int>(operation_names.size());
      operation_names.push_back(Plain(names[0].Scalar()));
      for (const YAML::Node& name : names) operations[Plain(name.Scalar())].push_back(list);
    }
    for (const auto& whole : root["ends_with"]) {
      for (const YAML::Node& last : whole.second)
        ends[Plain(whole.first.Scalar())].push_back(Plain(last.Scalar()));
    }
    for (const auto& order : root["arguments"]) {
      for (const YAML::Node& place : order.second)
        arguments[order.first.Scalar()].push_back(place.as<int>());
    }
    for (const auto& pair : root["constructed_with"])
      constructed_with.emplace(pair.first.Scalar(), pair.second.Scalar());
    for (const auto& pair : root["classes"]) {
      to_module.emplace(pair.first.Scalar(), pair.second.Scalar());
      to_cell.emplace(pair.second.Scalar(), pair.first.Scalar());
    }
    for (const auto& pair : root["parameters"])
      parameters.push_back({pair.first.Scalar(), pair.second.Scalar()});
  }

  void Add(const std::string& mindspore, const std::string& pytorch) {
    to_pytorch[mindspore].push_back(pytorch);
    to_mindspore[pytorch].push_back(mindspore);
  }

  // Whether two plain names are one operation.
  bool Same(const std::string& a, const std::string& b) const {
    if (a == b) return true;
    const auto x = operations.find(a), y = operations.find(b);
    if (x == operations.end() || y == operations.end()) return false;
    return std::find_first_of(x->second.begin(), x->second.end(), y->second.begin(),
                              y->second.end()) != x->second.end();
  }
  bool Ends(const std::string& last, const std::string& whole) const {
    const auto found = ends.find(whole);
    return found != ends.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const std::string& name) { return Same(name, last); });
  }
};

const Table& TheTable() {
  static const Table table(YAML::Load(kMindSporeApis));
  return table;
}

std::string Chosen(const std::vector<std::string>& names,
                   const std::set<std::string_view>& present) {
  for (const std::string& name : names) {
    if (present.contains(name)) return name;
  }
  return names.front();
}

// Whether the table names the two as one API.
bool Listed(const Table::Names& table, std::string_view from, std::string_view to) {
  const auto found = table.find(from);
  return found != table.end() &&
         std::find(found->second.begin(), found->second.end(), to) != found->second.end();
}

std::string_view Other(const Table::Name& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? name : std::string_view(found->second);
}

constexpr std::string_view kMint[][2] = {{"MintFunctional.", "Functional."}, {"Mint.", "Torch."}};

}  // namespace

std::string PyTorchApiOf(std::string_view api, const std::set<std::string_view>& present) {
  for (const auto& [mint, torch] : kMint) {
    if (api.starts_with(mint)) return std::string(torch).append(api.substr(mint.size()));
  }
  if (present.contains(api)) return std::string(api);
  const auto& table = TheTable().to_pytorch;
  const auto found = table.find(api);
  return found == table.end() ? std::string(api) : Chosen(found->second, present);
}

std::string MindSporeApiOf(std::string_view api, const std::set<std::string_view>& present) {
  for (const auto& [mint, torch] : kMint) {
    if (!api.starts_with(torch)) continue;
    std::string name = std::string(mint).append(api.substr(torch.size()));
    if (present.contains(name)) return name;
  }
  if (present.contains(api)) return std::string(api);
  const auto& table = TheTable().to_mindspore;
  const auto found = table.find(api);
  return found == table.end() ? std::string(api) : Chosen(found->second, present);
}

std::string_view PyTorchClassOf(std::string_view cell) { return Other(TheTable().to_module, cell); }
std::string_view MindSporeClassOf(std::string_view module) {
  return Other(TheTable().to_cell, module);
}

std::span<const ParameterNames> OtherParameterNames() { return TheTable().parameters; }

std::string PyTorchWeightOf(std::string_view mindspore,
                            const std::function<bool(std::string_view)>& has) {
  std::string name(mindspore);
  if (has(name)) return name;
  const size_t dot = name.rfind('.'), begin = dot == name.npos ? 0 : dot + 1;
  for (const ParameterNames& names : OtherParameterNames()) {
    if (std::string_view(name).substr(begin) != names.mindspore) continue;
    std::string other = name.substr(0, begin) + names.pytorch;
    if (has(other)) return other;
  }
  return name;
}

void NameWeightsAlike(Dump* target, Dump* golden) {
  if (!OfTwoFrameworks(*target, *golden)) return;
  Dump* mindspore = target->framework == "mindspore" ? target : golden;
  std::unordered_set<std::string_view> there;
  for (const Weight& weight : (mindspore == target ? golden : target)->weights)
    there.insert(weight.name);
  for (Weight& weight : mindspore->weights) {
    std::string name =
        PyTorchWeightOf(weight.name, [&](std::string_view n) { return there.contains(n); });
    if (name != weight.name) weight.name = mindspore->arena.emplace_back(std::move(name));
  }
}

Relation RelationOf(std::string_view target, std::string_view golden) {
  const Table& table = TheTable();
  const std::string t = Plain(BaseApi(target)), g = Plain(BaseApi(golden));
  if (table.Same(t, g) || Listed(table.to_pytorch, target, golden) ||
      Listed(table.to_mindspore, target, golden))
    return Relation::kSame;
  if (table.Ends(t, g)) return Relation::kEndsGolden;
  return table.Ends(g, t) ? Relation::kEndsTarget : Relation::kNone;
}

std::string_view OperationOf(std::string_view api) {
  const Table& table = TheTable();
  const auto found = table.operations.find(Plain(BaseApi(api)));
  return found == table.operations.end()
             ? BaseApi(api)
             : std::string_view(table.operation_names[found->second[0]]);
}

std::string_view ArgumentOfConstructor(std::string_view mindspore) {
  const auto& names = TheTable().constructed_with;
  const auto found = names.find(mindspore);
  return found == names.end() ? std::string_view() : std::string_view(found->second);
}

std::span<const int> ArgumentOrderOf(std::string_view mindspore) {
  const auto& orders = TheTable().arguments;
  if (!mindspore.starts_with("Primitive.")) return {};
  const auto found = orders.find(BaseApi(mindspore));
  return found == orders.end() ? std::span<const int>() : std::span<const int>(found->second);
}

}  // namespace msprobe::compare
