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

// Counts names. Say makes a sentence of their number, of `places` and of "<the first name>, ...",
// and nothing for 0 names.
class Group {
 public:
  void Add(std::string_view name) {
    if (count_++ == 0) first_ = name;
  }
  template <typename Sentence, typename... Places>
  void Say(std::vector<Message>* missing, const Sentence& one, const Sentence& many,
           const Places&... places) const {
    if (count_ == 1) missing->push_back(one(count_, places..., first_));
    if (count_ > 1) missing->push_back(many(count_, places..., first_ + ", ..."));
  }

 private:
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

void AddMissingTensors(const Dump& dump, std::vector<Message>* missing) {
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
        missing->push_back(
            "{} bytes of an unfinished tensor in {}"_t(pack->ignored_bytes(), pack->path()));
    }
    present.erase(formats::kPackName);
    present.erase(std::string(formats::kPackName) + formats::kPackLogSuffix);
  }
  Group absent, damaged, loose, half;
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
  absent.Say(missing, "{} tensor file is named but not in {}: {}"_t,
             "{} tensor files are named but not in {}: {}"_t, folder);
  damaged.Say(missing, "{} tensor file in {} is incomplete: {}"_t,
              "{} tensor files in {} are incomplete: {}"_t, folder);
  half.Say(missing, "{} file in {} is unfinished and can be deleted: {}"_t,
           "{} files in {} are unfinished and can be deleted: {}"_t, folder);
  loose.Say(missing, "{} tensor file in {} belongs to a call that has no record: {}"_t,
            "{} tensor files in {} belong to calls that have no record: {}"_t, folder);
}

void AddMissingStacks(const Dump& dump, const std::vector<std::string_view>& stack_keys,
                      const std::unordered_set<std::string>& listed,
                      const std::map<std::string, std::string>& groups,
                      std::vector<Message>* missing) {
  Group lost, orphans;
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
  lost.Say(missing, "{} record has no call stack in stack.json: {}"_t,
           "{} records have no call stack in stack.json: {}"_t);
  orphans.Say(missing, "{} call in stack.json has no record: {}"_t,
              "{} calls in stack.json have no record: {}"_t);
}

void AddMissingParents(const Dump& dump, const std::map<std::string, std::string>& members,
                       std::vector<Message>* missing) {
  Group lost, orphans;
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
  lost.Say(missing, "{} record is not in construct.json: {}"_t,
           "{} records are not in construct.json: {}"_t);
  orphans.Say(missing, "{} call in construct.json has no record: {}"_t,
              "{} calls in construct.json have no record: {}"_t);
}

}  // namespace msprobe::dump
