#include "engine/compare/mapping_layers.h"

#include <algorithm>
#include <vector>

#include "engine/base/text.h"

namespace msprobe {
namespace {

// "net.fc", "Dense" of "net.fc.Dense".
std::pair<std::string, std::string> PathAndClass(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {"", std::string(name)};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

std::unordered_map<std::string, std::string> ClassesOf(const Dump& dump) {
  std::unordered_map<std::string, std::string> classes;
  for (const Record& r : dump.records) {
    if (!r.is_module) continue;
    auto [path, name] = PathAndClass(r.api.substr(r.api.find('.') + 1));
    classes.emplace(std::move(path), std::move(name));
  }
  return classes;
}

}  // namespace

Result<LayerMapping> LayerMapping::Make(LayerRules rules, const Dump& target, const Dump& golden) {
  for (const Dump* dump : {&target, &golden}) {
    for (const char* name : {"construct.json", "stack.json"}) {
      if (IsRegularFile(JoinPath(dump->folder, name))) continue;
      return InvalidArgument()
          .At(dump->path)
          .Expected(std::string(name) + " beside it, which a layer mapping needs on both sides")
          .Found("none")
          .Hint("collect with level L0 or mix, or name the pairs yourself: -dm pairs.yaml");
    }
  }
  LayerMapping out;
  out.rules_ = std::move(rules);
  out.target_classes_ = ClassesOf(target);
  out.golden_classes_ = ClassesOf(golden);
  return out;
}

std::string LayerMapping::Map(std::string_view name) {
  const auto [path, own_class] = PathAndClass(name);
  const std::vector<std::string_view> parts =
      path.empty() ? std::vector<std::string_view>() : Split(path, '.');
  std::string done, out;  // of the target and of the golden
  const auto append = [](std::string* to, std::string_view part) {
    if (!to->empty()) *to += '.';
    *to += part;
  };
  for (size_t i = 0; i < parts.size();) {
    const auto known = target_classes_.find(done);
    auto rules = rules_.find(done.empty()                     ? "TopLayer"
                             : known != target_classes_.end() ? known->second
                                                              : std::string());
    if (rules == rules_.end() && done.empty() && known != target_classes_.end())
      rules = rules_.find(known->second);
    size_t taken = 0;
    std::string_view mapped;
    if (rules != rules_.end()) {
      for (const auto& [from, to] : rules->second) {
        const std::string_view rest(parts[i].data(), path.data() + path.size() - parts[i].data());
        const bool whole =
            rest.starts_with(from) && (rest.size() == from.size() || rest[from.size()] == '.');
        const auto dots = static_cast<size_t>(std::count(from.begin(), from.end(), '.')) + 1;
        if (!whole || dots <= taken) continue;
        if (taken == 0) ++hits_;
        taken = dots;
        mapped = to;
      }
    }
    append(&out, taken > 0 ? mapped : parts[i]);
    for (const size_t end = i + std::max<size_t>(taken, 1); i < end && i < parts.size(); ++i)
      append(&done, parts[i]);
  }
  const auto golden = golden_classes_.find(out);
  append(&out, golden != golden_classes_.end() ? golden->second : own_class);
  return out;
}

}  // namespace msprobe
