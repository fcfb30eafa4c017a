#include "engine/formats/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/formats/byte_order.h"
#include "engine/formats/pickle_globals.h"
#include "engine/formats/pickle_opcodes.h"

namespace msprobe {
namespace {
constexpr uint16_t kMaxDepth = 256;
constexpr uint32_t kNoNode = UINT32_MAX;
}  // namespace

std::string PickleTree::DottedName(const PickleNode& node) const {
  if (node.kind == PickleKind::kCall) return DottedName(nodes_[node.items[0]]);
  if (node.kind != PickleKind::kGlobal) return "";
  return fmt::format("{}.{}", node.module, node.text);
}

// The pickle machine: a stack of node indices, a stack of marks into it, a memo. Every step reads
// its operands through Take, which checks the length, and its stack through Pop and PopMark, which
// check the depth; after a failure those give harmless values, and the loop stops at the first
// error.
class Unpickler {
 public:
  Unpickler(std::string_view bytes, const UnpickleOptions& options)
      : bytes_(bytes), options_(options) {}

  Result<PickleTree> Run(size_t* consumed) {
    if (bytes_.substr(0, 1) != "\x80") {
      return InvalidDump(options_.path, options_.base_offset)
          .Expected("a pickle of protocol 2 to 5")
          .Found(bytes_.empty() ? "no bytes" : Excerpt(bytes_, 8));
    }
    bool stopped = false;
    while (!stopped && error_.ok()) {
      opcode_at_ = position_;
      const std::string_view opcode = Take(1);
      if (error_.ok()) stopped = Step(static_cast<uint8_t>(opcode[0]));
    }
    if (!error_.ok()) return error_;
    if (consumed != nullptr) {
      *consumed = position_;
    } else if (position_ != bytes_.size()) {
      return InvalidDump(options_.path, options_.base_offset + position_)
          .Expected("the end of the pickle after STOP")
          .Found(fmt::format("{} more bytes", bytes_.size() - position_));
    }
    tree_.root_ = stack_[0];
    return std::move(tree_);
  }

 private:
  // ---- Reading and failing.

  void Fail(std::string_view expected, std::string_view found, std::string_view hint = "") {
    if (!error_.ok()) return;
    error_ = InvalidDump(options_.path, options_.base_offset + opcode_at_)
                 .Expected(expected)
                 .Found(found)
                 .Hint(hint);
  }

  std::string_view Take(uint64_t size) {
    const uint64_t left = bytes_.size() - position_;
    if (size > left) {
      Fail(fmt::format("{} more bytes of pickle", size), fmt::format("{}", left));
      return {};
    }
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }

  template <typename T>
  T TakeNumber() {
    const std::string_view bytes = Take(sizeof(T));
    return bytes.empty() ? T{} : LoadLittle<T>(bytes.data());
  }

  std::string_view TakeLine() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) {
      Fail("a line of pickle", "no end of line");
      return {};
    }
    const std::string_view line = bytes_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  // ---- Nodes, stack, marks, memo.

  void Push(uint32_t index) {
    if (index != kNoNode && error_.ok()) stack_.push_back(index);
  }

  PickleNode* New(PickleKind kind) {
    if (tree_.nodes_.size() >= options_.max_nodes) {
      Fail(fmt::format("a pickle of at most {} values", options_.max_nodes), "more");
      return nullptr;
    }
    stack_.push_back(static_cast<uint32_t>(tree_.nodes_.size()));
    PickleNode& node = tree_.nodes_.emplace_back();
    node.kind = kind;
    node.offset = options_.base_offset + opcode_at_;
    return &node;
  }

  void NewText(PickleKind kind, std::string_view text) {
    if (!error_.ok()) return;
    if (PickleNode* node = New(kind)) node->text = text;
  }

  void NewInteger(PickleKind kind, int64_t value) {
    if (!error_.ok()) return;
    if (PickleNode* node = New(kind)) node->integer = value;
  }

  void NewItems(PickleKind kind, std::vector<uint32_t> items) {
    if (!error_.ok()) return;
    PickleNode* node = New(kind);
    if (node == nullptr) return;
    AddItems(static_cast<uint32_t>(tree_.nodes_.size() - 1), items);
  }

  void AddItems(uint32_t to, const std::vector<uint32_t>& items) {
    PickleNode& node = tree_.nodes_[to];
    for (const uint32_t item : items) {
      const uint16_t depth = tree_.nodes_[item].depth;
      if (depth >= kMaxDepth) return Fail(fmt::format("nesting of at most {}", kMaxDepth), "more");
      // A list inside itself has no depth; walkers meet the limit again.
      if (item != to) node.depth = std::max<uint16_t>(node.depth, depth + 1);
      node.items.push_back(item);
    }
  }

  uint32_t Pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) {
      Fail("a value on the pickle's stack", "none");
      return kNoNode;
    }
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }

  std::vector<uint32_t> PopSome(int count) {
    std::vector<uint32_t> items(count);
    for (int i = count - 1; i >= 0; --i) items[i] = Pop();
    if (!error_.ok()) items.clear();
    return items;
  }

  std::vector<uint32_t> PopMark() {
    if (marks_.empty()) {
      Fail("a mark on the pickle's stack", "none");
      return {};
    }
    const std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()),
                                      stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  // The value on top, of the kind an opcode needs.
  uint32_t Top(PickleKind kind, std::string_view what) {
    const uint32_t top = Pop();
    Push(top);
    if (top != kNoNode && tree_.nodes_[top].kind != kind) {
      Fail(what, "another kind of value");
      return kNoNode;
    }
    return top;
  }

  void Put(uint64_t index) {
    const uint32_t top = Pop();
    Push(top);
    // A pickler numbers its memo from 0 and each number costs it two bytes.
    const uint64_t limit = std::min<uint64_t>(bytes_.size(), options_.max_nodes);
    if (index >= limit) {
      return Fail(fmt::format("a memo index below {}", limit), fmt::format("{}", index));
    }
    if (index >= memo_.size()) memo_.resize(index + 1, kNoNode);
    memo_[index] = top;
    if (index + 1 > memo_count_) memo_count_ = index + 1;
  }

  void Get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNoNode) {
      return Fail("a memo index that was stored before", fmt::format("{}", index));
    }
    Push(memo_[index]);
  }

  // ---- What the opcodes build.

  void Long(uint64_t size) {
    const std::string_view bytes = Take(size);
    if (!error_.ok()) return;
    if (bytes.size() > 8) return NewText(PickleKind::kBigInt, bytes);
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    NewInteger(PickleKind::kInt, static_cast<int64_t>(value));
  }

  void Real() {
    const uint64_t bits = __builtin_bswap64(TakeNumber<uint64_t>());
    if (!error_.ok()) return;
    if (PickleNode* node = New(PickleKind::kFloat)) node->real = std::bit_cast<double>(bits);
  }

  void Global(std::string_view module, std::string_view name) {
    if (!error_.ok()) return;
    if (!IsAllowedGlobal(module, name)) {
      const std::string_view hint = RefusedGlobalHint(module, name);
      return Fail(
          "plain tensors and values",
          fmt::format("the global {}", Excerpt(fmt::format("{}.{}", module, name), 100)),
          !hint.empty() ? hint : "Python might run code to open this file; msprobe does not");
    }
    if (PickleNode* node = New(PickleKind::kGlobal)) {
      node->module = module;
      node->text = name;
    }
  }

  void StackGlobal() {
    const std::vector<uint32_t> names = PopSome(2);
    if (!error_.ok()) return;
    const PickleNode &module = tree_.nodes_[names[0]], &name = tree_.nodes_[names[1]];
    if (module.kind != PickleKind::kString || name.kind != PickleKind::kString) {
      return Fail("two strings that name a global", "other values");
    }
    Global(module.text, name.text);
  }

  void Call() {
    const std::vector<uint32_t> call = PopSome(2);
    if (!error_.ok()) return;
    const PickleNode &callee = tree_.nodes_[call[0]], &arguments = tree_.nodes_[call[1]];
    if (callee.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple) {
      return Fail("a call of a global with a tuple", "a call of something else");
    }
    if (callee.module == "collections" && callee.text == "OrderedDict")
      return OrderedDict(arguments);
    NewItems(PickleKind::kCall, call);
  }

  // OrderedDict() is filled by SETITEMS; Python 2 wrote OrderedDict([(key, value), ...]).
  void OrderedDict(const PickleNode& arguments) {
    std::vector<uint32_t> items;
    if (arguments.items.size() > 1)
      return Fail("OrderedDict of one list of pairs", "more arguments");
    if (arguments.items.size() == 1) {
      for (const uint32_t index : tree_.nodes_[arguments.items[0]].items) {
        const std::vector<uint32_t>& pair = tree_.nodes_[index].items;
        if (pair.size() != 2) return Fail("OrderedDict of one list of pairs", "another value");
        items.insert(items.end(), pair.begin(), pair.end());
      }
    }
    NewItems(PickleKind::kDict, std::move(items));
  }

  // An object's state. Only an OrderedDict may have one (a state_dict's _metadata); it is no part
  // of the value.
  void Build() {
    (void)Pop();
    Top(PickleKind::kDict, "an OrderedDict to give attributes to");
  }

  void SetItems(std::vector<uint32_t> items) {
    const uint32_t dict = Top(PickleKind::kDict, "a dict to put items into");
    if (items.size() % 2 != 0) Fail("pairs of keys and values", "an odd number of values");
    if (error_.ok()) AddItems(dict, items);
  }

  void Append(const std::vector<uint32_t>& items) {
    const uint32_t list = Top(PickleKind::kList, "a list to append to");
    if (error_.ok()) AddItems(list, items);
  }

  void Dict() {
    std::vector<uint32_t> items = PopMark();
    if (items.size() % 2 != 0) Fail("pairs of keys and values", "an odd number of values");
    NewItems(PickleKind::kDict, std::move(items));
  }

  void AddToSet() {
    const std::vector<uint32_t> items = PopMark();
    const uint32_t set = Top(PickleKind::kSet, "a set to add to");
    if (error_.ok()) AddItems(set, items);
  }

  bool Stop() {
    if (stack_.size() == 1 && marks_.empty()) return true;
    Fail("one value left at the end of the pickle", fmt::format("{}", stack_.size()));
    return false;
  }

  bool Step(uint8_t opcode);

  std::string_view bytes_;
  const UnpickleOptions& options_;
  PickleTree tree_;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
  uint64_t memo_count_ = 0;  // what MEMOIZE numbers the next value with
  size_t position_ = 0, opcode_at_ = 0;
  Status error_;
};

// True at STOP.
bool Unpickler::Step(uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kProto:
      if (const uint8_t protocol = TakeNumber<uint8_t>();
          error_.ok() && (protocol < 2 || protocol > 5)) {
        Fail("a pickle of protocol 2 to 5", fmt::format("protocol {}", protocol));
      }
      break;
    case Opcode::kFrame:
      // The length is only a hint for readers of streams, but a wrong one is damage.
      if (const uint64_t size = TakeNumber<uint64_t>();
          error_.ok() && size > bytes_.size() - position_) {
        Fail(fmt::format("a frame of at most {} bytes", bytes_.size() - position_),
             fmt::format("{}", size));
      }
      break;
    case Opcode::kStop:
      return Stop();
    case Opcode::kMark:
      marks_.push_back(stack_.size());
      break;
    case Opcode::kPop:
      (void)Pop();
      break;
    case Opcode::kPopMark:
      (void)PopMark();
      break;
    case Opcode::kNone:
      NewInteger(PickleKind::kNone, 0);
      break;
    case Opcode::kNewTrue:
      NewInteger(PickleKind::kBool, 1);
      break;
    case Opcode::kNewFalse:
      NewInteger(PickleKind::kBool, 0);
      break;
    case Opcode::kBinInt:
      NewInteger(PickleKind::kInt, TakeNumber<int32_t>());
      break;
    case Opcode::kBinInt1:
      NewInteger(PickleKind::kInt, TakeNumber<uint8_t>());
      break;
    case Opcode::kBinInt2:
      NewInteger(PickleKind::kInt, TakeNumber<uint16_t>());
      break;
    case Opcode::kLong1:
      Long(TakeNumber<uint8_t>());
      break;
    case Opcode::kLong4:
      Long(TakeNumber<uint32_t>());
      break;
    case Opcode::kBinFloat:
      Real();
      break;
    case Opcode::kShortBinString:
    case Opcode::kShortBinUnicode:
      NewText(PickleKind::kString, Take(TakeNumber<uint8_t>()));
      break;
    case Opcode::kBinString:
    case Opcode::kBinUnicode:
      NewText(PickleKind::kString, Take(TakeNumber<uint32_t>()));
      break;
    case Opcode::kBinUnicode8:
      NewText(PickleKind::kString, Take(TakeNumber<uint64_t>()));
      break;
    case Opcode::kShortBinBytes:
      NewText(PickleKind::kBytes, Take(TakeNumber<uint8_t>()));
      break;
    case Opcode::kBinBytes:
      NewText(PickleKind::kBytes, Take(TakeNumber<uint32_t>()));
      break;
    case Opcode::kBinBytes8:
    case Opcode::kByteArray8:
      NewText(PickleKind::kBytes, Take(TakeNumber<uint64_t>()));
      break;
    case Opcode::kEmptyTuple:
      NewItems(PickleKind::kTuple, {});
      break;
    case Opcode::kTuple1:
      NewItems(PickleKind::kTuple, PopSome(1));
      break;
    case Opcode::kTuple2:
      NewItems(PickleKind::kTuple, PopSome(2));
      break;
    case Opcode::kTuple3:
      NewItems(PickleKind::kTuple, PopSome(3));
      break;
    case Opcode::kTuple:
      NewItems(PickleKind::kTuple, PopMark());
      break;
    case Opcode::kEmptyList:
      NewItems(PickleKind::kList, {});
      break;
    case Opcode::kList:
      NewItems(PickleKind::kList, PopMark());
      break;
    case Opcode::kAppend:
      Append(PopSome(1));
      break;
    case Opcode::kAppends:
      Append(PopMark());
      break;
    case Opcode::kEmptyDict:
      NewItems(PickleKind::kDict, {});
      break;
    case Opcode::kDict:
      Dict();
      break;
    case Opcode::kSetItem:
      SetItems(PopSome(2));
      break;
    case Opcode::kSetItems:
      SetItems(PopMark());
      break;
    case Opcode::kEmptySet:
      NewItems(PickleKind::kSet, {});
      break;
    case Opcode::kFrozenSet:
      NewItems(PickleKind::kSet, PopMark());
      break;
    case Opcode::kAddItems:
      AddToSet();
      break;
    case Opcode::kGlobal: {
      const std::string_view module = TakeLine();
      Global(module, TakeLine());
      break;
    }
    case Opcode::kStackGlobal:
      StackGlobal();
      break;
    case Opcode::kReduce:
    case Opcode::kNewObj:
      Call();
      break;
    case Opcode::kBuild:
      Build();
      break;
    case Opcode::kBinPersId:
      NewItems(PickleKind::kPersistent, PopSome(1));
      break;
    case Opcode::kBinPut:
      Put(TakeNumber<uint8_t>());
      break;
    case Opcode::kLongBinPut:
      Put(TakeNumber<uint32_t>());
      break;
    case Opcode::kMemoize:
      Put(memo_count_);
      break;
    case Opcode::kBinGet:
      Get(TakeNumber<uint8_t>());
      break;
    case Opcode::kLongBinGet:
      Get(TakeNumber<uint32_t>());
      break;
    default:
      Fail("an opcode that torch.save writes", OpcodeText(opcode));
      break;
  }
  return false;
}

Result<PickleTree> Unpickle(std::string_view bytes, const UnpickleOptions& options,
                            size_t* consumed) {
  return Unpickler(bytes, options).Run(consumed);
}

}  // namespace msprobe
