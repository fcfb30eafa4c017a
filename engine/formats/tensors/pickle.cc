#include "engine/formats/tensors/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "engine/formats/tensors/pickle_globals.h"
#include "engine/formats/tensors/pickle_machine.h"
#include "engine/formats/tensors/pickle_opcodes.h"

namespace msprobe::formats {

std::string PickleTree::DottedName(const PickleNode& node) const {
  if (node.kind == PickleKind::kCall) return DottedName(nodes_[node.items[0]]);
  if (node.kind != PickleKind::kGlobal) return "";
  return fmt::format("{}.{}", node.module, node.text);
}

namespace {

// What each opcode does to the machine.
class Unpickler : private PickleMachine {
 public:
  using PickleMachine::PickleMachine;

  // Up to and including STOP.
  Result<PickleTree> Run(size_t* consumed) {
    for (bool stopped = false; !stopped && ok();) {
      const uint8_t opcode = NextOpcode();
      if (ok()) stopped = Step(opcode);
    }
    if (!ok()) return error();
    *consumed = position();
    return TakeTree();
  }

 private:
  void Long(uint64_t size) {
    const std::string_view bytes = Take(size);
    if (!ok()) return;
    if (bytes.size() > 8) return NewText(PickleKind::kBigInt, bytes);
    uint64_t value = !bytes.empty() && (bytes.back() & 0x80) ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    NewInteger(PickleKind::kInt, static_cast<int64_t>(value));
  }

  void Real() {
    const uint64_t bits = __builtin_bswap64(TakeNumber<uint64_t>());
    if (PickleNode* node = New(PickleKind::kFloat)) node->real = std::bit_cast<double>(bits);
  }

  void Global(std::string_view module, std::string_view name) {
    if (!ok()) return;
    if (!keeps_objects() && !IsAllowedGlobal(module, name)) {
      const Message hint = RefusedGlobalHint(module, name);
      return Fail(
          "plain tensors and values"_t,
          "the global {}"_t(Excerpt(fmt::format("{}.{}", module, name), 100)),
          !hint.empty() ? hint : "Python might run code to open this file; msprobe does not"_t);
    }
    if (PickleNode* node = New(PickleKind::kGlobal)) {
      node->module = module;
      node->text = name;
    }
  }

  void StackGlobal() {
    const std::vector<uint32_t> names = PopSome(2);
    if (!ok()) return;
    const PickleNode &module = (*this)[names[0]], &name = (*this)[names[1]];
    if (module.kind != PickleKind::kString || name.kind != PickleKind::kString) {
      return Fail("two strings that name a global"_t, "other values"_t);
    }
    Global(module.text, name.text);
  }

  void Call() {
    const std::vector<uint32_t> call = PopSome(2);
    if (!ok()) return;
    const PickleNode &callee = (*this)[call[0]], &arguments = (*this)[call[1]];
    if (callee.kind != PickleKind::kGlobal || arguments.kind != PickleKind::kTuple) {
      return Fail("a call of a global with a tuple"_t, "a call of something else"_t);
    }
    if (callee.module == "collections" && callee.text == "OrderedDict")
      return OrderedDict(arguments);
    if (callee.module == "collections" && callee.text == "defaultdict")
      return NewItems(PickleKind::kDict, {});
    NewItems(PickleKind::kCall, call);
  }

  // OrderedDict() is filled by SETITEMS; Python 2 wrote OrderedDict([(key, value), ...]).
  void OrderedDict(const PickleNode& arguments) {
    std::vector<uint32_t> items;
    if (arguments.items.size() > 1)
      return Fail("OrderedDict of one list of pairs"_t, "more arguments"_t);
    if (arguments.items.size() == 1) {
      for (const uint32_t index : (*this)[arguments.items[0]].items) {
        const std::vector<uint32_t>& pair = (*this)[index].items;
        if (pair.size() != 2) return Fail("OrderedDict of one list of pairs"_t, "another value"_t);
        items.insert(items.end(), pair.begin(), pair.end());
      }
    }
    NewItems(PickleKind::kDict, items);
  }

  // An object's state. Only an OrderedDict may have one (a state_dict's _metadata); it is no part
  // of the value.
  void Build() {
    const uint32_t state = Pop();
    if (ok() && keeps_objects() && TopIs(PickleKind::kCall)) {
      AddItems(Top(PickleKind::kCall, "an object"_t), {state});
    } else if (!ok() || !keeps_objects()) {
      Top(PickleKind::kDict, "an OrderedDict to give attributes to"_t);
    }
  }

  void SetItems(const std::vector<uint32_t>& items) {
    if (IsObject()) return;  // of a class of its own: not looked into
    const uint32_t dict = Top(PickleKind::kDict, "a dict to put items into"_t);
    if (items.size() % 2 != 0) Fail("pairs of keys and values"_t, "an odd number of values"_t);
    if (ok()) AddItems(dict, items);
  }

  void Append(const std::vector<uint32_t>& items) {
    if (IsObject()) return;
    const uint32_t list = Top(PickleKind::kList, "a list to append to"_t);
    if (ok()) AddItems(list, items);
  }

  void Dict() {
    const std::vector<uint32_t> items = PopMark();
    if (items.size() % 2 != 0) Fail("pairs of keys and values"_t, "an odd number of values"_t);
    NewItems(PickleKind::kDict, items);
  }

  void AddToSet() {
    const std::vector<uint32_t> items = PopMark();
    const uint32_t set = Top(PickleKind::kSet, "a set to add to"_t);
    if (ok()) AddItems(set, items);
  }

  bool IsObject() const { return ok() && keeps_objects() && TopIs(PickleKind::kCall); }

  bool Step(uint8_t opcode);
};

// True at STOP.
bool Unpickler::Step(uint8_t opcode) {
  switch (static_cast<Opcode>(opcode)) {
    case Opcode::kProto:
      if (const uint8_t protocol = TakeNumber<uint8_t>(); ok() && (protocol < 2 || protocol > 5)) {
        Fail("a pickle of protocol 2 to 5"_t, "protocol {}"_t(protocol));
      }
      break;
    case Opcode::kFrame:
      // The length is only a hint for readers of streams, but a wrong one is damage.
      if (const uint64_t size = TakeNumber<uint64_t>(); ok() && size > left()) {
        Fail("a frame of at most {} bytes"_t(left()), fmt::format("{}", size));
      }
      break;
    case Opcode::kStop:
      return Finish();
    case Opcode::kMark:
      Mark();
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
      Memoize();
      break;
    case Opcode::kBinGet:
      Get(TakeNumber<uint8_t>());
      break;
    case Opcode::kLongBinGet:
      Get(TakeNumber<uint32_t>());
      break;
    default:
      Fail("an opcode that torch.save writes"_t, OpcodeText(opcode));
      break;
  }
  return false;
}

}  // namespace

Result<PickleTree> Unpickle(std::string_view bytes, const UnpickleOptions& options,
                            size_t* consumed) {
  if (bytes.substr(0, 1) != "\x80") {
    return InvalidDump(options.path, options.base_offset)
        .Expected("a pickle of protocol 2 to 5"_t)
        .Found(bytes.empty() ? "no bytes"_t : Excerpt(bytes, 8));
  }
  size_t end = 0;
  MSPROBE_ASSIGN_OR_RETURN(PickleTree tree, Unpickler(bytes, options).Run(&end));
  if (consumed != nullptr) {
    *consumed = end;
  } else if (end != bytes.size()) {
    return InvalidDump(options.path, options.base_offset + end)
        .Expected("the end of the pickle after STOP"_t)
        .Found("{} more bytes"_t(bytes.size() - end));
  }
  return tree;
}

}  // namespace msprobe::formats
