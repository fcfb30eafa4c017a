// One recorded call in one direction, typed: what the capture fills, what every sink takes
// (entry_sink.h). An entry is filled piece by piece in reused memory: once its buffers have grown,
// filling allocates nothing.
//
//   Entry e;
//   e.Begin("Functional.relu.0.forward");
//   e.BeginSlot("input_args", "input", Entry::Container::kList);
//   TensorValue& t = e.AddTensor();          // dtype, shape, stats, ... are set in place
//   e.Int("int", 3);
//   e.EndSlot();
//
// Values form a tree. It is held flat, in the order in which values were added: `values()[i].end`
// is the index after the last value inside value i.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/kernels/rest_stats.h"
#include "engine/kernels/sketch.h"
#include "engine/kernels/stats.h"
#include "engine/model/deferred_numbers.h"
#include "engine/tensor/dtype.h"

namespace msprobe {

// What is recorded of one tensor or array.
struct TensorValue {
  std::string type = "torch.Tensor";
  std::string dtype;                     // as the framework spells it: "torch.float32"
  DType element_type = DType::kFloat32;  // the same, where the elements could be read
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; empty for a contiguous tensor

  // Which of the numbers below are known: none, for a tensor whose elements cannot be read; all of
  // them (kHere); none yet (kDeferred); those of a device, which have no fingerprint (kFromDevice).
  enum class Numbers : uint8_t { kUnreadable, kHere, kDeferred, kFromDevice };
  Numbers numbers = Numbers::kUnreadable;
  int64_t ticket = -1;  // kDeferred: number under which the statistics will come (Resolve)
  kernels::Stats stats;
  std::optional<kernels::RestStats> rest;  // set: the tensor has extremes
  std::optional<kernels::Sketch> sketch;   // of the elements that are no extremes; unset: none
  int64_t first_nonfinite = -1;  // flat index of the first NaN or infinity; -1: none, or not asked

  // Which of them are recorded.
  bool with_statistics = true;  // Max, Min, Mean, Norm
  bool with_counts = true;      // of NaN, infinities and zeros
  bool with_fingerprint = true;
  kernels::Checksum checksum = kernels::Checksum::kNone;  // which one stats.checksum is

  void Resolve(const DeferredNumbers& numbers);

  std::optional<bool> requires_grad;  // unset: the framework has no such thing
  // Of a tensor spread over processes, as JSON; "" of any other. `shape` is that of the local part.
  std::string device_mesh, placements, global_shape;
  // Of a tensor that torch.func.vmap batches: the dimensions of `shape` that are batches, that of
  // the outermost vmap first.
  std::vector<int64_t> vmap;
  std::string unreadable;  // why its elements cannot be read: "meta tensor"; "" when they can be
  std::string unwritten;   // the call that returned its memory, while nobody has written all of it
  std::string file;        // its tensor file; "-1": could not be kept; "": none

  bool measured() const { return numbers == Numbers::kHere || numbers == Numbers::kFromDevice; }
  void Clear();  // as constructed, with its memory
};

// The tensors of an entry. Those that are cleared keep their memory for the next ones; a copy of
// the list has those only that are not cleared.
class ReusedTensors {
 public:
  ReusedTensors() = default;
  ReusedTensors(const ReusedTensors& other)
      : all_(other.all().begin(), other.all().end()), count_(other.count_) {}
  ReusedTensors& operator=(const ReusedTensors& other);
  ReusedTensors(ReusedTensors&& other) noexcept
      : all_(std::move(other.all_)), count_(std::exchange(other.count_, 0)) {}
  ReusedTensors& operator=(ReusedTensors&& other) noexcept {
    all_ = std::move(other.all_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~ReusedTensors() = default;

  std::span<const TensorValue> all() const { return {all_.data(), count_}; }
  std::span<TensorValue> all() { return {all_.data(), count_}; }
  TensorValue& Add();  // valid until the next one is added
  void Clear() { count_ = 0; }

 private:
  std::vector<TensorValue> all_;  // the first count_, and those that were cleared
  size_t count_ = 0;
};

// Who takes part in a call of torch.distributed. Ranks count over all processes; -1: not known.
struct CollectiveGroup {
  enum class Role : uint8_t { kNone, kSource, kReceiver };
  std::vector<int64_t> ranks;  // members; empty: not a collective, or its group does not tell
  std::string id;              // checksum of the ranks, by which dumps name a group
  int64_t place = -1;          // of this process in `ranks`
  Role role = Role::kNone;
  int64_t from = -1, to = -1;
};

class Entry {
 public:
  enum class Kind : uint8_t {
    kNull,    // nothing recorded
    kTensor,  // tensor()
    kBool,
    kInt,
    kFloat,
    kDigits,  // text: an integer beyond 64 bits, or another literal that JSON has
    kText,
    kInts,   // ints(): torch.Size, slice
    kGroup,  // text: its id; ints(): its ranks
    kList,
    kDict,
  };
  // A text inside the entry.
  struct Text {
    uint32_t offset = 0, size = 0;
  };
  struct Value {
    Kind kind = Kind::kNull;
    bool bare = false;    // written as it is, without an object that says its type
    uint32_t end = 0;     // index of the next value that is not inside this one
    uint32_t index = 0;   // kTensor: of the tensor; kInts, kGroup: of the first int
    uint32_t count = 0;   // kInts, kGroup
    Text key;             // in a dict
    Text type;            // "int", "torch.Size"
    Text text, text_key;  // kText, kDigits; the member that has it: "value", "format"
    int64_t integer = 0;  // kInt, kBool
    double number = 0;    // kFloat
  };
  enum class Container : uint8_t {
    kList,
    kDict,
    kNone,  // one value stands for the whole slot
  };
  struct Slot {
    Text key;       // in the file: "input_args"
    Text category;  // in names of tensor files: "input"; "" for gradients of parameters
    uint32_t root;  // index of its value
  };

  void Begin(std::string_view name);
  // An entry that is one value, not an object of slots (level debug).
  void BeginValue(std::string_view name);
  void BeginSlot(std::string_view key, std::string_view category, Container container);
  void EndSlot();

  // Values, inside a slot. In a dict, Key() goes before each.
  void Key(std::string_view key) { key_ = Keep(key); }
  void BeginList() { Open(Kind::kList); }
  void BeginDict() { Open(Kind::kDict); }
  void EndContainer() { Close(); }
  void Null() { Add(Kind::kNull); }
  TensorValue& AddTensor();  // valid until the next one is added
  void AddTensor(TensorValue&& tensor) { AddTensor() = std::move(tensor); }
  void Bool(std::string_view type, bool value);
  void Int(std::string_view type, int64_t value);
  void Float(std::string_view type, double value);
  void Digits(std::string_view type, std::string_view literal);
  void String(std::string_view type, std::string_view text) { Member(type, "value", text); }
  void Member(std::string_view type, std::string_view key, std::string_view text);
  void Ints(std::string_view type, std::span<const std::optional<int64_t>> numbers);
  void Group(std::span<const int64_t> ranks, std::string_view id);
  void BareText(std::string_view text);
  void BareInt(std::optional<int64_t> number);

  // "<entry>.<category>.<place>.pt" of the tensor that would be added next, safe as a file name.
  std::string TensorFileName(std::string_view suffix = ".pt") const;
  // The same for tensor number `index`, when the entry is whole.
  std::string FileNameOf(size_t index, std::string_view suffix) const;
  void SetFile(size_t index, std::string file) { tensors_.all()[index].file = std::move(file); }
  // The tensor file of this name could not be kept: its value says "-1" in its place.
  void ForgetFile(std::string_view file);

  // Facts of the call beside its values.
  std::string exception;         // type of the exception that ended it; "" when none did
  std::string completion;        // of a collective that came later: "waited for"; "" otherwise
  std::string changed_in_place;  // values whose tensors were not kept: "input.0, output.0"
  CollectiveGroup group;
  std::optional<bool> is_nan;    // task nan_check
  std::optional<bool> training;  // of a module's call: its mode, train or eval
  std::string random_state;  // the generator's before a call that may draw: 16 hex digits; or ""
  std::string precision;     // as precision_text.h, where it is not what the header says; or ""
  std::string module;  // of an API, "Module.fc.Linear": the module around it, if that has no entry
  int64_t stack = -1;  // number in stack.json; -1: none

  const std::string& name() const { return name_; }
  bool is_value() const { return is_value_; }
  std::span<const Slot> slots() const { return slots_; }
  std::span<const Value> values() const { return values_; }
  std::span<const TensorValue> tensors() const { return tensors_.all(); }
  // The same, for numbers that come later (TensorValue::Resolve).
  std::span<TensorValue> tensors() { return tensors_.all(); }
  const TensorValue& tensor(const Value& value) const { return tensors_.all()[value.index]; }
  std::span<const std::optional<int64_t>> ints(const Value& value) const {
    return std::span(ints_).subspan(value.index, value.count);
  }
  std::string_view text(Text text) const {
    return std::string_view(text_).substr(text.offset, text.size);
  }

 private:
  struct Frame {
    uint32_t value = 0;  // the container
    Container container = Container::kNone;
    int64_t next = 0;  // index of the next element of a list
    Text key;          // of the last element of a dict
  };
  Text Keep(std::string_view text);
  Value& Add(Kind kind);
  void Open(Kind kind);
  void Close();

  std::string name_;
  bool is_value_ = false;
  std::vector<Slot> slots_;
  std::vector<Value> values_;
  ReusedTensors tensors_;
  std::vector<std::optional<int64_t>> ints_;
  std::string text_;
  std::vector<Frame> frames_;  // containers that are open, innermost last
  Text key_;                   // of the next value
};

}  // namespace msprobe
