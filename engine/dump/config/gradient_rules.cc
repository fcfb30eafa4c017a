#include "engine/dump/config/gradient_rules.h"

#include <charconv>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

Status ReadBounds(const ConfigPlace& place, const formats::JsonValue& list, GradientRules* rules) {
  const Message expected = "a list of ascending numbers such as [-1, 0, 1]"_t;
  if (list.kind != formats::JsonValue::Kind::kArray) return WrongType(place, expected, list);
  rules->bounds.clear();
  rules->bound_texts.clear();
  for (const formats::JsonValue& item : list.items) {
    const char* end = item.text.data() + item.text.size();
    double bound = 0;
    const auto [stop, error] = std::from_chars(item.text.data(), end, bound);
    if (item.kind != formats::JsonValue::Kind::kNumber || error != std::errc() || stop != end ||
        !(bound >= INT64_MIN && bound <= static_cast<double>(INT64_MAX)) ||
        (!rules->bounds.empty() && !(bound > rules->bounds.back())))
      return WrongType({place.path, item.line, place.key}, expected, item);
    rules->bounds.push_back(bound);
    std::string& text = rules->bound_texts.emplace_back();
    if (item.text.find_first_of(".eE") == std::string::npos) {
      text = item.text;
    } else {
      AppendPythonFloat(&text, bound);
    }
  }
  return Status::Ok();
}

}  // namespace

Status ReadGradientRule(const ConfigPlace& place, const formats::JsonValue& value,
                        GradientRules* rules) {
  if (place.key == "bounds") return ReadBounds(place, value, rules);
  if (place.key == "param_list") return ReadStrings(place, value, &rules->parameters);
  std::string word;
  MSPROBE_RETURN_IF_ERROR(ReadWord(place, value, kGradLevels, &word));
  rules->level = word == "L0" ? GradLevel::kL0 : word == "L2" ? GradLevel::kL2 : GradLevel::kL1;
  return Status::Ok();
}

}  // namespace msprobe::dump
