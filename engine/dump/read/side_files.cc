#include "engine/dump/read/side_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/pages.h"
#include "engine/dump/write/coverage.h"
#include "engine/formats/text/json.h"
#include "engine/model/guarded_text.h"
#include "engine/model/names.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

// One side file while it is read: text that needs decoding goes to the arena.
class SideFile {
 public:
  SideFile(Dump* dump, std::string_view file_name, MemoryShare* memory)
      : dump_(dump),
        file_name_(file_name),
        path_(JoinPath(dump->folder, file_name)),
        memory_(memory) {}

  // Calls member(cursor, key) for each member of the file's object; `member` returns how many bytes
  // it added to its tables. Nothing happens when there is no such file.
  template <typename Member>
  Status Read(Member&& member) {
    Result<MappedFile> opened = MappedFile::OpenBelow(dump_->folder, file_name_);
    if (!opened.ok() && opened.status().code() == ErrorCode::kNotFound) return Status::Ok();
    if (!opened.ok() && opened.status().code() == ErrorCode::kInvalidDump) {
      dump_->AddNote(opened.status().AsMessage());  // a link, a device: the dump is read without it
      return Status::Ok();
    }
    MSPROBE_ASSIGN_OR_RETURN(MappedFile file, std::move(opened));
    formats::JsonCursor json(file.bytes());
    formats::JsonText key;
    int64_t members = 0;
    uint64_t added = 0;
    size_t seen = 0;
    for (json.BeginObject(); json.NextKey(&key);) {
      added += member(&json, Text(key));
      members += !json.failed();
      constexpr size_t kBetween = size_t{1} << 20;
      if (json.offset() < seen + kBetween) continue;
      ForgetPagesAround(file.bytes().substr(seen, json.offset() - seen), file.bytes());
      seen = json.offset();
      if (memory_ != nullptr) MSPROBE_RETURN_IF_ERROR(memory_->Beside(NotForRows(added)));
    }
    json.Peek();  // skips blanks
    if (!json.failed() && json.offset() < file.bytes().size())
      json.Fail("nothing after the document"_t);
    if (json.failed() && !json.truncated()) {
      return json.Error(path_).Hint(
          "the comparison does not need this file: mv {} {}.damaged"_t(path_, path_));
    }
    if (json.failed()) {
      dump_->complete = false;
      dump_->AddNote("{} has no closing brace, {} entries read"_t(BaseName(path_), members));
    }
    dump_->files.push_back(std::move(file));
    arena_.Release(&dump_->arena);
    return Status::Ok();
  }

  std::string_view Text(formats::JsonText text) { return arena_.Decode(text); }
  std::string_view Fingerprint(formats::JsonText text) {
    return FingerprintText(Text(text), &arena_);
  }

  // A list of strings; anything else in it is an error of the cursor.
  template <typename Texts>
  void Strings(formats::JsonCursor* json, Texts* out) {
    for (json->BeginArray(); json->NextItem();) String(json, out);
  }
  template <typename Texts>
  void String(formats::JsonCursor* json, Texts* out) {
    formats::JsonText text;
    if (json->String(&text)) out->push_back(text.escaped ? Unguarded(Text(text)) : text.raw);
  }

 private:
  std::string_view Unguarded(std::string_view text) {
    if (!FactsOf(dump_->dialect).guards_text) return text;
    std::string room;
    const std::string_view plain = UnguardText(text, &room);
    return plain.data() == text.data() ? text : arena_.Copy(plain);
  }

  // How many more bytes the tables need than were already counted for the rows of the comparison.
  // The rows are made later, when the tables are freed.
  uint64_t NotForRows(uint64_t bytes) const {
    const uint64_t rows = MemoryForComparing(dump_->records.size(), dump_->leaves.size());
    return std::max(bytes + arena_.bytes(), rows) - rows;
  }

  Dump* dump_;
  std::string_view file_name_;
  std::string path_;
  MemoryShare* memory_;
  TextArena arena_;
};

// A map from texts to numbers. A text that is added twice keeps its first number. The texts are not
// copied. (One table without nodes: for a million names it takes half the time of
// std::unordered_map.)
class TextNumbers {
 public:
  void Reserve(size_t count) {
    if (slots_.size() >= 2 * count) return;
    std::vector<Slot> old(std::bit_ceil(2 * count + 16));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number >= 0) *Find(slot.text) = slot;
    }
  }
  void Add(std::string_view text, int32_t number) {
    Reserve(++count_);
    Slot* slot = Find(text);
    if (slot->number < 0) *slot = {text, number};
  }
  int32_t Of(std::string_view text) const {  // -1: none
    return slots_.empty() ? -1 : const_cast<TextNumbers*>(this)->Find(text)->number;
  }

 private:
  struct Slot {
    TextRef text;
    int32_t number = -1;
  };
  Slot* Find(std::string_view text) {
    const size_t mask = slots_.size() - 1;
    size_t i = std::hash<std::string_view>()(text) & mask;
    while (slots_[i].number >= 0 && slots_[i].text != text) i = (i + 1) & mask;
    return &slots_[i];
  }
  std::vector<Slot> slots_;  // their number is a power of two; at most half are used
  size_t count_ = 0;
};

struct Stack {
  std::vector<std::string_view> names, frames;
  bool grouped = false;
};

// msprobe 8 and later: [[names], [frames]]; before: the key is an entry and the list holds its
// frames.
Stack ReadStack(formats::JsonCursor* json, SideFile* file, bool by_names) {
  Stack stack;
  formats::JsonText text;
  json->BeginArray();
  for (size_t i = 0; json->NextItem(); ++i) {
    if (json->Peek() == '[') {
      if (i > 1) json->Fail("a list of names and a list of frames, nothing after them"_t);
      if (i == 0 && !by_names) {
        json->Skip();
      } else {
        file->Strings(json, i == 0 ? &stack.names : &stack.frames);
      }
      stack.grouped = true;
    } else if (json->String(&text)) {
      stack.frames.push_back(file->Text(text));
    }
  }
  return stack;
}

// What construct.json says of a call.
struct CallPlace {
  std::string_view parent;
  std::optional<int32_t> micro_step;  // 0: the file's number is none
};

// [parent, micro step]
CallPlace ReadPlaceList(formats::JsonCursor* json, SideFile* file) {
  constexpr int64_t kMost = 1000000;
  CallPlace place;
  formats::JsonText text;
  std::string_view digits;
  json->BeginArray();
  for (size_t i = 0; json->NextItem(); ++i) {
    if (i == 0 && json->Peek() == '"') {
      if (json->String(&text)) place.parent = file->Text(text);
    } else if (i == 1 && json->Peek() >= '0' && json->Peek() <= '9') {
      const int64_t step = json->Number(&digits) ? NumberAfter(digits, "") : -1;
      place.micro_step = step > 0 && step <= kMost ? static_cast<int32_t>(step) : 0;
    } else {
      json->Skip();
    }
  }
  return place;
}

CompiledCode ReadCompiled(formats::JsonCursor* json, SideFile* file) {
  CompiledCode code;
  formats::JsonText key, text;
  for (json->BeginObject(); json->NextKey(&key);) {
    const bool module = key == "module";
    if ((module || key == "source_line") && json->Peek() == '"') {
      if (json->String(&text)) (module ? code.module : code.line) = file->Text(text);
    } else {
      json->Skip();
    }
  }
  return code;
}

}  // namespace

Status ReadStacks(const std::vector<std::string_view>& stack_keys, Dump* dump,
                  MemoryShare* memory) {
  TextNumbers by_key, by_name;
  // An entry that has a "stack" is not looked up by its name.
  const bool by_names = std::any_of(stack_keys.begin(), stack_keys.end(),
                                    [](std::string_view key) { return key.empty(); });
  if (by_names) by_name.Reserve(dump->records.size());
  bool one_per_call = false;
  SideFile file(dump, "stack.json", memory);
  MSPROBE_RETURN_IF_ERROR(file.Read([&](formats::JsonCursor* json, std::string_view key) {
    const auto index = static_cast<int32_t>(dump->stacks.size());
    Stack stack = ReadStack(json, &file, by_names);
    if (json->failed()) return size_t{0};
    if (stack.grouped) {
      by_key.Add(key, index);
      for (const std::string_view name : stack.names) by_name.Add(name, index);
    } else {
      by_name.Add(key, index);
      one_per_call = one_per_call || !stack.frames.empty();
    }
    constexpr size_t kOfName = 48;  // in the table
    const size_t added = kOfName * (stack.names.size() + 1) +
                         sizeof(std::vector<std::string_view>) +
                         stack.frames.size() * sizeof(std::string_view);
    dump->stacks.push_back(std::move(stack.frames));
    return added;
  }));
  // Only this file differs between msprobe 1.2 and 8 or 26: 8 and 26 have one entry for all calls
  // with the same stack.
  const bool later = dump->dialect == Dialect::kMsprobe8 || dump->dialect == Dialect::kMsprobe26;
  if (one_per_call && later) dump->dialect = Dialect::kMsprobe1_2;
  for (size_t i = 0; i < dump->records.size(); ++i) {
    Record& record = dump->records[i];
    if (!stack_keys[i].empty()) record.stack = by_key.Of(stack_keys[i]);
    if (record.stack < 0) record.stack = by_name.Of(record.name);
  }
  return Status::Ok();
}

Status ReadParents(Dump* dump, MemoryShare* memory) {
  constexpr size_t kOfParent = 96;
  std::unordered_map<std::string_view, CallPlace> places;
  bool has_micro_steps = false;
  SideFile file(dump, "construct.json", memory);
  MSPROBE_RETURN_IF_ERROR(file.Read([&](formats::JsonCursor* json, std::string_view child) {
    CallPlace place;
    formats::JsonText text;
    switch (json->Peek()) {
      case '"':
        if (json->String(&text)) place.parent = file.Text(text);
        break;
      case '[':
        place = ReadPlaceList(json, &file);
        has_micro_steps = has_micro_steps || place.micro_step;
        break;
      default:
        json->Skip();  // null: no parent
        return size_t{0};
    }
    places.emplace(child, place);
    return kOfParent;
  }));
  if (has_micro_steps) dump->micro_steps.resize(dump->records.size());
  for (size_t i = 0; i < dump->records.size() && !places.empty(); ++i) {
    Record& record = dump->records[i];
    const auto found = places.find(record.name);
    if (found == places.end()) continue;
    if (!found->second.parent.empty()) record.parent = found->second.parent;
    if (has_micro_steps) dump->micro_steps[i] = found->second.micro_step.value_or(0);
  }
  return Status::Ok();
}

std::string WeightsFileOf(std::string_view dump_file) {
  if (dump_file.ends_with(".json")) return "weights.json";
  const size_t dot = dump_file.rfind('.');
  return std::string(dump_file.substr(0, dot)) + ".weights.json";
}

Status ReadWeights(Dump* dump) {
  const std::string file_name = WeightsFileOf(BaseName(dump->path));
  SideFile file(dump, file_name, nullptr);
  return file.Read([&](formats::JsonCursor* json, std::string_view name) {
    Weight weight{.name = name};
    formats::JsonText key, text;
    for (json->BeginObject(); json->NextKey(&key);) {
      if ((key == "fp" || key == "fingerprint") && json->Peek() == '"') {
        if (json->String(&text)) weight.fingerprint = file.Fingerprint(text);
      } else {
        json->Skip();
      }
    }
    if (!json->failed()) dump->weights.push_back(weight);
    return sizeof(weight);
  });
}

Status ReadSignatures(Dump* dump) {
  SideFile file(dump, "signatures.json", nullptr);
  MSPROBE_RETURN_IF_ERROR(file.Read([&](formats::JsonCursor* json, std::string_view api) {
    // A list of names, or such a list for each overload.
    Signature signature{.api = api, .overloads = {}};
    bool nested = false;
    for (json->BeginArray(); json->NextItem();) {
      nested = nested || json->Peek() == '[';
      if (nested || signature.overloads.empty()) signature.overloads.emplace_back();
      std::vector<Parameter>& names = signature.overloads.back();
      nested ? file.Strings(json, &names) : file.String(json, &names);
    }
    if (!json->failed()) dump->signatures.push_back(std::move(signature));
    return sizeof(signature);
  }));
  std::stable_sort(dump->signatures.begin(), dump->signatures.end(),
                   [](const Signature& a, const Signature& b) { return a.api < b.api; });
  return Status::Ok();
}

Status ReadCompiledCode(Dump* dump) {
  SideFile file(dump, kCoverageFile, nullptr);
  return file.Read([&](formats::JsonCursor* json, std::string_view name) -> uint64_t {
    if (name != "compiled" || json->Peek() != '[') {
      json->Skip();
      return 0;
    }
    for (json->BeginArray(); json->NextItem();) {
      const CompiledCode code = ReadCompiled(json, &file);
      if (!json->failed()) dump->compiled.push_back(code);
    }
    return dump->compiled.size() * sizeof(CompiledCode);
  });
}

}  // namespace msprobe::dump
