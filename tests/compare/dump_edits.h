// A recorded dump, edited as people edit a program, with the truth of which call is which.
//
//   DumpEdits edits(source, random);
//   // false: nothing in the dump can be edited like this
//   edits.Make(Edit::kInsert);
//   EditedDump target = edits.Build();          // `source` must outlive it
//   AlignRecords(target.dump, DumpEdits(source, random).Build().dump, {});
//
// Calls are numbered again as the recording tools do it. A new call takes and makes new values.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::compare::test {

enum class Edit : uint8_t {
  kInsert,   // a call of a new source line
  kDelete,   // a call
  kRename,   // a call: another function that computes the same
  kSplit,    // one call in two
  kJoin,     // two calls in one
  kReorder,  // a call runs behind later calls that do not take what it makes
  kRepeat,   // a module is called once more
  kCopy,     // a module that runs once more under another name
};
inline constexpr Edit kEdits[] = {Edit::kInsert, Edit::kDelete,  Edit::kRename, Edit::kSplit,
                                  Edit::kJoin,   Edit::kReorder, Edit::kRepeat, Edit::kCopy};
std::string_view NameOf(Edit edit);

struct EditedDump {
  Dump dump;
  // For each record the record of the source that is the same call; -1: none is.
  std::vector<int32_t> truth;
  // For each record those of the source of which it is a part, or which are parts of it: to pair
  // the record with one of these is neither right nor wrong.
  std::vector<std::vector<int32_t>> parts;
};

class DumpEdits {
 public:
  using Random = std::mt19937_64;

  DumpEdits(const Dump& source, Random& random);

  bool Make(Edit edit);
  // `changed`: what is computed behind the first edit has other values, as when an edit is no
  // harmless one.
  EditedDump Build(bool changed = false) const;

 private:
  // One record of the edited dump.
  struct Item {
    int32_t source = 0;      // the record whose inputs it has
    int32_t outputs_of = 0;  // the record whose outputs it has
    bool same = true;        // it is the call of `source`
    std::vector<int32_t> parts;
    int32_t call = 0;     // one number for the forward and the backward record of a call
    int32_t parent = -1;  // the call of the enclosing module; -1: as in the source
    std::string api;
    // Of new values that go in and come out; 0: the recorded ones.
    uint64_t inputs = 0, outputs = 0;
    int line = 0;          // of new source; 0: as in the source
    bool touched = false;  // an edit begins here
  };
  using Position = std::vector<Item>::iterator;

  bool IsApi(const Item& item) const;
  // A random forward call of an API; items_.end(): there is none.
  Position AnyCall();
  Position BackwardOf(int32_t call);
  const Item& Other();  // the item of any forward call

  bool Insert();
  bool Delete();
  bool Rename();
  bool Split();
  bool Join();
  bool Reorder();
  bool Repeat(bool other_name);
  void AppendRecord(const Item& item, int64_t number, std::string_view parent,
                    std::unordered_set<uint64_t>* changed, bool behind, EditedDump* out) const;
  void AppendLeaf(const Item& item, const Leaf& leaf, const Record& from,
                  std::unordered_set<uint64_t>* changed, bool behind, EditedDump* out) const;

  const Dump& source_;
  Random& random_;
  std::vector<Item> items_;
  int32_t calls_ = 0;        // numbers that are taken
  int next_line_ = 1000000;  // of new source
};

}  // namespace msprobe::compare::test
