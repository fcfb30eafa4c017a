// Parses one line of a pkl dump, and makes a leaf of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/formats/text/json.h"
#include "engine/model/table.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {

struct PklValues {
  bool has_statistics = false;  // there is a sixth element; it may be an empty list
  std::string_view name;
  int64_t step = 0;         // second element of ptdbg_ascend: the sample step; 101 for overflows
  bool is_listed = false;   // torch_npu.hooks: the elements are in the line
  std::string_view listed;  // "[1.5, -2.0]"
  std::string_view digest;  // MD5 or CRC-32, hexadecimal
  std::string_view dtype, shape;
  bool is_scalar = false;                    // the shape is a text: a Python value
  std::vector<std::string_view> statistics;  // max, min, mean, perhaps norm; "" where not a number
  std::vector<std::string_view> frames;      // of a stack, as stack.json spells them
  std::string_view stack;                    // the same, as spelled in the line
  bool is_text = false;                      // the stack is one text
};

// Reads one list. false: json.failed(), or the list has an unknown form.
bool ReadPklValues(formats::JsonCursor* json, TextArena* arena, PklValues* line);

// Walks over the lists of a file. A line may hold several lists: a defect of ptdbg_ascend 0.1 wrote
// such lines.
//
//   PklWalker walker(text);
//   while (walker.Next())
//     walker.bad() ? Complain(walker.Error(path)) : Take(walker.values());
class PklWalker {
 public:
  // Decoded text is added to `arena`; null: it is valid until the next call of Next.
  explicit PklWalker(std::string_view text, TextArena* arena = nullptr)
      : text_(text), arena_(arena) {}

  // Moves to the next list; after text that is not a list, to the next line. False at the end.
  bool Next();
  bool bad() const { return bad_; }                // not a list
  bool unfinished() const { return unfinished_; }  // bad, and the text ends in it
  const PklValues& values() const { return values_; }
  size_t begin() const { return begin_; }  // offset of the present list
  size_t end() const { return end_; }
  int64_t LineNumber() const;  // from 1
  Status Error(std::string_view path) const { return json_.Error(path); }

 private:
  std::string_view text_;
  TextArena* arena_;
  TextArena own_;
  PklValues values_;
  formats::JsonCursor json_{std::string_view()};
  size_t begin_ = 0, end_ = 0;
  bool bad_ = false, unfinished_ = false;
};

// Fills all members of the leaf except record, slot and name.
void FillLeaf(const PklValues& line, ShapePool* shapes, Leaf* leaf);

// What the list of a torch_npu.hooks line holds, as its length and the shape tell: all elements, a
// sample with three statistics, or either.
enum class ListForm : uint8_t { kOther, kAll, kSample, kEither };
ListForm FormOfList(const Leaf& leaf);
void TakeStatisticsFromList(Leaf* leaf);

}  // namespace msprobe::dump
