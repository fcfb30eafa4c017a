#include "cli/cluster/node_answer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "cli/cluster/json_integer.h"
#include "cli/command_line/console.h"
#include "engine/base/file.h"
#include "engine/base/memory_size.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kPart = "compare_part_1_of_1.bin";
constexpr std::string_view kTables[] = {"compare_result", "debug_compare_result", "advisor"};
constexpr std::string_view kEnds[] = {".csv", ".xlsx", ".txt"};
constexpr size_t kLongestName = 200;

using NamedContents = std::vector<std::pair<std::string, std::string_view>>;

struct Files {
  std::string folder;  // where they were on the node
  std::string_view part;
  NamedContents tables;
};

// The first line of an error, without "error: ".
std::string FirstLine(std::string_view text) {
  constexpr std::string_view kError = "error: ";
  text = text.substr(0, text.find('\n'));
  if (text.starts_with(kError)) text.remove_prefix(kError.size());
  return MakePrintable(text);
}

Status NoAnswer(const std::string& file, Message expected, std::string_view found) {
  return InvalidDump(file).Expected(std::move(expected)).Found(Excerpt(found));
}

// Why there is no part.
Status WhyNone(const formats::JsonValue& head, uint64_t bytes) {
  if (bytes > kMostBytesOfAnswer) {
    return Unsupported("its results have {}, more than {}"_t(MemorySizeText(bytes),
                                                             MemorySizeText(kMostBytesOfAnswer)));
  }
  const std::string said = FirstLine(head.Member("said").text);
  if (!said.empty()) return Unsupported(said);
  return Unsupported("msprobe ended there with exit code {}"_t(head.Member("code").text));
}

// The line of JSON, which is taken from the bytes.
Result<formats::JsonValue> TakeHead(std::string_view* bytes, const std::string& path) {
  const size_t line = std::min(bytes->find('\n'), bytes->size());
  MSPROBE_ASSIGN_OR_RETURN(formats::JsonValue head,
                           formats::ParseJson(bytes->substr(0, line), path));
  bytes->remove_prefix(std::min(line + 1, bytes->size()));
  return head;
}

Result<NamedContents> ContentsOf(const formats::JsonValue& head, std::string_view bytes,
                                 const std::string& path) {
  NamedContents contents;
  for (const formats::JsonValue& item : head.Member("files").items) {
    const std::string name = item.items.empty() ? "" : item.items[0].text;
    const std::optional<int64_t> size =
        item.items.size() == 2 ? IntegerOf(item.items[1], 0, kMostInteger) : std::nullopt;
    if (!size || static_cast<uint64_t>(*size) > bytes.size())
      return NoAnswer(path, "the size of a file"_t, name);
    contents.emplace_back(name, bytes.substr(0, static_cast<size_t>(*size)));
    bytes.remove_prefix(static_cast<size_t>(*size));
  }
  if (!bytes.empty()) return NoAnswer(path, "the end of the files"_t, bytes);
  return contents;
}

Status WhyNone(const formats::JsonValue& head) {
  return WhyNone(
      head, static_cast<uint64_t>(IntegerOf(head.Member("bytes"), 0, kMostInteger).value_or(0)));
}

Result<Files> FilesOf(std::string_view bytes, const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue head, TakeHead(&bytes, path));
  MSPROBE_ASSIGN_OR_RETURN(const NamedContents contents, ContentsOf(head, bytes, path));
  Files files{.folder = head.Member("folder").text, .part = {}, .tables = {}};
  bool has_part = false;
  for (const auto& [name, content] : contents) {
    if (name == kPart) {
      files.part = content;
      has_part = true;
    } else if (IsNameOfTable(name)) {
      files.tables.emplace_back(name, content);
    } else {
      return NoAnswer(path, "the name of a table"_t, name);
    }
  }
  if (has_part) return files;
  return WhyNone(head);
}

template <typename Pair>
auto PlaceOf(const Pair& pair) {
  return std::tuple(pair.step, pair.rank, pair.target, pair.golden);
}

bool AreOf(std::span<const compare::ComparedPair> compared, std::span<const DumpPair> pairs) {
  std::set<std::tuple<int, int, std::string, std::string>> asked, found;
  for (const DumpPair& pair : pairs) asked.insert(PlaceOf(pair));
  for (const compare::ComparedPair& pair : compared) found.insert(PlaceOf(pair));
  return asked == found && compared.size() == pairs.size();
}

}  // namespace

bool IsNameOfTable(std::string_view name) {
  if (const size_t slash = name.find('/'); slash != name.npos) {
    const std::string_view folder = name.substr(0, slash);
    if (NumberAfter(folder, "step") < 0) return false;
    name.remove_prefix(slash + 1);
  }
  const auto begins = [&](std::string_view table) { return name.starts_with(table); };
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  const auto is_odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; };
  return name.size() <= kLongestName && std::ranges::any_of(kTables, begins) &&
         std::ranges::any_of(kEnds, ends) && std::ranges::none_of(name, is_odd);
}

Result<std::vector<compare::ComparedPair>> TakeAnswer(const std::string& file,
                                                      std::span<const DumpPair> pairs,
                                                      const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(file));
  MSPROBE_ASSIGN_OR_RETURN(const Files files, FilesOf(mapped.bytes(), BaseName(file)));
  const std::string part_file = file + ".part";
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(part_file, files.part));
  Result<compare::ComparedPart> part = compare::ReadPart(part_file);
  MSPROBE_RETURN_IF_ERROR(RemoveFile(part_file));
  if (!part.ok()) return std::move(part).status();
  if (!AreOf(part->compared, pairs))
    return InvalidDump(BaseName(file)).Expected("the ranks that it was asked for"_t);
  for (const auto& [name, content] : files.tables) {
    const std::string path = JoinPath(folder, name);
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(path)));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, content));
  }
  for (compare::ComparedPair& pair : part->compared) {
    const auto is_its = [&](const auto& table) {
      return pair.result.table == JoinPath(files.folder, table.first);
    };
    const auto its = std::ranges::find_if(files.tables, is_its);
    pair.result.table = its == files.tables.end() ? "" : JoinPath(folder, its->first);
  }
  return std::move(part->compared);
}

Result<compare::RankCopy> TakeCopy(const std::string& file, const std::string& path,
                                   const std::string& folder, const std::string& place) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(file));
  std::string_view bytes = mapped.bytes();
  const std::string answer = BaseName(file);
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue head, TakeHead(&bytes, answer));
  MSPROBE_ASSIGN_OR_RETURN(const NamedContents contents, ContentsOf(head, bytes, answer));
  const std::vector<compare::FileToCopy> known = compare::FilesToCopy(path);
  std::vector<compare::ContentOfCopy> files;
  for (size_t i = 0, next = 0; i < contents.size(); ++i, ++next) {
    while (next < known.size() && contents[i].first != std::to_string(next)) ++next;
    const bool is_known = next < known.size() && (i > 0 || next == 0);
    if (!is_known) return NoAnswer(answer, "the number of a file"_t, contents[i].first);
    files.push_back({known[next].name, contents[i].second});
  }
  if (files.empty()) return WhyNone(head);
  MSPROBE_ASSIGN_OR_RETURN(compare::RankCopy copy,
                           compare::WriteRankCopy(path, folder, place, files));
  if (head.Member("elements").boolean)
    copy.tensor_folder = JoinPath(DirectoryName(path), "dump_tensor_data");
  return copy;
}

}  // namespace msprobe::cli
