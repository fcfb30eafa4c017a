#include "engine/dump/side_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "engine/dump/text_arena.h"
#include "engine/formats/json.h"

namespace msprobe {
namespace {

// One side file while it is read: text that needs decoding goes to the arena.
class SideFile {
 public:
  explicit SideFile(Dump* dump, std::string_view file_name)
      : dump_(dump), file_name_(file_name), path_(JoinPath(dump->folder, file_name)) {}

  // Calls member(cursor, key) for each member of the file's object. Nothing happens when there is
  // no such file.
  template <typename Member>
  Status Read(Member&& member) {
    Result<MappedFile> opened = MappedFile::OpenBelow(dump_->folder, file_name_);
    if (!opened.ok() && opened.status().code() == ErrorCode::kNotFound) return Status::Ok();
    if (!opened.ok() && opened.status().code() == ErrorCode::kInvalidDump) {
      dump_->AddNote(opened.status().message());  // a link, a device: the dump does without
      return Status::Ok();
    }
    MSPROBE_ASSIGN_OR_RETURN(MappedFile file, std::move(opened));
    JsonCursor json(file.bytes());
    JsonText key;
    int64_t members = 0;
    for (json.BeginObject(); json.NextKey(&key);) {
      member(&json, Text(key));
      members += !json.failed();
    }
    json.Peek();  // skips blanks
    if (!json.failed() && json.offset() < file.bytes().size())
      json.Fail("nothing after the document");
    if (json.failed() && !json.truncated()) {
      return json.Error(path_).Hint(
          fmt::format("the comparison can do without this file: mv {0} {0}.damaged", path_));
    }
    if (json.failed()) {
      dump_->complete = false;
      dump_->AddNote(
          fmt::format("{} has no closing brace, {} entries read", BaseName(path_), members));
    }
    dump_->files.push_back(std::move(file));
    arena_.Release(&dump_->arena);
    return Status::Ok();
  }

  std::string_view Text(JsonText text) { return arena_.Decode(text); }
  std::string_view Fingerprint(JsonText text) { return FingerprintText(Text(text), &arena_); }

  // A list of strings; anything else in it is an error of the cursor.
  void Strings(JsonCursor* json, std::vector<std::string_view>* out) {
    JsonText text;
    for (json->BeginArray(); json->NextItem();) {
      if (json->String(&text)) out->push_back(Text(text));
    }
  }

 private:
  Dump* dump_;
  std::string_view file_name_;
  std::string path_;
  TextArena arena_;
};

}  // namespace

Status ReadStacks(const std::vector<std::string_view>& stack_keys, Dump* dump) {
  std::unordered_map<std::string_view, int32_t> by_key, by_name;
  // Entries that say their stack need not be looked for among its names.
  const bool by_names = std::any_of(stack_keys.begin(), stack_keys.end(),
                                    [](std::string_view key) { return key.empty(); });
  if (by_names) by_name.reserve(dump->records.size());
  SideFile file(dump, "stack.json");
  MSPROBE_RETURN_IF_ERROR(file.Read([&](JsonCursor* json, std::string_view key) {
    const auto index = static_cast<int32_t>(dump->stacks.size());
    std::vector<std::string_view> names, frames;
    bool grouped = false;
    json->BeginArray();
    JsonText text;
    // msprobe 8 and later: [[names], [frames]]; before: the key is an entry and the list holds its
    // frames.
    for (size_t i = 0; json->NextItem(); ++i) {
      if (json->Peek() == '[') {
        if (i > 1) json->Fail("a list of names and a list of frames, nothing after them");
        if (i == 0 && !by_names) {
          json->Skip();
        } else {
          file.Strings(json, i == 0 ? &names : &frames);
        }
        grouped = true;
      } else if (json->String(&text)) {
        frames.push_back(file.Text(text));
      }
    }
    if (json->failed()) return;
    if (grouped) {
      by_key.emplace(key, index);
      for (const std::string_view name : names) by_name.emplace(name, index);
    } else {
      by_name.emplace(key, index);
    }
    dump->stacks.push_back(std::move(frames));
  }));
  for (size_t i = 0; i < dump->records.size(); ++i) {
    Record& record = dump->records[i];
    if (const auto key = by_key.find(stack_keys[i]);
        !stack_keys[i].empty() && key != by_key.end()) {
      record.stack = key->second;
    } else if (const auto name = by_name.find(record.name); name != by_name.end()) {
      record.stack = name->second;
    }
  }
  return Status::Ok();
}

Status ReadParents(Dump* dump) {
  std::unordered_map<std::string_view, std::string_view> parents;
  SideFile file(dump, "construct.json");
  MSPROBE_RETURN_IF_ERROR(file.Read([&](JsonCursor* json, std::string_view child) {
    JsonText text;
    switch (json->Peek()) {
      case '"':
        if (json->String(&text)) parents.emplace(child, file.Text(text));
        break;
      case '[':  // [parent, micro step]
        json->BeginArray();
        if (json->NextItem()) {
          if (json->Peek() == '"') {
            if (json->String(&text)) parents.emplace(child, file.Text(text));
          } else {
            json->Skip();
          }
          while (json->NextItem()) json->Skip();
        }
        break;
      default:
        json->Skip();  // null: no parent
    }
  }));
  if (parents.empty()) return Status::Ok();
  for (Record& record : dump->records) {
    if (const auto found = parents.find(record.name); found != parents.end())
      record.parent = found->second;
  }
  return Status::Ok();
}

Status ReadWeights(Dump* dump) {
  SideFile file(dump, "weights.json");
  return file.Read([&](JsonCursor* json, std::string_view name) {
    Weight weight{.name = name};
    JsonText key, text;
    for (json->BeginObject(); json->NextKey(&key);) {
      if ((key == "fp" || key == "fingerprint") && json->Peek() == '"') {
        if (json->String(&text)) weight.fingerprint = file.Fingerprint(text);
      } else {
        json->Skip();
      }
    }
    if (!json->failed()) dump->weights.push_back(weight);
  });
}

}  // namespace msprobe
