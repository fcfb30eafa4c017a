#include "engine/dump/read/recover_missing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/tensor_pack.h"

namespace msprobe::dump {
namespace {

// Counts names. Say makes "3 <many>: <the first name>, ...", "1 <one>: <name>", and nothing for 0
// names.
class Group {
 public:
  Group(std::string one, std::string many) : one_(std::move(one)), many_(std::move(many)) {}
  void Add(std::string_view name) {
    if (count_++ == 0) first_ = name;
  }
  void Say(std::vector<std::string>* missing) const {
    if (count_ > 0)
      missing->push_back(fmt::format("{} {}: {}{}", count_, count_ == 1 ? one_ : many_, first_,
                                     count_ > 1 ? ", ..." : ""));
  }

 private:
  const std::string one_, many_;
  size_t count_ = 0;
  std::string first_;
};

bool IsReadable(const std::string& path) {
  if (!path.ends_with(".pt")) return true;
  const Result<formats::PtFile> file = formats::ReadPt(path, {.verify_checksums = false});
  return file.ok() || file.status().code() == ErrorCode::kUnsupported;
}

std::unordered_set<std::string_view> Names(const Dump& dump) {
  std::unordered_set<std::string_view> names;
  for (const Record& record : dump.records) names.insert(record.name);
  return names;
}

}  // namespace

void AddMissingTensors(const Dump& dump, std::vector<std::string>* missing) {
  const std::string folder = JoinPath(dump.folder, "dump_tensor_data");
  std::unordered_set<std::string> present;
  if (Result<std::vector<std::string>> names = ListDirectory(folder); names.ok())
    present.insert(names->begin(), names->end());
  std::optional<formats::TensorPack> pack;
  if (present.contains(formats::kPackName)) {
    if (auto opened = formats::TensorPack::Open(folder, formats::kPackName); opened.ok()) {
      pack = std::move(*opened);
      for (const formats::PackEntry& entry : pack->entries()) present.insert(entry.name);
      if (pack->ignored_bytes() > 0)
        missing->push_back(fmt::format("{} bytes of an unfinished tensor in {}",
                                       pack->ignored_bytes(), pack->path()));
    }
    present.erase(formats::kPackName);
    present.erase(std::string(formats::kPackName) + formats::kPackLogSuffix);
  }
  Group absent("tensor file is named but not in " + folder,
               "tensor files are named but not in " + folder);
  Group damaged(fmt::format("tensor file in {} is incomplete", folder),
                fmt::format("tensor files in {} are incomplete", folder));
  Group loose(fmt::format("tensor file in {} belongs to a call that has no record", folder),
              fmt::format("tensor files in {} belong to calls that have no record", folder));
  Group half(fmt::format("file in {} is unfinished and can be deleted", folder),
             fmt::format("files in {} are unfinished and can be deleted", folder));
  std::unordered_set<std::string> named;
  for (const Leaf& leaf : dump.leaves) {
    if (leaf.data_name.empty() || leaf.data_name == "-1") continue;
    const auto [name, is_new] = named.emplace(leaf.data_name);
    if (!is_new) continue;
    if (!present.contains(*name)) {
      absent.Add(*name);
    } else if (!(pack && pack->Find(*name) != nullptr) && !IsReadable(JoinPath(folder, *name))) {
      damaged.Add(*name);
    }
  }
  for (const std::string& name : std::vector<std::string>(present.begin(), present.end())) {
    if (named.contains(name)) present.erase(name);
  }
  std::vector<std::string> rest(present.begin(), present.end());
  std::sort(rest.begin(), rest.end());
  for (const std::string& name : rest) (name.ends_with(".part") ? half : loose).Add(name);
  for (const Group* group : {&absent, &damaged, &half, &loose}) group->Say(missing);
}

void AddMissingStacks(const Dump& dump, const std::vector<std::string_view>& stack_keys,
                      const std::unordered_set<std::string>& listed,
                      const std::map<std::string, std::string>& groups,
                      std::vector<std::string>* missing) {
  Group lost("record has no call stack in stack.json", "records have no call stack in stack.json");
  Group orphans("call in stack.json has no record", "calls in stack.json have no record");
  for (size_t i = 0; i < dump.records.size(); ++i) {
    if (!stack_keys[i].empty() && !groups.contains(std::string(stack_keys[i])))
      lost.Add(dump.records[i].name);
  }
  const std::unordered_set<std::string_view> names = Names(dump);
  std::vector<std::string> sorted(listed.begin(), listed.end());
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) {
    if (!names.contains(name)) orphans.Add(name);
  }
  lost.Say(missing);
  orphans.Say(missing);
}

void AddMissingParents(const Dump& dump, const std::map<std::string, std::string>& members,
                       std::vector<std::string>* missing) {
  Group lost("record is not in construct.json", "records are not in construct.json");
  Group orphans("call in construct.json has no record", "calls in construct.json have no record");
  // Level L1 has no modules to name; gradients of parameters are no calls.
  const bool has_parents = dump.level == Level::kL0 || dump.level == Level::kMix;
  for (const Record& record : dump.records) {
    if (has_parents && record.direction != Direction::kParameterGrad &&
        !members.contains(std::string(record.name)))
      lost.Add(record.name);
  }
  const std::unordered_set<std::string_view> names = Names(dump);
  for (const auto& [name, parent] : members) {
    if (!names.contains(name)) orphans.Add(name);
  }
  lost.Say(missing);
  orphans.Say(missing);
}

}  // namespace msprobe::dump
