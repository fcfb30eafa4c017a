#include "engine/dump/read/dump_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "engine/base/messages/message.h"
#include "engine/base/ordered.h"
#include "engine/base/pages.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/dump/read/entries.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr size_t kPieceBytes = 512 * 1024;
constexpr size_t kNoData = static_cast<size_t>(-1);

struct Header {
  std::string task = "statistics", level, framework, tool;
  bool has_framework = false;
  bool cut_short = false;  // `msprobe recover` closed the dump of a killed run
  std::vector<std::pair<std::string, std::string>> provenance;
};

// {"torch": "2.13.0", "threads": 2, ...}: each value as text.
void ReadProvenance(formats::JsonCursor* json, Header* header) {
  formats::JsonText key, text;
  for (json->BeginObject(); json->NextKey(&key);) {
    std::string name, value;
    formats::AppendJsonText(&name, key);
    std::string_view raw;
    if (json->Peek() == '"') {
      if (json->String(&text)) formats::AppendJsonText(&value, text);
    } else if (json->Raw(&raw)) {
      value = raw;
    }
    header->provenance.emplace_back(std::move(name), std::move(value));
  }
}

// One member of the outermost object, except "data".
void HeaderMember(formats::JsonCursor* json, formats::JsonText key, Header* header) {
  std::string* target = key == "task"        ? &header->task
                        : key == "level"     ? &header->level
                        : key == "framework" ? &header->framework
                        : key == "tool"      ? &header->tool
                                             : nullptr;
  formats::JsonText text;
  if (key == kCutShort && json->Peek() == 't') {
    header->cut_short = true;
    json->Skip();
  } else if (key == "provenance" && json->Peek() == '{') {
    ReadProvenance(json, header);
  } else if (target == nullptr || json->Peek() != '"') {
    json->Skip();
  } else if (json->String(&text)) {
    target->clear();
    formats::AppendJsonText(target, text);
    if (target == &header->framework) header->has_framework = true;
  }
}

// Reads up to the '{' of "data"; kNoData when the document has none (and is at its end).
size_t ReadHeader(formats::JsonCursor* json, Header* header) {
  formats::JsonText key;
  for (json->BeginObject(); json->NextKey(&key);) {
    if (key == "data" && json->Peek() != 'n') {
      return json->BeginObject() ? json->offset() : kNoData;
    }
    HeaderMember(json, key, header);
  }
  return kNoData;
}

// Offsets at which pieces begin: at entries that begin a line with the same indentation as the
// first entry. In files of the tools, the values of an entry are on its own line or indented
// deeper. In any other file a piece may begin inside an entry: then the piece before it does not
// end with a whole entry, and ParsePieces returns false.
std::vector<size_t> PieceStarts(std::string_view text, size_t begin, bool mapped) {
  std::vector<size_t> starts{begin};
  const size_t quote = text.find_first_not_of(" \n\r\t", begin);
  if (quote == std::string_view::npos || text[quote] != '"') return starts;
  const size_t newline = text.rfind('\n', quote);
  if (newline == std::string_view::npos || newline < begin) return starts;
  const std::string_view line_start =
      text.substr(newline, quote + 1 - newline);  // "\n", blanks, quote
  const size_t pieces = (text.size() - begin) / kPieceBytes;
  for (size_t i = 1; i < pieces; ++i) {
    const size_t from = begin + (text.size() - begin) / pieces * i;
    if (from <= starts.back()) continue;
    const size_t found = text.find(line_start, from);
    if (found == std::string_view::npos) break;
    if (mapped) ForgetPagesAround(text.substr(from, found - from), text);
    starts.push_back(found + line_start.size() - 1);
  }
  return starts;
}

struct Parsed {
  Entries all;             // of every piece, end to end
  Status error;            // of the last piece, unless that piece is only truncated
  bool truncated = false;  // the last piece ends inside an entry
};

// Reserves room for the items of the whole text, estimated from the first `done` of its `size`
// bytes, so that a large vector never has to move.
template <typename T>
void MakeRoom(std::vector<T>* items, size_t more, size_t done, size_t size) {
  const size_t needed = items->size() + more;
  if (needed <= items->capacity()) return;
  const double rest = static_cast<double>(size) / static_cast<double>(std::max<size_t>(done, 1));
  items->reserve(static_cast<size_t>(static_cast<double>(needed) * std::max(1.0, rest) * 1.03) +
                 64);
  PreferLargePages(items->data() + items->size(), (items->capacity() - items->size()) * sizeof(T));
}

// Appends a piece to the others and takes over the memory of its texts without a copy.
Status Append(std::string_view path, Entries* piece, size_t done, size_t size, Entries* all) {
  const size_t leaves = all->leaves.size(), records = all->records.size();
  if (leaves + piece->leaves.size() > UINT32_MAX)
    return InvalidDump(path).Says("holds more than 4294967295 values"_t);
  const auto groups = static_cast<int32_t>(all->groups.size());
  for (Record& record : piece->records) {
    record.first_leaf += static_cast<uint32_t>(leaves);
    if (record.group >= 0) record.group += groups;
  }
  for (Leaf& leaf : piece->leaves) leaf.record += static_cast<uint32_t>(records);
  MakeRoom(&all->records, piece->records.size(), done, size);
  MakeRoom(&all->leaves, piece->leaves.size(), done, size);
  MakeRoom(&all->stack_keys, piece->stack_keys.size(), done, size);
  all->records.insert(all->records.end(), piece->records.begin(), piece->records.end());
  all->leaves.insert(all->leaves.end(), piece->leaves.begin(), piece->leaves.end());
  all->stack_keys.insert(all->stack_keys.end(), piece->stack_keys.begin(), piece->stack_keys.end());
  all->groups.insert(all->groups.end(), piece->groups.begin(), piece->groups.end());
  const auto append = [&](auto* from, auto* to) {
    for (auto& item : *from) item.leaf += static_cast<uint32_t>(leaves);
    to->insert(to->end(), from->begin(), from->end());
  };
  append(&piece->unwritten, &all->unwritten);
  append(&piece->unreadable, &all->unreadable);
  append(&piece->strides, &all->strides);
  append(&piece->sketches, &all->sketches);
  append(&piece->rests, &all->rests);
  append(&piece->shards, &all->shards);
  const auto append_records = [&](RecordTexts* from, RecordTexts* to) {
    for (RecordText& item : *from) item.record += static_cast<uint32_t>(records);
    to->insert(to->end(), from->begin(), from->end());
  };
  append_records(&piece->random_draws, &all->random_draws);
  append_records(&piece->precisions, &all->precisions);
  all->arena.Take(&piece->arena);
  all->shapes.Take(&piece->shapes);
  all->counts.splice(all->counts.end(), piece->counts);
  all->end = piece->end;
  all->has_checksums |= piece->has_checksums;
  all->has_recompute |= piece->has_recompute;
  return Status::Ok();
}

EntryParser::Options OptionsFor(const Header& header, bool parse_numbers) {
  return {.names_from_files = header.task == "tensor",
          .dialect = DialectOfTool(header.tool),
          .parse_numbers = parse_numbers};
}

// Bytes that `all` needs with `more` further leaves. A vector without room for them moves, and then
// the old and the new memory count.
uint64_t MemoryWith(const Entries& all, size_t more) {
  const size_t size = all.leaves.size();
  const size_t moved = size + more > all.leaves.capacity() ? size * sizeof(Leaf) : 0;
  return MemoryOf(all.records.size(), size + more, all.arena.bytes() + all.shapes.bytes() + moved);
}

// Reads the entries in pieces; false when the pieces do not fit together. While other pieces are
// read, finished pieces are moved to their final place, and their memory is used again.
bool ParsePieces(std::string_view path, std::string_view text, const std::vector<size_t>& starts,
                 const EntryParser::Options& options, bool mapped, MemoryShare* memory,
                 Parsed* parsed) {
  const size_t count = starts.size();
  const auto note_end = [&](const formats::JsonCursor& json) {
    if (!json.failed()) return;
    parsed->truncated = json.truncated();
    if (!json.truncated()) parsed->error = json.Error(path);
  };
  if (count == 1) {
    formats::JsonCursor json(text, starts[0]);
    size_t forgotten = 0;
    parsed->all = EntryParser(options).Parse(&json, {}, [&](const Entries& all) {
      if (mapped) ForgetPagesAround(text.substr(forgotten, all.end - forgotten), text);
      forgotten = all.end;
      return memory->Holds(MemoryWith(all, EntryParser::kBetweenChecks) + (mapped ? 0 : all.end),
                           all.end);
    });
    note_end(json);
    if (parsed->error.ok()) parsed->error = parsed->all.full;
    if (parsed->error.ok() && parsed->all.leaves.size() > UINT32_MAX)
      parsed->error = InvalidDump(path).Says("holds more than 4294967295 values"_t);
    return true;
  }
  std::atomic<bool> good = true, full = false;
  ThreadPool& pool = ThreadPool::Default();
  size_t joined = 0;
  OrderedParts<Entries> pieces(2 * pool.threads() + 2, [&](Entries* piece) {
    const size_t end = ++joined < count ? starts[joined] : text.size();
    const Status room =
        memory->Holds(MemoryWith(parsed->all, piece->leaves.size()) + (mapped ? 0 : end), end);
    full = !room.ok();
    MSPROBE_RETURN_IF_ERROR(room);
    return Append(path, piece, end - starts[0], text.size() - starts[0], &parsed->all);
  });
  pool.ParallelFor(count, [&](size_t i) {
    if (full) return pieces.Put(i, Entries());
    const bool last = i + 1 == count;
    const size_t end = last ? text.size() : starts[i + 1];
    formats::JsonCursor json(text.substr(0, end), starts[i]);
    Entries piece = EntryParser(options).Parse(&json, pieces.Take());
    if (last) {
      note_end(json);
    } else if (json.failed() || Trim(text.substr(piece.end, end - piece.end)) != ",") {
      good = false;
    }
    if (mapped) ForgetPagesAround(text.substr(starts[i], end - starts[i]), text);
    pieces.Put(i, std::move(piece));
  });
  if (good && !pieces.status().ok()) parsed->error = pieces.status();
  return good;
}

// The older tools do not write their names; the keys that they write show which tool it was.
Dialect DialectOf(const Header& header, const Dump& dump, bool has_recompute) {
  if (const Dialect named = DialectOfTool(header.tool); named != Dialect::kNone) return named;
  const bool mindspore = std::any_of(dump.leaves.begin(), dump.leaves.end(), [](const Leaf& leaf) {
    return leaf.type.starts_with("mindspore.");
  });
  if (!header.has_framework && !mindspore) return Dialect::kMsprobe1;
  return has_recompute ? Dialect::kMsprobe8 : Dialect::kMsprobe26;
}

// The error of a text that does not begin as a dump does; ok for a dump.
Status CheckHead(const formats::JsonCursor& head, std::string_view path, bool has_data,
                 const Header& header) {
  if (head.failed()) {
    Status error = head.Error(path);
    if (head.truncated()) {
      return std::move(error).Hint(
          "the run was killed, or could not write, before it recorded anything: there is nothing "
          "to keep in this file"_t);
    }
    return std::move(error).Hint("no msprobe wrote this dump.json: check the path"_t);
  }
  if (!has_data && header.level.empty()) {
    return InvalidDump(path, head.offset())
        .Expected("the key \"data\" of a dump"_t)
        .Found("none"_t);
  }
  return Status::Ok();
}

// What follows the entries: '}', perhaps more members of the header, '}'.
Status ReadTail(std::string_view path, std::string_view text, size_t end, Header* header,
                DumpFileLayout* layout) {
  formats::JsonCursor tail(text, end);
  formats::JsonText key;
  layout->data_closed = layout->root_closed = false;
  if (tail.Peek() != '}' || tail.NextKey(&key) || tail.failed()) return Status::Ok();
  layout->data_closed = true;
  layout->keep = tail.offset();
  while (tail.NextKey(&key)) HeaderMember(&tail, key, header);
  layout->root_closed = !tail.failed();
  if (tail.failed() && !tail.truncated()) return tail.Error(path);
  tail.Peek();  // skips blanks
  if (!tail.failed() && tail.offset() < text.size()) tail.Fail("nothing after the document"_t);
  return tail.failed() && !tail.truncated() ? tail.Error(path) : Status::Ok();
}

// Reads the entries from offset `data` on, and the text after them.
Result<Parsed> ReadEntries(std::string_view path, std::string_view text, size_t data, bool mapped,
                           MemoryShare* memory, bool parse_numbers, Header* header,
                           DumpFileLayout* layout) {
  while (true) {
    const EntryParser::Options options = OptionsFor(*header, parse_numbers);
    const std::vector<size_t> starts = PieceStarts(text, data, mapped);
    Parsed parsed;
    if (!ParsePieces(path, text, starts, options, mapped, memory, &parsed)) {
      parsed = Parsed();
      ParsePieces(path, text, {data}, options, mapped, memory, &parsed);
    }
    if (!parsed.error.ok()) return parsed.error;
    layout->keep = parsed.all.end;
    if (parsed.truncated) return parsed;
    MSPROBE_RETURN_IF_ERROR(ReadTail(path, text, parsed.all.end, header, layout));
    if (OptionsFor(*header, parse_numbers) == options) return parsed;
    // "task" or "tool" came after "data" and asks for other options: read all entries again.
  }
}

// Describes a dump whose run ended before it could write the closing braces.
void NoteUnfinished(std::string_view text, size_t end, DumpFileLayout* layout, Dump* dump) {
  if (!layout->data_closed) {
    std::string_view rest = Trim(text.substr(end));
    if (rest.starts_with(',')) rest = Trim(rest.substr(1));
    layout->dropped = rest.size();
  }
  dump->complete = false;
  const size_t kept = dump->records.size();
  Message note =
      kept == 1
          ? "the run was killed or could not write: no closing braces; 1 record kept"_t
          : "the run was killed or could not write: no closing braces; {} records kept"_t(kept);
  Message ignored;
  if (layout->dropped == 1) ignored = "1 byte of an unfinished entry ignored"_t;
  if (layout->dropped > 1) ignored = "{} bytes of an unfinished entry ignored"_t(layout->dropped);
  dump->note = Message::Joined({std::move(note), std::move(ignored)}, ", ");
}

}  // namespace

Status ReadDumpFile(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<std::string_view>* stack_keys, DumpFileLayout* layout, bool mapped,
                    MemoryShare* memory, bool parse_numbers) {
  MemoryShare unbounded(nullptr, path);
  if (memory == nullptr) memory = &unbounded;
  Header header;
  formats::JsonCursor head(text);
  const size_t data = ReadHeader(&head, &header);
  MSPROBE_RETURN_IF_ERROR(CheckHead(head, path, data != kNoData, header));

  bool has_recompute = false, unfinished = false;
  size_t end = head.offset();
  if (data != kNoData) {
    MSPROBE_ASSIGN_OR_RETURN(Parsed parsed, ReadEntries(path, text, data, mapped, memory,
                                                        parse_numbers, &header, layout));
    end = parsed.all.end;
    unfinished = !layout->root_closed;
    dump->numbers_parsed = parse_numbers;
    dump->has_checksums = parsed.all.has_checksums;
    has_recompute = parsed.all.has_recompute;
    dump->records = std::move(parsed.all.records);
    dump->leaves = std::move(parsed.all.leaves);
    dump->groups = std::move(parsed.all.groups);
    dump->unwritten = std::move(parsed.all.unwritten);
    dump->unreadable = std::move(parsed.all.unreadable);
    dump->strides = std::move(parsed.all.strides);
    dump->sketches = std::move(parsed.all.sketches);
    dump->rests = std::move(parsed.all.rests);
    dump->shards = std::move(parsed.all.shards);
    dump->random_draws = std::move(parsed.all.random_draws);
    dump->precisions = std::move(parsed.all.precisions);
    *stack_keys = std::move(parsed.all.stack_keys);
    parsed.all.arena.Release(&dump->arena);
    dump->shapes.Take(&parsed.all.shapes);
    dump->counts = std::move(parsed.all.counts);
  } else {  // no "data": task structure of the older tools writes the header only
    head.Peek();
    if (head.offset() < text.size()) head.Fail("nothing after the document"_t);
    if (head.failed()) return head.Error(path);
    *layout = {.keep = end, .data_closed = true, .root_closed = true};
  }

  dump->task = TaskNamed(header.task);
  dump->level = LevelNamed(header.level);
  if (header.has_framework) dump->framework = header.framework;
  dump->dialect = DialectOf(header, *dump, has_recompute);
  if (dump->dialect == Dialect::kOtherOurs) {
    // "28" of "msprobe 28.1": what follows FactsOf(kOtherOurs).name, "msprobe ".
    const std::string_view tool = header.tool;
    dump->dialect_detail =
        tool.substr(0, tool.find('.')).substr(FactsOf(dump->dialect).name.size());
  }
  dump->provenance = std::move(header.provenance);
  if (unfinished) {
    NoteUnfinished(text, end, layout, dump);
  } else if (header.cut_short) {
    dump->complete = false;
    const size_t kept = dump->records.size();
    dump->note =
        kept == 1
            ? "the run was killed, and msprobe recover closed its dump; 1 record kept"_t
            : "the run was killed, and msprobe recover closed its dump; {} records kept"_t(kept);
  }
  return Status::Ok();
}

}  // namespace msprobe::dump
