#include "engine/dump/write/parallel_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <functional>
#include <limits>
#include <map>

#include "engine/formats/text/json.h"

namespace msprobe::dump {
namespace {

using formats::JsonCursor, formats::JsonText;

std::string TextOfNext(JsonCursor* json) {
  JsonText text;
  std::string value;
  if (json->String(&text)) formats::AppendJsonText(&value, text);
  return value;
}

int64_t WholeNumber(JsonCursor* json) {
  std::string_view text;
  if (!json->Number(&text)) return 0;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
      value > std::numeric_limits<int32_t>::max())
    json->Fail("a number from 0 to 2147483647"_t);
  return value;
}

template <typename Each>
void ForEachItem(JsonCursor* json, Each each) {
  for (json->BeginArray(); json->NextItem();) each();
}

// Calls member(key) for each member; what it does not take is skipped.
void ForEachMember(JsonCursor* json, const std::function<bool(const JsonText&)>& member) {
  JsonText key;
  for (json->BeginObject(); json->NextKey(&key);) {
    if (!member(key)) json->Skip();
  }
}

ParallelLayout::Group ReadGroup(JsonCursor* json) {
  ParallelLayout::Group group;
  ForEachMember(json, [&](const JsonText& key) {
    if (key == "ranks")
      ForEachItem(json, [&] { group.ranks.push_back(WholeNumber(json)); });
    else if (key == "backend")
      group.backend = TextOfNext(json);
    else if (key == "name")
      group.name = TextOfNext(json);
    else if (key == "description")
      group.description = TextOfNext(json);
    else
      return false;
    return true;
  });
  return group;
}

ParallelLayout::Mesh ReadMesh(JsonCursor* json) {
  ParallelLayout::Mesh mesh;
  ForEachMember(json, [&](const JsonText& key) {
    std::string_view raw;
    if (key == "ranks") {
      if (json->Peek() != '[') return json->Fail("'[' before the ranks of a mesh"_t);
      if (json->Raw(&raw)) mesh.ranks = raw;
    } else if (key == "names") {
      ForEachItem(json, [&] { mesh.names.push_back(TextOfNext(json)); });
    } else {
      return false;
    }
    return true;
  });
  return mesh;
}

ParallelLayout::Wrapper ReadWrapper(JsonCursor* json) {
  ParallelLayout::Wrapper wrapper;
  ForEachMember(json, [&](const JsonText& key) {
    if (key == "module")
      wrapper.module = TextOfNext(json);
    else if (key == "kind")
      wrapper.kind = TextOfNext(json);
    else
      return false;
    return true;
  });
  return wrapper;
}

std::string DescribeGroup(const ParallelLayout::Group& group) {
  // A number is a name that PyTorch gave: of no help beside a description.
  const std::string& known = group.description.empty() ? group.name : group.description;
  return fmt::format("[{}] {}{}", fmt::join(group.ranks, ", "), group.backend,
                     known.empty() ? "" : " " + known);
}

}  // namespace

Result<ParallelLayout> ParseParallelLayout(std::string_view text, const std::string& path) {
  ParallelLayout layout;
  JsonCursor json(text);
  ForEachMember(&json, [&](const JsonText& key) {
    if (key == "groups") {
      ForEachItem(&json, [&] { layout.groups.push_back(ReadGroup(&json)); });
    } else if (key == "meshes") {
      ForEachItem(&json, [&] { layout.meshes.push_back(ReadMesh(&json)); });
    } else if (key == "wrappers") {
      ForEachItem(&json, [&] { layout.wrappers.push_back(ReadWrapper(&json)); });
    } else if (key == "megatron") {
      JsonText name;
      for (json.BeginObject(); json.NextKey(&name);) {
        std::string known;
        formats::AppendJsonText(&known, name);
        const int64_t size = WholeNumber(&json);
        layout.megatron.emplace_back(std::move(known), size);
      }
    } else {
      return false;
    }
    return true;
  });
  if (json.failed()) return json.Error(path);
  return layout;
}

Result<ParallelLayout> ParallelLayoutOf(const Dump& dump) {
  for (const auto& [key, text] : dump.provenance) {
    if (key == kParallel) return ParseParallelLayout(text, dump.path);
  }
  return ParallelLayout();
}

std::vector<std::string> ParallelLines(const ParallelLayout& layout) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view title, const std::vector<std::string>& parts) {
    if (!parts.empty()) lines.push_back(fmt::format("{}: {}", title, fmt::join(parts, "; ")));
  };
  std::vector<std::string> parts;
  for (const ParallelLayout::Group& group : layout.groups) parts.push_back(DescribeGroup(group));
  add("groups", parts);
  parts.clear();
  for (const ParallelLayout::Mesh& mesh : layout.meshes)
    parts.push_back(mesh.names.empty()
                        ? mesh.ranks
                        : fmt::format("{} ({})", mesh.ranks, fmt::join(mesh.names, ", ")));
  add("meshes", parts);
  std::map<std::string, int64_t> wrappers;
  for (const ParallelLayout::Wrapper& wrapper : layout.wrappers) ++wrappers[wrapper.kind];
  parts.clear();
  for (const auto& [kind, count] : wrappers) parts.push_back(fmt::format("{} {}", count, kind));
  add("wrappers", parts);
  parts.clear();
  for (const auto& [name, size] : layout.megatron)
    parts.push_back(fmt::format("{} {}", name, size));
  add("megatron", parts);
  return lines;
}

}  // namespace msprobe::dump
