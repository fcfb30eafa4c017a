#include "engine/dump/tensors/tensor_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <unordered_map>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/tensors/storage_folder.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kExtensions[] = {".npy", ".pt", ".pth", ".safetensors"};
constexpr int kMaxDepth = 32;  // folders in folders
constexpr char kWholeFile[] = "tensor";

// "a/b" of "a/b.npy"; the name itself when its extension is none of ours.
std::string_view Stem(std::string_view name) {
  for (const std::string_view extension : kExtensions) {
    if (name.size() > extension.size() && name.ends_with(extension))
      return name.substr(0, name.size() - extension.size());
  }
  return name;
}

bool BeginsAsTensorFile(const std::string& folder, std::string_view name) {
  const Result<MappedFile> file = MappedFile::OpenBelow(folder, name);
  return file.ok() && formats::LooksLikeTensorFile(file->bytes());
}

// Files below a folder. visit(name below it, whether it is a tensor file) returns whether to go on.
template <typename Visit>
bool Walk(const std::string& root, const std::string& below, int depth, Visit&& visit) {
  Result<std::vector<std::string>> names =
      ListDirectory(below.empty() ? root : JoinPath(root, below));
  if (!names.ok()) return true;
  for (const std::string& name : *names) {
    const std::string path = below.empty() ? name : below + "/" + name;
    struct stat info;
    if (::lstat(JoinPath(root, path).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      if (depth < kMaxDepth && !Walk(root, path, depth + 1, visit)) return false;
      continue;
    }
    const bool named = Stem(name).size() < name.size();
    const bool tensor = named || (S_ISREG(info.st_mode) && BeginsAsTensorFile(root, path));
    if (!visit(path, tensor)) return false;
  }
  return true;
}

class FolderReader {
 public:
  explicit FolderReader(Dump* dump) : dump_(*dump), archives_(std::make_shared<TensorArchives>()) {}

  void ReadFiles(std::vector<std::string> files) {
    std::sort(files.begin(), files.end(), NaturalLess);
    std::unordered_map<std::string_view, int> stems;
    for (const std::string& file : files) ++stems[Stem(file)];
    for (const std::string& file : files) {
      // a.npy and a.pt beside each other keep their extensions.
      const std::string_view name = stems[Stem(file)] > 1 ? std::string_view(file) : Stem(file);
      const auto items = archives_->Open(dump_.tensor_folder, file);
      const bool is_pack = archives_->IsPack(file);
      if (!items.ok()) {
        Add(name, name, file, nullptr, "");
      } else if (items->size() == 1 && !is_pack) {
        Add(name, name, file, &items->front(), "");
      } else {
        for (const TensorArchives::Item& item : *items) {
          // A pack stands for a folder of files.
          const std::string full =
              is_pack ? file.substr(0, file.rfind('/') + 1) + std::string(Stem(item.name))
                      : fmt::format("{}/{}", name, item.name);
          Add(full, full, file, &item, item.name);
        }
      }
    }
    Finish();
  }

  Status ReadFile(const std::string& file) {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<TensorArchives::Item> items,
                             archives_->Open(dump_.tensor_folder, file));
    if (items.size() == 1 && !archives_->IsPack(file)) {
      Add(Stem(file), kWholeFile, file, &items[0], "");
    } else {
      for (const TensorArchives::Item& item : items)
        Add(item.name, item.name, file, &item, item.name);
    }
    Finish();
    return Status::Ok();
  }

 private:
  void Add(std::string_view name, std::string_view api, std::string_view file,
           const TensorArchives::Item* item, std::string_view member) {
    Record record{.name = arena_.Copy(name)};
    record.api = api == name ? record.name.view() : arena_.Copy(api);
    record.first_leaf = static_cast<uint32_t>(dump_.leaves.size());
    record.leaf_count = 1;
    Leaf leaf{.record = static_cast<uint32_t>(dump_.records.size()), .slot = Slot::kDebug};
    leaf.name = record.name;
    leaf.type = "torch.Tensor";
    leaf.data_name = arena_.Copy(file);
    leaf.value = arena_.Copy(member);
    if (item != nullptr) {
      leaf.dtype = item->dtype;
      leaf.shape = dump_.shapes.Of(item->shape);
    }
    dump_.records.push_back(record);
    dump_.leaves.push_back(leaf);
  }

  void Finish() {
    arena_.Release(&dump_.arena);
    dump_.archives = std::move(archives_);
  }

  Dump& dump_;
  std::shared_ptr<TensorArchives> archives_;
  TextArena arena_;
};

}  // namespace

bool HoldsTensorFiles(const std::string& folder) {
  return !Walk(folder, "", 0, [](const std::string&, bool tensor) { return !tensor; });
}

Result<Dump> ReadTensorFolder(const std::string& path) {
  Dump dump;
  dump.path = path;
  dump.dialect = Dialect::kTensors;
  dump.task = Task::kTensor;
  FolderReader reader(&dump);
  if (!IsDirectory(path)) {
    // Links inside a dump are refused, but the user may name a link.
    std::error_code error;
    const std::string file = std::filesystem::canonical(path, error).string();
    if (error) return NotFound(path);
    dump.folder = dump.tensor_folder = DirectoryName(file);
    MSPROBE_RETURN_IF_ERROR(reader.ReadFile(BaseName(file)));
    return dump;
  }
  dump.folder = dump.tensor_folder = path;
  std::vector<std::string> files, others;
  Walk(path, "", 0, [&](const std::string& name, bool tensor) {
    (tensor ? files : others).push_back(name);
    return true;
  });
  if (AreStorages(files)) {
    MSPROBE_RETURN_IF_ERROR(ReadStorageFolder(files, &dump));
  } else {
    reader.ReadFiles(std::move(files));
  }
  if (!others.empty()) {
    dump.note = others.size() == 1 ? "1 file is no tensor and left out, the first: {}"_t(others[0])
                                   : "{} files are no tensor and left out, the first: {}"_t(
                                         others.size(), others[0]);
  }
  return dump;
}

}  // namespace msprobe::dump
