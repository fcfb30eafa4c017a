#include "engine/compare/align/mindspore_apis.h"

#include <yaml-cpp/yaml.h>

#include <map>
#include <vector>

namespace msprobe::compare {

extern const char* const kMindSporeApis;  // mindspore_apis.yaml; made by CMake

namespace {

struct Table {
  std::map<std::string, std::vector<std::string>, std::less<>> to_pytorch, to_mindspore;

  void Add(const std::string& mindspore, const std::string& pytorch) {
    to_pytorch[mindspore].push_back(pytorch);
    to_mindspore[pytorch].push_back(mindspore);
  }
};

const Table& TheTable() {
  static const Table table = [] {
    Table out;
    const YAML::Node root = YAML::Load(kMindSporeApis);
    for (const auto& from : root["same_name"]) {
      for (const auto& to : from.second) {
        for (const YAML::Node& name : to.second) {
          out.Add(from.first.Scalar() + "." + name.Scalar(),
                  to.first.Scalar() + "." + name.Scalar());
        }
      }
    }
    for (const auto& pair : root["other_name"]) {
      if (pair.second.IsScalar()) {
        out.Add(pair.first.Scalar(), pair.second.Scalar());
        continue;
      }
      for (const YAML::Node& name : pair.second) out.Add(pair.first.Scalar(), name.Scalar());
    }
    return out;
  }();
  return table;
}

std::string Chosen(const std::vector<std::string>& names,
                   const std::set<std::string_view>& present) {
  for (const std::string& name : names) {
    if (present.contains(name)) return name;
  }
  return names.front();
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

}  // namespace msprobe::compare
