#include "engine/dump/tensors/tensor_data.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "engine/base/messages/message.h"
#include "engine/base/pages.h"
#include "engine/dump/tensors/storage_folder.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/safetensors.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {
namespace {

bool HasFile(const Leaf& leaf) {
  return !leaf.data_name.empty() && leaf.data_name != "-1" && leaf.data_name != "None";
}

// The leaf's tensor in the pack of its dump; nullptr: it has a file of its own.
const formats::PackEntry* FindPacked(const Dump& dump, const Leaf& leaf) {
  const formats::TensorPack* pack = dump.archives ? dump.archives->pack() : nullptr;
  return pack == nullptr ? nullptr : pack->Find(leaf.data_name);
}

// "['layer'][0]['weight']" -> "layer.0.weight", the name that other formats give the tensor.
std::string Dotted(std::string_view python) {
  std::string out;
  while (!python.empty()) {
    size_t end = python.find(']');
    if (python[0] != '[' || end == python.npos) return out.append(python);
    std::string_view key = python.substr(1, end - 1);
    if (!key.empty() && (key[0] == '\'' || key[0] == '"')) {
      end = python.find(std::string{key[0], ']'}, 2);
      if (end == python.npos) return out.append(python);
      key = python.substr(2, end - 2);
      ++end;
    }
    if (!out.empty()) out += '.';
    out += key;
    python.remove_prefix(end + 1);
  }
  return out;
}

// "[1.5, NaN, 2]": nested lists are flattened.
Result<formats::TensorFile> ReadListed(const Dump& dump, const Leaf& leaf) {
  auto values = std::make_shared<std::vector<double>>();
  formats::JsonCursor json(leaf.value);
  std::string_view number;
  bool flag = false;
  int depth = 0;
  for (json.BeginArray(), depth = 1; depth > 0 && !json.failed();) {
    if (!json.NextItem()) {
      --depth;
    } else if (json.Peek() == '[') {
      json.BeginArray(), ++depth;
    } else if (json.Peek() == 't' || json.Peek() == 'f') {
      if (json.Bool(&flag)) values->push_back(flag);
    } else if (json.Number(&number)) {
      values->push_back(formats::JsonNumber(number));
    }
  }
  if (json.failed()) return json.Error(dump.path);
  formats::TensorFile tensor{.dtype = DType::kFloat64,
                             .shape = {static_cast<int64_t>(values->size())},
                             .strides = {1},
                             .data = values->data()};
  tensor.owner = values;
  return tensor;
}

void Unflatten(const Leaf& leaf, formats::TensorFile* tensor) {
  if (tensor->shape.size() != 1 || tensor->strides[0] != 1) return;
  const std::span<const int64_t> extents = leaf.shape.extents();
  if (leaf.shape.elements() != tensor->shape[0] || extents.size() == 1) return;
  tensor->strides = ContiguousStrides(extents);
  tensor->shape.assign(extents.begin(), extents.end());
}

}  // namespace

bool HasTensorData(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && (HasFile(leaf) || leaf.value.starts_with("["));
}

uint64_t TensorDataSize(const Dump& dump, const Leaf& leaf) {
  if (!HasFile(leaf)) return leaf.value.size();
  if (dump.archives != nullptr && !leaf.value.empty())
    return dump.archives->SizeOf(leaf.data_name, leaf.value);
  if (const formats::PackEntry* packed = FindPacked(dump, leaf)) return packed->size;
  struct stat info;
  const std::string path = JoinPath(dump.tensor_folder, leaf.data_name);
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

Result<formats::TensorFile> ReadTensorData(const Dump& dump, const Leaf& leaf,
                                           formats::Verify verify) {
  Result<formats::TensorFile> tensor =
      NotFound(dump.path).Says("has no tensor data for this row"_t);
  if (!HasFile(leaf)) {
    if (HasTensorData(leaf)) tensor = ReadListed(dump, leaf);
  } else if (dump.tensor_folder.empty()) {
    return NotFound(JoinPath(dump.folder, leaf.data_name))
        .Says("is in no folder of tensor files"_t);
  } else if (dump.archives != nullptr && !leaf.value.empty()) {
    return dump.archives->Read(leaf.data_name, leaf.value);
  } else if (const formats::PackEntry* packed = FindPacked(dump, leaf)) {
    return dump.archives->pack()->Read(*packed, verify);
  } else {
    MSPROBE_ASSIGN_OR_RETURN(MappedFile file,
                             MappedFile::OpenBelow(dump.tensor_folder, leaf.data_name));
    tensor = formats::ReadTensorFile(std::move(file), verify);
    const std::optional<StorageName> storage = tensor.ok() && FactsOf(dump.dialect).keeps_storages
                                                   ? ParseStorageName(leaf.data_name)
                                                   : std::nullopt;
    if (storage) MSPROBE_RETURN_IF_ERROR(ViewStorage(*storage, leaf.data_name, &*tensor));
  }
  if (tensor.ok()) Unflatten(leaf, &*tensor);
  return tensor;
}

struct TensorArchives::Archive {
  std::string path;
  std::string_view bytes;
  std::optional<formats::SafetensorsFile> safetensors;
  std::optional<formats::PtFile> pt;
  std::optional<formats::TensorPack> pack;
  std::unordered_map<std::string, size_t> pt_items;
  // A flipped bit must not look like a numerical difference. So the checksum of a storage is
  // verified when the first of its tensors is read.
  struct Check {
    std::once_flag once;
    bool intact = true;
  };
  mutable std::map<const char*, Check> checks;

  const formats::PtTensor* FindPt(std::string_view item) const {
    const auto found = pt_items.find(std::string(item));
    return found == pt_items.end() ? nullptr : &pt->tensors[found->second];
  }
};

TensorArchives::TensorArchives() = default;
TensorArchives::~TensorArchives() = default;

Status TensorArchives::OpenPack(const std::string& folder) {
  if (!Exists(JoinPath(folder, formats::kPackName))) return Status::Ok();
  MSPROBE_ASSIGN_OR_RETURN(pack_, formats::TensorPack::Open(folder, formats::kPackName));
  return Status::Ok();
}

Result<std::vector<TensorArchives::Item>> TensorArchives::Open(const std::string& folder,
                                                               std::string_view name) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenBelow(folder, name));
  auto archive = std::make_unique<Archive>();
  archive->path = file.path();
  archive->bytes = file.bytes();
  std::vector<Item> items;
  if (formats::LooksLikeSafetensors(file.bytes())) {
    MSPROBE_ASSIGN_OR_RETURN(archive->safetensors, formats::SafetensorsFile::Open(std::move(file)));
    for (const formats::SafetensorsEntry& entry : archive->safetensors->entries())
      items.push_back({entry.name, entry.dtype, entry.shape});
  } else if (formats::LooksLikeTensorPack(file.bytes())) {
    MSPROBE_ASSIGN_OR_RETURN(archive->pack, formats::TensorPack::Open(folder, name));
    for (const formats::PackEntry& entry : archive->pack->entries())
      items.push_back({entry.name, entry.dtype, entry.shape});
    archives_[std::string(name)] = std::move(archive);
    return items;
  } else if (file.bytes().starts_with("PK") || file.bytes().starts_with("\x80")) {
    MSPROBE_ASSIGN_OR_RETURN(archive->pt,
                             formats::ReadPt(std::move(file), {.verify_storages = false}));
    for (const formats::PtTensor& tensor : archive->pt->tensors) {
      std::string item = Dotted(tensor.name);
      for (int n = 2; !archive->pt_items.emplace(item, items.size()).second; ++n)
        item = fmt::format("{}#{}", Dotted(tensor.name), n);
      items.push_back({std::move(item), tensor.tensor.dtype, tensor.tensor.shape});
      if (tensor.checksum) (void)archive->checks[tensor.storage.data()];
    }
  } else {
    MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile tensor,
                             formats::LooksLikeNpy(file.bytes())
                                 ? formats::DescribeNpy(file)
                                 : formats::ReadTensorFile(std::move(file)));
    items.push_back({"", tensor.dtype, tensor.shape});
  }
  if (items.size() > 1) archives_[std::string(name)] = std::move(archive);
  return items;
}

bool TensorArchives::IsPack(std::string_view name) const {
  const auto found = archives_.find(name);
  return found != archives_.end() && found->second->pack.has_value();
}

uint64_t TensorArchives::SizeOf(std::string_view name, std::string_view item) const {
  const auto found = archives_.find(name);
  if (found == archives_.end()) return 0;
  const Archive& archive = *found->second;
  if (archive.safetensors) {
    const formats::SafetensorsEntry* entry = archive.safetensors->Find(item);
    return entry == nullptr ? 0 : entry->size;
  }
  if (archive.pack) {
    const formats::PackEntry* entry = archive.pack->Find(item);
    return entry == nullptr ? 0 : entry->size;
  }
  const formats::PtTensor* tensor = archive.FindPt(item);
  return tensor == nullptr ? 0 : tensor->storage.size();
}

Result<formats::TensorFile> TensorArchives::Read(std::string_view name,
                                                 std::string_view item) const {
  const auto found = archives_.find(name);
  if (found == archives_.end()) return Internal("a tensor of a file that is not open"_t);
  const Archive& archive = *found->second;
  if (archive.pack) {
    const formats::PackEntry* entry = archive.pack->Find(item);
    return entry == nullptr ? Internal("a tensor that its file does not hold"_t)
                            : archive.pack->Read(*entry);
  }
  formats::TensorFile tensor;
  std::string_view pages;
  if (archive.safetensors) {
    const formats::SafetensorsEntry* entry = archive.safetensors->Find(item);
    if (entry == nullptr) return Internal("a tensor that its file does not hold"_t);
    MSPROBE_ASSIGN_OR_RETURN(tensor, archive.safetensors->Read(*entry));
    pages = archive.bytes.substr(entry->offset, entry->size);
  } else {
    const formats::PtTensor* listed = archive.FindPt(item);
    if (listed == nullptr) return Internal("a tensor that its file does not hold"_t);
    pages = listed->storage;
    if (listed->checksum) {
      Archive::Check& check = archive.checks.at(pages.data());
      std::call_once(check.once,
                     [&] { check.intact = formats::Crc32(pages) == *listed->checksum; });
      if (!check.intact) {
        return InvalidDump(archive.path, static_cast<uint64_t>(pages.data() - archive.bytes.data()))
            .Expected("data with checksum {:08x}"_t(*listed->checksum))
            .Found("other data: the file is damaged"_t);
      }
    }
    tensor = listed->tensor;
  }
  if (pages.empty()) return tensor;
  // The file stays mapped; its pages are given back with the tensor.
  tensor.owner = std::shared_ptr<const void>(
      tensor.data, [owner = tensor.owner, pages, bytes = archive.bytes](const void*) {
        ForgetPagesAround(pages, bytes);
      });
  return tensor;
}

}  // namespace msprobe::dump
