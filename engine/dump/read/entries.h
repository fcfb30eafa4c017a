// Turns entries of dump.json ("name": {...}) into records and leaves. One parser serves every
// dialect: it looks at the value, not at the tool that wrote it.
//
//   EntryParser parser({.dialect = Dialect::kMsprobe27});
//   JsonCursor json(bytes, offset);        // after the brace of "data"
//   Entries found = parser.Parse(&json);   // up to found.end; json.failed(): why it stopped there
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/read/leaf_parser.h"
#include "engine/formats/text/json.h"
#include "engine/model/table.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {

// What a run of entries holds. Leaf::record and Record::first_leaf count from the start of this
// run.
struct Entries {
  std::vector<Record> records;
  std::vector<Leaf> leaves;
  std::vector<ProcessGroup> groups;  // Record::group counts from the start of this run
  // Of single leaves, which count from the start of this run.
  LeafTexts unwritten, unreadable, strides, sketches;
  std::vector<LeafRest> rests;
  std::vector<LeafShard> shards;
  RecordTexts random_draws, precisions;      // RecordText::record counts from the start of this run
  std::vector<std::string_view> stack_keys;  // the "stack" member of each record; "" when absent
  TextArena arena;
  ShapePool shapes;
  std::list<ElementCounts> counts;  // of leaves
  size_t end = 0;                   // offset after the last whole entry
  bool has_checksums = false;
  bool has_recompute = false;  // the mark of msprobe 8
  Status full;                 // why the rest was not read: EntryParser::Check

  // Removes the content and keeps the memory.
  void Clear() {
    records.clear();
    leaves.clear();
    groups.clear();
    unwritten.clear();
    unreadable.clear();
    strides.clear();
    sketches.clear();
    rests.clear();
    shards.clear();
    random_draws.clear();
    precisions.clear();
    stack_keys.clear();
    arena = TextArena();
    shapes = ShapePool();
    counts.clear();
    end = 0;
    has_checksums = has_recompute = false;
    full = Status::Ok();
  }
};

class EntryParser {
 public:
  struct Options {
    bool names_from_files = false;  // rows are named after their tensor file, as in tensor tables
    Dialect dialect = Dialect::kNone;  // as far as the header says it: DialectOfTool
    bool parse_numbers = true;         // ReadOptions
    bool operator==(const Options&) const = default;
  };
  explicit EntryParser(const Options& options)
      : leaves_(options.dialect, options.names_from_files, options.parse_numbers) {}

  // Reads entries until '}' or the end of the text. After an error `entries` holds the whole
  // entries before it. `room` is the memory of an earlier run, to be used again. `check` is called
  // after every kBetweenChecks leaves; when it returns an error, reading stops (Entries::full).
  static constexpr size_t kBetweenChecks = 4096;
  using Check = std::function<Status(const Entries&)>;
  Entries Parse(formats::JsonCursor* json, Entries room = {}, const Check& check = {});

 private:
  void Entry(formats::JsonText name);
  void Member(std::string_view key);
  void StackKey();
  void Training();
  void Walk(Slot slot);
  void Object(Slot slot);
  void List(Slot slot);
  void ParameterGrad();
  void SortBySlot(uint32_t first);  // the leaves from `first` on
  void PointToPoint(Slot slot);
  void ReadGroup();
  void ReadText(RecordTexts* texts);
  Leaf* NewLeaf(Slot slot);
  // The same text, where possible that of an earlier entry.
  std::string_view KnownApi(std::string_view api);
  std::string_view Text(formats::JsonText text) { return out_.arena.Decode(text); }

  LeafParser leaves_;
  formats::JsonCursor* json_ = nullptr;
  Entries out_;
  std::string path_;  // name of the value that is read now
  // Names of APIs that were read. Rules ask millions of calls for their API: those that share a
  // text find it in the cache of the core.
  std::array<std::string_view, 256> apis_;
};

}  // namespace msprobe::dump
