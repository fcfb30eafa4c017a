// Composes one entry of dump.json, piece by piece, into one reusable buffer: no allocation once the
// buffer has grown.
//
//   EntryBuilder b;
//   b.Begin("Functional.relu.0.forward");
//   b.BeginSlot("input_args", "input", '[');
//   b.Tensor({.dtype = "torch.float32", .shape = shape, .stats = &stats, .requires_grad = true});
//   b.Int("int", 3);
//   b.EndSlot(']');
//   writer.Append(b.Finish());   // "Functional.relu.0.forward": {"input_args": [{"type": ...}]}
//
// Keys, their order and the spelling of values are those of the earlier msprobe
// (docs/dump_format.md); ours come after them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/kernels/stats.h"

namespace msprobe::dump {

struct TensorFields {
  std::string_view type = "torch.Tensor";
  std::string_view dtype;  // "torch.float32"
  std::span<const int64_t> shape;
  DTypeKind kind = DTypeKind::kFloat;  // how Max and Min are spelled: 1.0, 1 or true
  bool is_unsigned64 = false;          // int_max and int_min hold bit patterns
  bool is_narrow_float = false;        // no number needs more digits than a float32 has
  const kernels::Stats* stats =
      nullptr;             // null: nothing could be measured, the four values are null
  int64_t later = -1;      // not negative: the statistics come later (late_stats.h)
  int requires_grad = -1;  // 0, 1, or -1: the framework has no such thing
  bool fingerprint = true;
  bool statistics = true;        // false: the four values and the counts are left out
  bool with_counts = true;       // beside the statistics
  bool counts = false;           // counts in spite of that
  int64_t first_nonfinite = -1;  // place of the first NaN or infinity; written when not negative
  // What stats->checksum is; written under "md5", without statistics right behind the shape.
  kernels::Checksum checksum = kernels::Checksum::kNone;
  // A tensor that is spread over processes, as JSON; "" otherwise.
  std::string_view device_mesh, placements;
  std::string_view data_name;  // written when not empty
};

class EntryBuilder {
 public:
  void Begin(std::string_view name);
  // `key` is the JSON key ("input_args"), `category` its spelling in names of tensor files
  // ("input"); open is '[' or '{'.
  void BeginSlot(std::string_view key, std::string_view category, char open);
  void EndSlot(char close);
  // A slot of one value without a list around it.
  void BeginBareSlot(std::string_view key, std::string_view category);
  void EndBareSlot() { --depth_; }
  // Additional members of the entry: text, and what is JSON already.
  void Field(std::string_view key, std::string_view value);
  void RawField(std::string_view key, std::string_view json);
  // An entry that is one value, not an object of slots: "name": VALUE.
  void BeginValue(std::string_view name);
  std::string_view FinishValue();
  // The tensor file of this name could not be kept: the entry says "-1" in its place.
  void ForgetFile(std::string_view file_name);
  // The whole line without separator and newline; valid until the next Begin.
  std::string_view Finish();
  void Reopen();  // after Finish: further members follow

  // Values, inside a slot. Within an object call Key() before each.
  void Key(std::string_view key);
  void BeginList();
  void EndList();
  void BeginObject();
  void EndObject();
  void Null();
  void Tensor(const TensorFields& fields);
  void Bool(bool value);
  void Int(std::string_view type, int64_t value);
  void Float(std::string_view type, double value);
  void String(std::string_view type, std::string_view value);  // {"type": type, "value": "text"}
  void Raw(std::string_view type,
           std::string_view json_value);  // value already JSON: [1, 2], null, 123456789012345678901
  void Member(std::string_view type, std::string_view key,
              std::string_view value);  // {"type": ..., key: "text"}
  void Piece(std::string_view json);    // a value composed elsewhere

  const std::string& name() const { return name_; }
  // Name of the file for the tensor that would be written next: "<entry>.<category>.<path>.pt",
  // made safe as a file name.
  std::string TensorFileName() const;

 private:
  void Comma();
  void OpenContainer(char bracket, bool counts);
  void CloseContainer(char bracket);

  std::string out_;
  std::string name_;
  std::string path_;  // ".0.logits" below the category
  std::string_view category_;
  struct Frame {
    size_t path_size;  // of path_ at the container's own level
    int64_t index;     // next element of a list, -1 in an object
  };
  Frame frames_[402];
  int depth_ = 0;
  bool comma_ = false;
};

// `text` without characters that a file name may not have ('/' and control characters become '_'),
// at most 255 bytes; a name that had to be changed gets a hash in front, a longer one keeps its
// end: different names stay different.
std::string SafeFileName(std::string_view text, std::string_view extension);

// The four values, and the counts that are not zero, of `fields.stats`, each behind a comma.
void AppendStatistics(std::string* out, const TensorFields& fields);
void AppendCounts(std::string* out, const TensorFields& fields);

// A tensor's JSON object; what EntryBuilder::Tensor writes.
void AppendTensor(std::string* out, const TensorFields& fields);

}  // namespace msprobe::dump
