// One line of a dump of torch_npu.hooks or ptdbg_ascend, taken apart, and made a leaf.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/formats/text/json.h"
#include "engine/model/table.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {

struct PklValues {
  bool has_statistics = false;  // a sixth element, be it an empty list
  std::string_view name;
  int64_t step = 0;         // second element of ptdbg_ascend: what was sampled, 101 for overflows
  bool is_listed = false;   // torch_npu.hooks: the values stand in the line
  std::string_view listed;  // "[1.5, -2.0]"
  std::string_view digest;  // MD5 or CRC-32, hexadecimal
  std::string_view dtype, shape;
  bool is_scalar = false;                    // the shape is a text: a Python value
  std::vector<std::string_view> statistics;  // max, min, mean, perhaps norm; "" where not a number
  std::vector<std::string_view> frames;      // of a stack, as stack.json spells them
  std::string_view stack;                    // the same as it stands in the line
  bool is_text = false;                      // the stack is one text
};

// Reads one list; false: json.failed(), or it is none of the forms.
bool ReadPklValues(formats::JsonCursor* json, TextArena* arena, PklValues* line);

// The lists of a file one after another, whatever line they stand in; a defect of ptdbg_ascend 0.1
// wrote several in one.
//
//   PklWalker walker(text);
//   while (walker.Next())
//     walker.bad() ? Complain(walker.Error(path)) : Take(walker.values());
class PklWalker {
 public:
  // What is decoded goes to `arena`; null: it lives until the next call of Next.
  explicit PklWalker(std::string_view text, TextArena* arena = nullptr)
      : text_(text), arena_(arena) {}

  // Moves to the next list; behind text that is not a list, to the next line. False at the end.
  bool Next();
  bool bad() const { return bad_; }                // not a list
  bool unfinished() const { return unfinished_; }  // bad, and the text ends in it
  const PklValues& values() const { return values_; }
  size_t begin() const { return begin_; }  // of what Next went to
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

// Everything of the leaf but record, slot and name.
void FillLeaf(const PklValues& line, ShapePool* shapes, Leaf* leaf);

// What the list of a torch_npu.hooks line holds, by its length and the shape.
enum class ListForm : uint8_t { kOther, kAll, kSample, kEither };
ListForm FormOfList(const Leaf& leaf);
void TakeStatisticsFromList(Leaf* leaf);

}  // namespace msprobe::dump
