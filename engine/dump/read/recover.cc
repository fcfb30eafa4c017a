#include "engine/dump/read/recover.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/read/dump_file.h"
#include "engine/dump/read/file_kind.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/recover_missing.h"
#include "engine/dump/write/pack_writer.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {
namespace {

// The change of one file: keep its first `keep` bytes, then append.
struct Repair {
  std::string path;
  uint64_t keep = 0;
  std::string append;
};

Status Apply(const Repair& repair) {
  MSPROBE_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(repair.path, /*keep=*/true));
  MSPROBE_RETURN_IF_ERROR(file.TruncateTo(repair.keep));
  MSPROBE_RETURN_IF_ERROR(file.Append(repair.append));
  MSPROBE_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

// Bytes of `text` that are neither blank nor a separator.
uint64_t UnfinishedBytes(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\r\t,");
  return first == std::string_view::npos ? 0 : text.find_last_not_of(" \n\r\t") + 1 - first;
}

// stack.json or construct.json.
struct SideFileEnd {
  bool exists = false;
  bool closed = false;
  bool empty = true;  // no member yet
  uint64_t keep = 0;  // offset after the last whole member, or after the '{'
  uint64_t size = 0, dropped = 0;
  int64_t next_number = 0;                    // larger than every numeric key
  std::unordered_set<std::string> names;      // of stack.json: entries that a group lists
  std::map<std::string, std::string> groups;  // key -> of stack.json its frames, as JSON
};

void ReadTexts(formats::JsonCursor* json, std::vector<std::string>* texts) {
  formats::JsonText text;
  for (json->BeginArray(); json->NextItem();) {
    if (json->Peek() == '"' && json->String(&text)) {
      formats::AppendJsonText(&texts->emplace_back(), text);
    } else {
      json->Skip();
    }
  }
}

// [[names], [frames]] of stack.json; any other value is skipped.
void ReadGroup(formats::JsonCursor* json, std::vector<std::string>* listed,
               std::string_view* frames) {
  if (json->Peek() != '[') {
    json->Skip();
    return;
  }
  json->BeginArray();
  for (size_t i = 0; json->NextItem(); ++i) {
    if (i == 0 && json->Peek() == '[') {
      ReadTexts(json, listed);
    } else if (i == 1) {
      json->Raw(frames);
    } else {
      json->Skip();
    }
  }
}

Result<SideFileEnd> Inspect(const std::string& path) {
  SideFileEnd side;
  Result<MappedFile> opened = MappedFile::Open(path);
  if (!opened.ok() && opened.status().code() == ErrorCode::kNotFound) return side;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, std::move(opened));
  const std::string_view text = file.bytes();
  side.exists = true;
  side.size = text.size();
  formats::JsonCursor json(text);
  formats::JsonText key;
  if (json.BeginObject()) side.keep = json.offset();
  while (json.NextKey(&key)) {
    std::string name;
    formats::AppendJsonText(&name, key);
    std::vector<std::string> listed;
    std::string_view frames;
    ReadGroup(&json, &listed, &frames);
    if (json.failed()) break;
    side.keep = json.offset();
    side.empty = false;
    for (std::string& entry : listed) side.names.insert(std::move(entry));
    side.groups.emplace(name, frames);
    if (name.size() <= 12 && name.find_first_not_of("0123456789") == std::string::npos &&
        !name.empty()) {
      side.next_number = std::max<int64_t>(side.next_number, std::stoll(name) + 1);
    }
  }
  side.closed = !json.failed();
  if (json.failed() && !json.truncated()) return json.Error(path);
  if (!side.closed) side.dropped = UnfinishedBytes(text.substr(side.keep));
  return side;
}

// Lines of stack.json for calls whose entry names a group that does not list them: DumpWriter would
// have written these names at stop.
std::string MissingNames(const Dump& dump, const std::vector<std::string_view>& stack_keys,
                         SideFileEnd* stacks) {
  std::map<std::string, std::string> lists;
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const std::string name(dump.records[i].name), group(stack_keys[i]);
    const auto frames = stacks->groups.find(group);
    const bool known = frames != stacks->groups.end() && !frames->second.empty();  // not damaged
    if (group.empty() || !known || !stacks->names.insert(name).second) continue;
    std::string& list = lists[group];
    if (!list.empty()) list += ", ";
    AppendJsonString(&list, name);
  }
  std::string lines;
  for (const auto& [group, list] : lists) {
    if (!stacks->empty || !lines.empty()) lines += ",";
    lines +=
        fmt::format("\n\"{}\": [[{}], {}]", stacks->next_number++, list, stacks->groups[group]);
  }
  return lines;
}

Dump DumpIn(const std::string& folder) {
  Dump dump;
  dump.folder = folder;
  if (std::string data = JoinPath(folder, "dump_tensor_data"); IsDirectory(data))
    dump.tensor_folder = data;
  return dump;
}

// Adds the repair that closes a dump.json.
void RecoverRecords(const DumpFileLayout& layout, RecoveredDump* result,
                    std::vector<Repair>* repairs) {
  result->dropped_bytes += layout.dropped;
  repairs->push_back(
      {result->path, layout.keep,
       layout.data_closed ? "}\n" : fmt::format("\n}}, \"{}\": true}}\n", kCutShort)});
  result->missing.push_back(
      "stop was never reached: calls after the last kept record are missing"_t);
}

bool NeedsClosing(FileKind kind) { return kind != FileKind::kTensor && kind != FileKind::kPkl; }

// Says what is missing in stack.json or construct.json, and adds the repair that closes it.
Status RecoverSide(const Dump& dump, std::string_view name,
                   const std::vector<std::string_view>& stack_keys, bool root_closed,
                   RecoveredDump* result, std::vector<Repair>* repairs) {
  const std::string path = JoinPath(dump.folder, name);
  MSPROBE_ASSIGN_OR_RETURN(SideFileEnd side, Inspect(path));
  if (!side.exists) {
    result->missing.push_back("there is no {}"_t(name));
    return Status::Ok();
  }
  const bool stacks = name == "stack.json";
  if (!root_closed && stacks)
    AddMissingStacks(dump, stack_keys, side.names, side.groups, &result->missing);
  if (!root_closed && !stacks) AddMissingParents(dump, side.groups, &result->missing);
  if (side.closed) return Status::Ok();
  std::string append = side.size == 0 || side.keep == 0 ? "{" : "";
  if (stacks) append += MissingNames(dump, stack_keys, &side);
  result->dropped_bytes += side.dropped;
  repairs->push_back({path, side.keep, append + "\n}\n"});
  return Status::Ok();
}

Status NeedsNoClosing(FileKind kind, const std::string& path) {
  return Unsupported(
      kind == FileKind::kPkl
          ? "{}: recover closes a dump.json; this is a dump of complete lines, which needs "
            "no closing"_t(path)
          : "{}: recover closes a dump.json; this is tensors, which needs no closing"_t(path));
}

}  // namespace

Result<std::vector<RecoveredDump>> RecoverDumps(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> found, FindDumps(path));
  if (found.empty()) return LocateDump(path).status();
  std::vector<RecoveredDump> results;
  for (const DumpLocation& location : found) {
    Result<RecoveredDump> recovered = RecoverDump(location.path);
    if (recovered.ok()) {
      results.push_back(std::move(*recovered));
    } else {
      results.push_back({.path = location.path, .failed = recovered.status()});
    }
  }
  return results;
}

Result<RecoveredDump> RecoverDump(const std::string& path) {
  RecoveredDump result;
  std::vector<Repair> repairs;
  MSPROBE_ASSIGN_OR_RETURN(result.path, LocateDump(path));
  // When any of the files is damaged, the error is returned before a file is changed.
  MSPROBE_RETURN_IF_ERROR(ReadDump(result.path).status());
  const std::string folder = DirectoryName(result.path);
  {
    // The views below point into the mapped file. All of them end before the file is shortened.
    const bool tensors = IsDirectory(result.path);
    MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, tensors ? Result<MappedFile>(MappedFile())
                                                            : MappedFile::Open(result.path));
    const FileKind kind = KindOf(file.bytes());
    if (tensors || !NeedsClosing(kind)) return NeedsNoClosing(kind, result.path);
    Dump dump = DumpIn(folder);
    std::vector<std::string_view> stack_keys;
    DumpFileLayout layout;
    MSPROBE_RETURN_IF_ERROR(ReadDumpFile(result.path, file.bytes(), &dump, &stack_keys, &layout));
    result.records = static_cast<int64_t>(dump.records.size());
    if (!layout.root_closed) RecoverRecords(layout, &result, &repairs);
    for (const std::string_view name : {"stack.json", "construct.json"}) {
      MSPROBE_RETURN_IF_ERROR(
          RecoverSide(dump, name, stack_keys, layout.root_closed, &result, &repairs));
    }
    AddMissingTensors(dump, &result.missing);
  }
  for (const Repair& repair : repairs) {
    MSPROBE_RETURN_IF_ERROR(Apply(repair));
    result.closed.push_back(repair.path);
  }
  const std::string tensors = JoinPath(folder, "dump_tensor_data");
  MSPROBE_ASSIGN_OR_RETURN(const bool packed, ClosePack(tensors));
  if (packed) result.closed.push_back(JoinPath(tensors, formats::kPackName));
  return result;
}

}  // namespace msprobe::dump
