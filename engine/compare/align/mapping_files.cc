#include "engine/compare/align/mapping_files.h"

#include <fmt/format.h>

#include <set>

#include "engine/formats/text/yaml_file.h"

namespace msprobe::compare {
namespace {

Message FlatHint() { return "one pair a line, the target's name first:  new.name: old.name"_t; }

Result<NamePairs> PairsOf(const std::string& path, const YAML::Node& node) {
  NamePairs pairs;
  std::set<std::string> seen;
  for (const auto& member : node) {
    if (!member.first.IsScalar() || !member.second.IsScalar() || member.first.Scalar().empty() ||
        member.second.Scalar().empty()) {
      return formats::WrongYaml(path, member.first.Mark(), "a name, a colon and another name"_t)
          .Hint(FlatHint());
    }
    if (!seen.insert(member.first.Scalar()).second) {
      return formats::WrongYaml(path, member.first.Mark(), "each name once"_t)
          .Found("{} twice"_t(Excerpt(member.first.Scalar())));
    }
    pairs.emplace_back(member.first.Scalar(), member.second.Scalar());
  }
  return pairs;
}

// Reads one mapping of an API file.
class ApiReader {
 public:
  ApiReader(const std::string& path, ApiMapping* out) : path_(path), out_(*out) {}

  Status Read(const YAML::Node& node) {
    if (!node.IsMap()) return Wrong(node, "a mapping with ms_api and pt_api"_t);
    static const std::set<std::string> kKnown = {"ms_api",
                                                 "pt_api",
                                                 "ms_args",
                                                 "pt_args",
                                                 "ms_outputs",
                                                 "pt_outputs",
                                                 "ms_output",
                                                 "pt_output",
                                                 "ms_parameters",
                                                 "pt_parameters",
                                                 "ms_parameters_grad",
                                                 "pt_parameters_grad"};
    for (const auto& member : node) {
      if (!member.first.IsScalar() || kKnown.count(member.first.Scalar()) == 0) {
        return Wrong(member.first,
                     "ms_api, pt_api, ms_args, pt_args, ms_outputs, pt_outputs, "
                     "ms_parameters, pt_parameters, ms_parameters_grad or "
                     "pt_parameters_grad"_t);
      }
    }
    ApiPair pair;
    for (const auto& [key, name] : {std::pair{"ms_api", &pair.target}, {"pt_api", &pair.golden}}) {
      const YAML::Node value = node[key];
      if (!value || !value.IsScalar() || value.Scalar().empty())
        return Wrong(value ? value : node, "ms_api and pt_api, each the name of an API"_t);
      *name = value.Scalar();
    }
    bool fits = true;
    for (const auto& [key, list] : {std::pair{"args", &pair.inputs},
                                    {"outputs", &pair.outputs},
                                    {"parameters", &pair.parameters},
                                    {"parameters_grad", &pair.gradients}}) {
      MSPROBE_RETURN_IF_ERROR(List(node, key, list, &fits));
    }
    if (fits) out_.apis.push_back(std::move(pair));
    return Status::Ok();
  }

 private:
  Status Wrong(const YAML::Node& node, Message expected) const {
    return formats::WrongYaml(path_, node.Mark(), std::move(expected))
        .Hint(std::string(
            "- ms_api: Functional.abs\\n  pt_api: Torch.abs\\n  ms_args: [0]\\n  pt_args: [0]"));
  }

  Result<std::vector<std::string>> Texts(const YAML::Node& node) const {
    std::vector<std::string> texts;
    if (node.IsNull()) return texts;
    if (!node.IsSequence()) return Wrong(node, "a list of positions"_t);
    for (const YAML::Node& item : node) {
      if (!item.IsScalar() || item.Scalar().empty()) return Wrong(item, "a position or a name"_t);
      texts.push_back(item.Scalar());
    }
    return texts;
  }

  Status List(const YAML::Node& node, const std::string& key, ApiPair::List* list, bool* fits) {
    // The manual of msprobe says `outputs`, its program reads `output`: both are accepted.
    const auto list_of = [&](const std::string& side) {
      const YAML::Node value = node[side + key];
      return value || key != "outputs" ? value : node[side + "output"];
    };
    const YAML::Node ms = list_of("ms_"), pt = list_of("pt_");
    if (!ms && !pt) return Status::Ok();
    if (!ms || !pt) return Wrong(ms ? ms : pt, "the list of the other side, too"_t);
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> target, Texts(ms));
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> golden, Texts(pt));
    if (target.size() != golden.size()) {
      *fits = false;
      out_.skipped.push_back("{}:{}: {} of ms_{} and {} of pt_{}: left out"_t(
          path_, ms.Mark().line + 1, target.size(), key, golden.size(), key));
      return Status::Ok();
    }
    list->given = true;
    for (size_t i = 0; i < target.size(); ++i) list->pairs.emplace_back(target[i], golden[i]);
    return Status::Ok();
  }

  const std::string& path_;
  ApiMapping& out_;
};

}  // namespace

Result<NamePairs> ReadNamePairs(const std::string& path) {
  return formats::ReadYaml<NamePairs>(path, [&](const YAML::Node& root) -> Result<NamePairs> {
    if (!root.IsMap())
      return formats::WrongYaml(path, root.Mark(), "a mapping of names"_t).Hint(FlatHint());
    return PairsOf(path, root);
  });
}

Result<ApiMapping> ReadApiMapping(const std::string& path) {
  return formats::ReadYaml<ApiMapping>(path, [&](const YAML::Node& root) -> Result<ApiMapping> {
    ApiMapping mapping;
    ApiReader reader(path, &mapping);
    if (!root.IsSequence()) {
      MSPROBE_RETURN_IF_ERROR(reader.Read(root));
      return mapping;
    }
    for (const YAML::Node& item : root) MSPROBE_RETURN_IF_ERROR(reader.Read(item));
    return mapping;
  });
}

Result<LayerRules> ReadLayerMapping(const std::string& path) {
  return formats::ReadYaml<LayerRules>(path, [&](const YAML::Node& root) -> Result<LayerRules> {
    const std::string kHint = "TopLayer:\\n  backbone: model\\nBlock:\\n  attn.qkv: attention.qkv";
    if (!root.IsMap())
      return formats::WrongYaml(path, root.Mark(), "a mapping of classes"_t).Hint(kHint);
    LayerRules rules;
    for (const auto& member : root) {
      if (!member.first.IsScalar() || member.first.Scalar().empty())
        return formats::WrongYaml(path, member.first.Mark(), "the name of a class"_t).Hint(kHint);
      const std::string name = member.first.Scalar() == "Cell" ? "TopLayer" : member.first.Scalar();
      if (rules.count(name) > 0)
        return formats::WrongYaml(path, member.first.Mark(), "each class once"_t)
            .Found("{} twice"_t(name));
      if (!member.second.IsMap() && !member.second.IsNull())
        return formats::WrongYaml(path, member.second.Mark(), "children of the class"_t)
            .Hint(kHint);
      MSPROBE_ASSIGN_OR_RETURN(rules[name], PairsOf(path, member.second));
    }
    return rules;
  });
}

}  // namespace msprobe::compare
