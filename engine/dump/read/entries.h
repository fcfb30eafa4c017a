// Turns entries of dump.json ("name": {...}) into records and leaves. One parser serves every
// dialect: it looks at what a value is, not at who wrote it.
//
//   EntryParser parser({.dialect = Dialect::kMsprobe27});
//   JsonCursor json(bytes, offset);        // behind the brace of "data"
//   Entries found = parser.Parse(&json);   // up to found.end; json.failed(): why it stopped there
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/text_ref.h"
#include "engine/formats/json.h"
#include "engine/model/table.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {

// What a run of entries holds. Leaf::record and Record::first_leaf count from the start of this
// run.
struct Entries {
  std::vector<Record> records;
  std::vector<Leaf> leaves;
  std::vector<ProcessGroup> groups;          // Record::group counts from the start of this run
  std::vector<std::string_view> stack_keys;  // one a record: its "stack" member; "" when absent
  TextArena arena;
  ShapePool shapes;
  std::list<ElementCounts> counts;  // of leaves
  size_t end = 0;                   // offset behind the last whole entry
  bool has_md5 = false;
  bool has_recompute = false;  // the mark of msprobe 8
  Status full;                 // why the rest was not read: EntryParser::Check

  // Empty again, with its memory.
  void Clear() {
    records.clear();
    leaves.clear();
    groups.clear();
    stack_keys.clear();
    arena = TextArena();
    shapes = ShapePool();
    counts.clear();
    end = 0;
    has_md5 = has_recompute = false;
    full = Status::Ok();
  }
};

class EntryParser {
 public:
  struct Options {
    bool names_from_files = false;  // rows are named after their tensor file, as in tensor tables
    Dialect dialect = Dialect::kNone;  // as far as the header says it: DialectOfTool
    bool operator==(const Options&) const = default;
  };
  explicit EntryParser(const Options& options)
      : options_(options), facts_(FactsOf(options.dialect)) {}

  // Reads entries until '}' or the end of the text. After an error `entries` holds the whole
  // entries before it. `room` is the memory of an earlier run, to be used again. `check` sees
  // what there is, every kBetweenChecks leaves, and may stop it: Entries::full.
  static constexpr size_t kBetweenChecks = 4096;
  using Check = std::function<Status(const Entries&)>;
  Entries Parse(formats::JsonCursor* json, Entries room = {}, const Check& check = {});

 private:
  // What holds values: entries.cc.
  void Entry(formats::JsonText name);
  void Member(std::string_view key);
  void Walk(Slot slot);
  void Object(Slot slot);
  void List(Slot slot);
  void ParameterGrad();
  void PointToPoint(Slot slot);
  void TakesPart();

  // One value: entries_leaves.cc.
  struct LeafMembers;  // what the members of one value said
  void LeafObject(Slot slot);
  void LeafMember(std::string_view key, Leaf* leaf, LeafMembers* read);
  void NoneLeaf(Slot slot);
  void PlainLeaf(Slot slot);
  void Scalar(Leaf* leaf);
  Leaf& NewLeaf(Slot slot, LeafKind kind);
  void SetStatistic(TextRef* text, double* value);
  int64_t Count();

  // Text of one value: entries_text.cc.
  // Of types, dtypes and shapes there are few: each is read once, as long as it comes again soon.
  template <typename T>
  struct Recent {
    static constexpr size_t kCount = 4;
    struct {
      std::string_view raw;  // with its quotes or brackets
      T value;
    } known[kCount];
    size_t next = 0;
  };
  template <typename T, typename Read>
  T ReadRecent(Recent<T>* recent, Read&& read);
  std::string_view ReadText();  // of the next value, kept in the arena
  std::string_view Text(formats::JsonText text) { return out_.arena.Decode(text); }
  // A list of numbers, "[2, 3]"; valid until the next value is read.
  std::string_view ListText();
  std::string_view PythonText();
  void AppendPython();

  const Options options_;
  const DialectFacts& facts_;
  formats::JsonCursor* json_ = nullptr;
  Entries out_;
  std::string path_;  // name of the leaf being read
  std::string scratch_;
  Recent<TextRef> types_;
  Recent<ElementType> dtypes_;
  Recent<Shape> shapes_;
};

}  // namespace msprobe::dump
