// Reads torch.distributed.checkpoint. Its file .metadata is a pickle of data classes, which says
// where in the *.distcp files each part of each tensor lies. No object of those classes is made:
// only their fields are read.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/checkpoint/checkpoint.h"

namespace msprobe::checkpoint {
namespace {

using Extents = std::vector<int64_t>;

class MetadataReader {
 public:
  MetadataReader(const formats::PickleTree& tree, std::string folder, std::string path)
      : tree_(tree), folder_(std::move(folder)), path_(std::move(path)) {}

  Result<std::vector<CheckpointTensor>> Read() {
    MSPROBE_RETURN_IF_ERROR(ReadStorage());
    std::vector<CheckpointTensor> tensors;
    const formats::PickleNode* state = Field(tree_.root(), "state_dict_metadata");
    if (state == nullptr || state->kind != formats::PickleKind::kDict)
      return Fail(tree_.root(), std::string("state_dict_metadata"));
    for (size_t i = 0; i + 1 < state->items.size(); i += 2) {
      const formats::PickleNode &name = tree_[state->items[i]], &value = tree_[state->items[i + 1]];
      const formats::PickleNode* chunks = Field(value, "chunks");
      if (name.kind != formats::PickleKind::kString || chunks == nullptr)
        continue;  // an object in bytes, and no tensor
      CheckpointTensor tensor{.name = std::string(name.text)};
      MSPROBE_ASSIGN_OR_RETURN(tensor.shape, ReadExtents(value, "size"));
      for (const uint32_t index : chunks->items) {
        MSPROBE_RETURN_IF_ERROR(AddChunk(tree_[index], &tensor));
      }
      if (!tensor.parts.empty()) tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  struct Place {
    std::string file;
    int64_t offset = 0, length = 0;
  };

  Status Fail(const formats::PickleNode& at, const Message& expected) const {
    return InvalidDump(path_, at.offset)
        .Expected("{} as torch.distributed.checkpoint writes it"_t(expected))
        .Found("another value"_t);
  }

  // A field of an object (its state is a dict), or nullptr.
  const formats::PickleNode* Field(const formats::PickleNode& object, std::string_view name) const {
    if (object.kind != formats::PickleKind::kCall || object.items.size() < 3) return nullptr;
    const formats::PickleNode& state = tree_[object.items[2]];
    if (state.kind != formats::PickleKind::kDict) return nullptr;
    for (size_t i = 0; i + 1 < state.items.size(); i += 2) {
      if (tree_[state.items[i]].text == name) return &tree_[state.items[i + 1]];
    }
    return nullptr;
  }

  Result<Extents> ReadExtents(const formats::PickleNode& object, std::string_view name) const {
    const formats::PickleNode* node = Field(object, name);
    if (node != nullptr && node->kind == formats::PickleKind::kCall &&  // torch.Size((2, 3))
        tree_[node->items[1]].items.size() == 1) {
      node = &tree_[tree_[node->items[1]].items[0]];
    }
    if (node == nullptr ||
        (node->kind != formats::PickleKind::kTuple && node->kind != formats::PickleKind::kList))
      return Fail(object, name);
    Extents extents;
    for (const uint32_t index : node->items) {
      const formats::PickleNode& extent = tree_[index];
      if (extent.kind != formats::PickleKind::kInt || extent.integer < 0 ||
          extents.size() == static_cast<size_t>(formats::kMaxTensorDimensions)) {
        return Fail(object, name);
      }
      extents.push_back(extent.integer);
    }
    return extents;
  }

  Status ReadStorage() {
    const formats::PickleNode* storage = Field(tree_.root(), "storage_data");
    if (storage == nullptr || storage->kind != formats::PickleKind::kDict)
      return Fail(tree_.root(), std::string("storage_data"));
    for (size_t i = 0; i + 1 < storage->items.size(); i += 2) {
      const formats::PickleNode &key = tree_[storage->items[i]],
                                &value = tree_[storage->items[i + 1]];
      const formats::PickleNode *name = Field(key, "fqn"), *at = Field(key, "offset");
      const formats::PickleNode *file = Field(value, "relative_path"),
                                *offset = Field(value, "offset"), *length = Field(value, "length");
      if (name == nullptr || file == nullptr || offset == nullptr || length == nullptr ||
          file->text.find('/') != std::string_view::npos || file->text == ".." ||
          offset->integer < 0 || length->integer <= 0) {
        return Fail(value, "the place of a tensor"_t);
      }
      Extents begin;
      if (at != nullptr && at->kind != formats::PickleKind::kNone) {
        MSPROBE_ASSIGN_OR_RETURN(begin, ReadExtents(key, "offset"));
      }
      places_[{std::string(name->text), std::move(begin)}] = {JoinPath(folder_, file->text),
                                                              offset->integer, length->integer};
    }
    return Status::Ok();
  }

  Status AddChunk(const formats::PickleNode& chunk, CheckpointTensor* tensor) {
    MSPROBE_ASSIGN_OR_RETURN(Extents at, ReadExtents(chunk, "offsets"));
    MSPROBE_ASSIGN_OR_RETURN(Extents extents, ReadExtents(chunk, "sizes"));
    bool inside = at.size() == tensor->shape.size() && extents.size() == at.size();
    for (size_t d = 0; inside && d < at.size(); ++d)
      inside = at[d] <= tensor->shape[d] && extents[d] <= tensor->shape[d] - at[d];
    if (!inside) return Fail(chunk, "a part inside its tensor"_t);
    const auto found = places_.find({tensor->name, at});
    if (found == places_.end()) return Fail(chunk, "a part with a place in a file"_t);
    const Place& place = found->second;
    CheckpointTensor::Part part;
    part.piece.name = tensor->name;
    part.piece.file = FileNamed(place.file);
    part.piece.shape = std::move(extents);
    part.piece.offset = static_cast<uint64_t>(place.offset);
    part.piece.archive_size = static_cast<uint64_t>(place.length);
    part.at = std::move(at);
    if (tensor->parts.empty()) {  // the dtype is read from the first part
      MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile first, ReadPiece(part.piece));
      tensor->dtype = first.dtype;
    }
    tensor->parts.push_back(std::move(part));
    return Status::Ok();
  }

  std::shared_ptr<const std::string> FileNamed(const std::string& path) {
    std::shared_ptr<const std::string>& file = files_[path];
    if (file == nullptr) file = std::make_shared<const std::string>(path);
    return file;
  }

  const formats::PickleTree& tree_;
  const std::string folder_, path_;
  std::map<std::pair<std::string, Extents>, Place> places_;
  std::map<std::string, std::shared_ptr<const std::string>> files_;
};

}  // namespace

Status CheckpointBuilder::AddDistributed(const std::string& folder) {
  const std::string path = JoinPath(folder, ".metadata");
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const formats::PickleTree tree,
                           formats::Unpickle(file.bytes(), {.path = path, .keep_objects = true}));
  MetadataReader reader(tree, folder, path);
  MSPROBE_ASSIGN_OR_RETURN(std::vector<CheckpointTensor> tensors, reader.Read());
  for (CheckpointTensor& tensor : tensors) Add(std::move(tensor));
  return Finish(std::string("torch.distributed.checkpoint"));
}

}  // namespace msprobe::checkpoint
