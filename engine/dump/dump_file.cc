#include "engine/dump/dump_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/threads.h"
#include "engine/dump/entries.h"
#include "engine/dump/names.h"
#include "engine/formats/json.h"

namespace msprobe {
namespace {

constexpr size_t kPieceBytes = 512 * 1024;
constexpr size_t kNoData = static_cast<size_t>(-1);

struct Header {
  std::string task = "statistics", level, framework, tool;
  bool has_framework = false;
  std::vector<std::pair<std::string, std::string>> provenance;
};

// {"torch": "2.13.0", "threads": 2, ...}: each value as text.
void ReadProvenance(JsonCursor* json, Header* header) {
  JsonText key, text;
  for (json->BeginObject(); json->NextKey(&key);) {
    std::string name, value;
    AppendJsonText(&name, key);
    std::string_view raw;
    if (json->Peek() == '"') {
      if (json->String(&text)) AppendJsonText(&value, text);
    } else if (json->Raw(&raw)) {
      value = raw;
    }
    header->provenance.emplace_back(std::move(name), std::move(value));
  }
}

// One member of the outermost object, except "data".
void HeaderMember(JsonCursor* json, JsonText key, Header* header) {
  std::string* target = key == "task"        ? &header->task
                        : key == "level"     ? &header->level
                        : key == "framework" ? &header->framework
                        : key == "tool"      ? &header->tool
                                             : nullptr;
  JsonText text;
  if (key == "provenance" && json->Peek() == '{') {
    ReadProvenance(json, header);
  } else if (target == nullptr || json->Peek() != '"') {
    json->Skip();
  } else if (json->String(&text)) {
    target->clear();
    AppendJsonText(target, text);
    if (target == &header->framework) header->has_framework = true;
  }
}

// Reads up to the '{' of "data"; kNoData when the document has none (and is at its end).
size_t ReadHeader(JsonCursor* json, Header* header) {
  JsonText key;
  for (json->BeginObject(); json->NextKey(&key);) {
    if (key == "data" && json->Peek() != 'n') {
      return json->BeginObject() ? json->offset() : kNoData;
    }
    HeaderMember(json, key, header);
  }
  return kNoData;
}

// Offsets at which pieces begin: entries that stand at the start of a line, indented as the first
// one is. An entry's insides are on its own line or indented deeper; a file that only looks so is
// found out when a piece does not end with its entry.
std::vector<size_t> PieceStarts(std::string_view text, size_t begin) {
  std::vector<size_t> starts{begin};
  const size_t quote = text.find_first_not_of(" \n\r\t", begin);
  if (quote == std::string_view::npos || text[quote] != '"') return starts;
  const size_t newline = text.rfind('\n', quote);
  if (newline == std::string_view::npos || newline < begin) return starts;
  const std::string_view line_start =
      text.substr(newline, quote + 1 - newline);  // "\n", blanks, quote
  // One thread reads in one go: pieces would only have to be joined again.
  const size_t pieces =
      ThreadPool::Default().threads() < 2 ? 1 : (text.size() - begin) / kPieceBytes;
  for (size_t i = 1; i < pieces; ++i) {
    const size_t from = begin + (text.size() - begin) / pieces * i;
    if (from <= starts.back()) continue;
    const size_t found = text.find(line_start, from);
    if (found == std::string_view::npos) break;
    starts.push_back(found + line_start.size() - 1);
  }
  return starts;
}

std::string_view Stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \n\r\t") + 1 - first);
}

struct Parsed {
  std::vector<Entries> pieces;
  Status error;            // of the last piece, when it is no truncation
  bool truncated = false;  // the last piece ends inside an entry
};

EntryParser::Options OptionsFor(const Header& header) {
  return {.names_from_files = header.task == "tensor", .ours = header.tool.starts_with("msprobe ")};
}

// Reads the entries in pieces; false when the pieces do not fit together.
bool ParsePieces(std::string_view path, std::string_view text, const std::vector<size_t>& starts,
                 const EntryParser::Options& options, Parsed* parsed) {
  const size_t count = starts.size();
  parsed->pieces.assign(count, {});
  std::vector<char> good(count, 1);
  ThreadPool::Default().ParallelFor(count, [&](size_t i) {
    const bool last = i + 1 == count;
    const size_t end = last ? text.size() : starts[i + 1];
    JsonCursor json(text.substr(0, end), starts[i]);
    EntryParser parser(options);
    Entries& piece = parsed->pieces[i] = parser.Parse(&json);
    if (!last) {
      good[i] = !json.failed() && Stripped(text.substr(piece.end, end - piece.end)) == ",";
    } else if (json.failed()) {
      parsed->truncated = json.truncated();
      if (!json.truncated()) parsed->error = json.Error(path);
    }
  });
  return std::all_of(good.begin(), good.end(), [](char g) { return g != 0; });
}

Level LevelOf(std::string_view text) {
  if (text == "L0") return Level::kL0;
  if (text == "L1") return Level::kL1;
  if (text == "mix") return Level::kMix;
  if (text == "L2") return Level::kL2;
  if (text == "debug") return Level::kDebug;
  return Level::kOther;
}

// "msprobe 27" from "msprobe 27.0.0"; the earlier tools are told by what they write.
std::string DialectOf(const Header& header, const Dump& dump, bool has_recompute) {
  if (header.tool.starts_with("msprobe ")) return header.tool.substr(0, header.tool.find('.'));
  const bool mindspore = std::any_of(dump.leaves.begin(), dump.leaves.end(), [](const Leaf& leaf) {
    return leaf.type.starts_with("mindspore.");
  });
  if (!header.has_framework && !mindspore) return "msprobe 1.0";
  return has_recompute ? "msprobe 8" : "msprobe 26";
}

// Puts the pieces end to end. Each piece is freed as soon as it is moved, so that little is held
// twice.
Status Join(std::string_view path, std::vector<Entries>* pieces, Dump* dump,
            std::vector<std::string_view>* stack_keys) {
  size_t records = 0, leaves = 0;
  for (const Entries& piece : *pieces) {
    records += piece.records.size();
    leaves += piece.leaves.size();
  }
  if (leaves > UINT32_MAX) return InvalidDump(path).Says("holds more than 4294967295 values");
  if (pieces->size() == 1) {
    dump->records = std::move(pieces->front().records);
    dump->leaves = std::move(pieces->front().leaves);
    dump->groups = std::move(pieces->front().groups);
    *stack_keys = std::move(pieces->front().stack_keys);
    pieces->front().arena.Release(&dump->arena);
    return Status::Ok();
  }
  dump->records.reserve(records);
  dump->leaves.reserve(leaves);
  stack_keys->reserve(records);
  for (Entries& piece : *pieces) {
    const auto record_base = static_cast<uint32_t>(dump->records.size());
    const auto leaf_base = static_cast<uint32_t>(dump->leaves.size());
    const auto group_base = static_cast<int32_t>(dump->groups.size());
    for (Record& record : piece.records) {
      record.first_leaf += leaf_base;
      if (record.group >= 0) record.group += group_base;
      dump->records.push_back(record);
    }
    for (Leaf& leaf : piece.leaves) {
      leaf.record += record_base;
      dump->leaves.push_back(leaf);
    }
    dump->groups.insert(dump->groups.end(), piece.groups.begin(), piece.groups.end());
    stack_keys->insert(stack_keys->end(), piece.stack_keys.begin(), piece.stack_keys.end());
    piece.arena.Release(&dump->arena);
    piece = Entries();
  }
  return Status::Ok();
}

std::string Plural(size_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

}  // namespace

Status ReadDumpFile(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<std::string_view>* stack_keys, DumpFileLayout* layout) {
  Header header;
  JsonCursor head(text);
  const size_t data = ReadHeader(&head, &header);
  if (head.failed()) {
    Status error = head.Error(path);
    if (head.truncated()) {
      return std::move(error).Hint(
          "the run was killed, or could not write, before it recorded anything: there is nothing "
          "to keep in this file");
    }
    return std::move(error).Hint("this is no dump.json of any msprobe: check the path");
  }
  if (data == kNoData && header.level.empty()) {
    return InvalidDump(path, head.offset()).Expected("the key \"data\" of a dump").Found("none");
  }

  bool has_recompute = false;
  size_t end = head.offset();
  JsonText key;
  bool unfinished = false;
  if (data != kNoData) {
    Parsed parsed;
    while (true) {
      const EntryParser::Options options = OptionsFor(header);
      const std::vector<size_t> starts = PieceStarts(text, data);
      if (!ParsePieces(path, text, starts, options, &parsed)) {
        parsed = Parsed();
        ParsePieces(path, text, {data}, options, &parsed);
      }
      if (!parsed.error.ok()) return parsed.error;
      end = parsed.pieces.back().end;
      layout->keep = end;
      if (parsed.truncated) break;
      // What follows the entries: '}', perhaps more members of the header, '}'.
      JsonCursor tail(text, end);
      layout->data_closed = layout->root_closed = false;
      if (tail.Peek() == '}' && !tail.NextKey(&key) && !tail.failed()) {
        layout->data_closed = true;
        layout->keep = tail.offset();
        while (tail.NextKey(&key)) HeaderMember(&tail, key, &header);
        layout->root_closed = !tail.failed();
        if (tail.failed() && !tail.truncated()) return tail.Error(path);
        tail.Peek();  // skips blanks
        if (!tail.failed() && tail.offset() < text.size()) tail.Fail("nothing after the document");
        if (tail.failed() && !tail.truncated()) return tail.Error(path);
      }
      if (OptionsFor(header) == options) break;  // "task" or "tool" stood behind "data"
    }
    unfinished = !layout->root_closed;
    for (const Entries& piece : parsed.pieces) {
      dump->has_md5 |= piece.has_md5;
      has_recompute |= piece.has_recompute;
    }
    MSPROBE_RETURN_IF_ERROR(Join(path, &parsed.pieces, dump, stack_keys));
  }

  if (data == kNoData) {  // a header is a whole file: task structure of the earlier tools
    head.Peek();
    if (head.offset() < text.size()) head.Fail("nothing after the document");
    if (head.failed()) return head.Error(path);
    *layout = {.keep = end, .data_closed = true, .root_closed = true};
  }

  dump->task = TaskNamed(header.task);
  dump->level = LevelOf(header.level);
  if (header.has_framework) dump->framework = header.framework;
  dump->dialect = DialectOf(header, *dump, has_recompute);
  dump->provenance = std::move(header.provenance);
  if (unfinished) {
    if (!layout->data_closed) {
      std::string_view rest = Stripped(text.substr(end));
      if (rest.starts_with(',')) rest = Stripped(rest.substr(1));
      layout->dropped = rest.size();
    }
    dump->complete = false;
    dump->note = fmt::format("the run was killed or could not write: no closing braces; {} kept",
                             Plural(dump->records.size(), "record"));
    if (layout->dropped > 0) {
      dump->note +=
          fmt::format(", {} of an unfinished entry ignored", Plural(layout->dropped, "byte"));
    }
  }
  return Status::Ok();
}

}  // namespace msprobe
