#include "cli/cluster/found_dumps.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "cli/cluster/json_integer.h"
#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kMostNumber = std::numeric_limits<int32_t>::max();

// [step, rank, bytes, path]
bool ReadDumpOf(const formats::JsonValue& item, FoundDumps* found) {
  using Kind = formats::JsonValue::Kind;
  if (item.items.size() != 4 || item.items[3].kind != Kind::kString) return false;
  const std::optional<int64_t> step = IntegerOf(item.items[0], -1, kMostNumber),
                               rank = IntegerOf(item.items[1], -1, kMostNumber),
                               bytes = IntegerOf(item.items[2], 0, kMostInteger);
  if (!step || !rank || !bytes) return false;
  found->dumps.dumps.push_back({.path = item.items[3].text,
                                .step = static_cast<int>(*step),
                                .rank = static_cast<int>(*rank)});
  found->bytes.push_back(static_cast<uint64_t>(*bytes));
  return true;
}

}  // namespace

Result<std::string> FoundDumpsText(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const DumpsBelow found, FindDumpsBelow(path));
  std::string text = "{\"path\": ";
  AppendJsonString(&text, found.path);
  text += fmt::format(", \"kind\": {}, \"dumps\": [", static_cast<int>(found.kind));
  for (size_t i = 0; i < found.dumps.size(); ++i) {
    const dump::DumpLocation& dump = found.dumps[i];
    const uint64_t bytes = FileSizes({.target = dump.path});
    text += fmt::format("{}[{}, {}, {}, ", i == 0 ? "" : ", ", dump.step, dump.rank, bytes);
    AppendJsonString(&text, dump.path);
    text += ']';
  }
  return text + "]}";
}

Result<FoundDumps> FoundDumpsOf(const formats::JsonValue& value, std::string_view from) {
  FoundDumps found;
  found.dumps.path = value.Member("path").text;
  const std::optional<int64_t> kind = IntegerOf(value.Member("kind"), 0, 2);
  bool is_list = kind && value.Member("dumps").kind == formats::JsonValue::Kind::kArray;
  for (const formats::JsonValue& item : value.Member("dumps").items)
    is_list = is_list && ReadDumpOf(item, &found);
  if (!is_list) return InvalidDump(from).Expected("a list of dumps"_t).Found(value.Describe());
  found.dumps.kind = static_cast<DumpsBelow::Kind>(*kind);
  return found;
}

}  // namespace msprobe::cli
