#include "engine/formats/tensors/pickle_machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace msprobe::formats {
namespace {
constexpr uint16_t kDeepestItem = 256;
}  // namespace

void PickleMachine::Fail(Message expected, Message found, Message hint) {
  if (!ok()) return;
  error_ = InvalidDump(options_.path, options_.base_offset + opcode_at_)
               .Expected(std::move(expected))
               .Found(std::move(found))
               .Hint(std::move(hint));
}

std::string_view PickleMachine::Take(uint64_t size) {
  const uint64_t left = bytes_.size() - position_;
  if (size > left) {
    Fail("{} more bytes of pickle"_t(size), fmt::format("{}", left));
    return {};
  }
  position_ += size;
  return bytes_.substr(position_ - size, size);
}

std::string_view PickleMachine::TakeLine() {
  const size_t end = bytes_.find('\n', position_);
  if (end == std::string_view::npos) {
    Fail("a line of pickle"_t, "no end of line"_t);
    return {};
  }
  const std::string_view line = bytes_.substr(position_, end - position_);
  position_ = end + 1;
  return line;
}

PickleNode* PickleMachine::New(PickleKind kind) {
  if (!ok()) return nullptr;
  if (tree_.nodes_.size() >= options_.max_nodes) {
    Fail("a pickle of at most {} values"_t(options_.max_nodes), "more"_t);
    return nullptr;
  }
  stack_.push_back(static_cast<uint32_t>(tree_.nodes_.size()));
  PickleNode& node = tree_.nodes_.emplace_back();
  node.kind = kind;
  node.offset = options_.base_offset + opcode_at_;
  return &node;
}

void PickleMachine::NewText(PickleKind kind, std::string_view text) {
  if (PickleNode* node = New(kind)) node->text = text;
}

void PickleMachine::NewInteger(PickleKind kind, int64_t value) {
  if (PickleNode* node = New(kind)) node->integer = value;
}

void PickleMachine::NewItems(PickleKind kind, const std::vector<uint32_t>& items) {
  if (New(kind) == nullptr) return;
  AddItems(static_cast<uint32_t>(tree_.nodes_.size() - 1), items);
}

void PickleMachine::AddItems(uint32_t to, const std::vector<uint32_t>& items) {
  PickleNode& node = tree_.nodes_[to];
  for (const uint32_t item : items) {
    const uint16_t depth = tree_.nodes_[item].depth;
    if (depth >= kDeepestItem) return Fail("nesting of at most {}"_t(kDeepestItem), "more"_t);
    // A list inside itself has no depth; walkers meet the limit again.
    if (item != to) node.depth = std::max<uint16_t>(node.depth, depth + 1);
    node.items.push_back(item);
  }
}

uint32_t PickleMachine::Pop() {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) {
    Fail("a value on the pickle's stack"_t, "none"_t);
    return kNoNode;
  }
  const uint32_t top = stack_.back();
  stack_.pop_back();
  return top;
}

std::vector<uint32_t> PickleMachine::PopSome(int count) {
  std::vector<uint32_t> items(count);
  for (int i = count - 1; i >= 0; --i) items[i] = Pop();
  if (!ok()) items.clear();
  return items;
}

std::vector<uint32_t> PickleMachine::PopMark() {
  if (marks_.empty()) {
    Fail("a mark on the pickle's stack"_t, "none"_t);
    return {};
  }
  std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
  stack_.resize(marks_.back());
  marks_.pop_back();
  return items;
}

uint32_t PickleMachine::Top(PickleKind kind, Message what) {
  const uint32_t top = Pop();
  Push(top);
  if (top != kNoNode && tree_.nodes_[top].kind != kind) {
    Fail(std::move(what), "another kind of value"_t);
    return kNoNode;
  }
  return top;
}

void PickleMachine::Put(uint64_t index) {
  const uint32_t top = Pop();
  Push(top);
  // A pickler numbers its memo from 0 and each number costs it two bytes.
  const uint64_t limit = std::min<uint64_t>(bytes_.size(), options_.max_nodes);
  if (index >= limit) {
    return Fail("a memo index below {}"_t(limit), fmt::format("{}", index));
  }
  if (index >= memo_.size()) memo_.resize(index + 1, kNoNode);
  memo_[index] = top;
  if (index + 1 > memo_count_) memo_count_ = index + 1;
}

void PickleMachine::Get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == kNoNode) {
    return Fail("a memo index that was stored before"_t, fmt::format("{}", index));
  }
  Push(memo_[index]);
}

bool PickleMachine::Finish() {
  if (stack_.size() != 1 || !marks_.empty()) {
    Fail("one value left at the end of the pickle"_t, fmt::format("{}", stack_.size()));
    return false;
  }
  tree_.root_ = stack_[0];
  return true;
}

}  // namespace msprobe::formats
