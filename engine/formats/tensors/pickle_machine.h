// The state of a pickle while it is read: the bytes, the tree that is being built, a stack of node
// indices, marks into that stack, and a memo.
//
// Only the first error is kept. Operands are read by Take, which checks the length; the stack is
// read by Pop and PopMark, which check the depth. After an error these return harmless values. So a
// caller tests ok() before it builds something, and once for each opcode.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/tensors/pickle.h"

namespace msprobe::formats {

class PickleMachine {
 public:
  static constexpr uint32_t kNoNode = UINT32_MAX;

  PickleMachine(std::string_view bytes, const UnpickleOptions& options)
      : bytes_(bytes), options_(options) {}

  // ---- Reading and failing.

  bool ok() const { return error_.ok(); }
  const Status& error() const { return error_; }
  // Names the place of the opcode that is being executed.
  void Fail(Message expected, Message found, Message hint = {});

  size_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  uint8_t NextOpcode() {
    opcode_at_ = position_;
    return TakeNumber<uint8_t>();
  }
  std::string_view Take(uint64_t size);
  std::string_view TakeLine();
  template <typename T>
  T TakeNumber() {
    const std::string_view bytes = Take(sizeof(T));
    return bytes.empty() ? T{} : LoadLittle<T>(bytes.data());
  }

  // ---- New nodes, on top of the stack. They do nothing after an error.

  PickleNode* New(PickleKind kind);  // nullptr when there are too many already, or after an error
  void NewText(PickleKind kind, std::string_view text);
  void NewInteger(PickleKind kind, int64_t value);
  void NewItems(PickleKind kind, const std::vector<uint32_t>& items);
  void AddItems(uint32_t to, const std::vector<uint32_t>& items);  // to the node of that index

  const PickleNode& operator[](uint32_t index) const { return tree_[index]; }

  // ---- Stack, marks, memo.

  uint32_t Pop();  // never below the last mark
  std::vector<uint32_t> PopSome(int count);
  std::vector<uint32_t> PopMark();  // all above the last mark, and the mark
  // The value on top, of the kind an opcode needs; it stays there.
  uint32_t Top(PickleKind kind, Message what);
  bool TopIs(PickleKind kind) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() > floor && tree_[stack_.back()].kind == kind;
  }
  bool keeps_objects() const { return options_.keep_objects; }
  void Mark() { marks_.push_back(stack_.size()); }

  void Put(uint64_t index);
  void Get(uint64_t index);
  void Memoize() { Put(memo_count_); }

  // At STOP: the only value left is the root.
  bool Finish();
  PickleTree TakeTree() { return std::move(tree_); }

 private:
  void Push(uint32_t index) {
    if (index != kNoNode && ok()) stack_.push_back(index);
  }

  std::string_view bytes_;
  const UnpickleOptions& options_;
  PickleTree tree_;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
  uint64_t memo_count_ = 0;  // the number that MEMOIZE gives the next value
  size_t position_ = 0, opcode_at_ = 0;
  Status error_;
};

}  // namespace msprobe::formats
