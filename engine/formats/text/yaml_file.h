// What the readers of YAML files share: one file, parsed, every failure a Status with its line.
// Only those readers include it: no other code knows yaml-cpp.
#pragma once

#include <yaml-cpp/yaml.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/base/text.h"

namespace msprobe::formats {

inline Status WrongYaml(const std::string& path, const YAML::Mark& mark, Message expected) {
  return InvalidConfig(path, static_cast<uint64_t>(mark.line) + 1).Expected(std::move(expected));
}

// The same, with what a scalar has.
inline Status WrongYaml(const std::string& path, const YAML::Node& node, Message expected) {
  Status status = WrongYaml(path, node.Mark(), std::move(expected));
  if (node.IsScalar()) status = std::move(status).Found(Excerpt(node.Scalar()));
  return status;
}

// None of the words that may stand there; the nearest one is a hint.
inline Status UnknownYaml(const std::string& path, const YAML::Node& node,
                          std::span<const std::string_view> known) {
  std::string words;
  for (const std::string_view word : known)
    words += (words.empty() ? "\"" : " \"") + std::string(word) + '"';
  Status status = WrongYaml(path, node, "one of {}"_t(words));
  const std::string_view nearest =
      node.IsScalar() ? NearestSpelling(node.Scalar(), known) : std::string_view();
  return nearest.empty() ? status : std::move(status).Hint("did you mean {}?"_t(nearest));
}

// parse(root) -> Result<T>. Errors: kNotFound; kInvalidConfig with path and line.
template <typename T, typename Parse>
Result<T> ReadYaml(const std::string& path, Parse&& parse) {
  constexpr size_t kMaxFileBytes = 16 << 20;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxFileBytes)
    return InvalidConfig(path).Expected("a file of at most 16 MiB"_t);
  try {
    return parse(YAML::Load(std::string(file.bytes())));
  } catch (const YAML::Exception& error) {
    return WrongYaml(path, error.mark, std::string("YAML")).Found(error.msg);
  }
}

}  // namespace msprobe::formats
