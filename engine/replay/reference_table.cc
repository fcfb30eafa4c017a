#include "engine/replay/reference_table.h"

#include <algorithm>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/text/yaml_file.h"

namespace msprobe::replay {
namespace {

// Letters, digits and underscores, the first one no digit.
bool IsName(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

// "NPU.npu_swiglu", "Torch.fft.rfft": a kind of API and its name.
bool IsApi(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, '.');
  return parts.size() > 1 && std::all_of(parts.begin(), parts.end(), IsName);
}

Result<ReferenceTable> Read(const YAML::Node& root, const std::string& path) {
  if (root.IsNull()) return ReferenceTable();
  if (!root.IsMap())
    return formats::WrongYaml(path, root.Mark(), "a line `API: file.py:function`"_t);
  ReferenceTable table;
  for (const auto& line : root) {
    const auto wrong = [&](Message expected) {
      return formats::WrongYaml(path, line.first.Mark(), std::move(expected));
    };
    if (!line.first.IsScalar() || !IsApi(line.first.Scalar()))
      return wrong("the name of an API such as NPU.npu_swiglu"_t);
    if (!line.second.IsScalar()) return wrong("file.py:function after the name of the API"_t);
    const std::string& text = line.second.Scalar();
    const size_t colon = text.rfind(':');
    const std::string name = colon == text.npos ? "" : text.substr(0, colon);
    if (!name.ends_with(".py") || !IsName(std::string_view(text).substr(colon + 1)))
      return wrong("file.py:function after the name of the API"_t).Found(Excerpt(text));
    if (name.find('/') != name.npos || name.find('\\') != name.npos)
      return wrong("a file in the folder of this table"_t).Found(Excerpt(name));
    Reference reference{JoinPath(DirectoryName(path), name), text.substr(colon + 1)};
    if (!Exists(reference.file)) return wrong("a file that is there"_t).Found(Excerpt(name));
    if (!table.emplace(line.first.Scalar(), std::move(reference)).second)
      return wrong("each API once"_t).Found(Excerpt(line.first.Scalar()));
  }
  return table;
}

}  // namespace

Result<ReferenceTable> ReadReferenceTable(const std::string& path) {
  return formats::ReadYaml<ReferenceTable>(
      path, [&](const YAML::Node& root) { return Read(root, path); });
}

}  // namespace msprobe::replay
