// Inside ReadPt: from the pickle's tree and the archive's storages to tensors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/pickle.h"
#include "engine/formats/tensors/pt.h"

namespace msprobe::formats {

// Finds the tensors of a tree in its order. Every number in the pickle is checked against the
// storage that it refers to before a pointer is computed from it.
class PtTensorBuilder {
 public:
  // `folder` is the archive's, with its '/'. All arguments must outlive the builder; `file` keeps
  // the archive's bytes alive.
  PtTensorBuilder(const PickleTree& tree, const ZipReader& zip, std::string_view folder,
                  std::shared_ptr<const void> file, const std::string& path,
                  const PtReadOptions& options)
      : tree_(tree),
        zip_(zip),
        folder_(folder),
        file_(std::move(file)),
        path_(path),
        options_(options) {}

  Result<std::vector<PtTensor>> Build();

 private:
  struct Storage {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
    std::optional<DType> dtype;        // nullopt: untyped
    std::string_view stored;           // its bytes in the file
    std::optional<uint32_t> checksum;  // of these
  };

  Status Fail(const PickleNode& at, Message expected, Message found, Message hint = {}) const;
  Status Walk(uint32_t index, int depth);
  Status WalkDict(const PickleNode& node, int depth);
  Result<PtTensor> BuildCall(const PickleNode& callee, const PickleNode& arguments, int depth);
  Result<PtTensor> BuildTensor(const PickleNode& callee, const PickleNode& arguments);
  Result<PtTensor> BuildParameter(const PickleNode& arguments, int depth);
  Result<PtTensor> BuildFromType(const PickleNode& arguments, int depth);
  Result<Storage> FindStorage(const PickleNode& persistent);
  Result<std::vector<int64_t>> Integers(const PickleNode& tuple, const Message& what) const;
  Status ResolveMathBits(const PickleNode& metadata, TensorFile* tensor) const;

  const PickleTree& tree_;
  const ZipReader& zip_;
  std::string_view folder_;
  std::shared_ptr<const void> file_;
  const std::string& path_;
  const PtReadOptions& options_;

  std::string name_;  // of the node the walk is at
  uint64_t visits_ = 0;
  std::vector<PtTensor> tensors_;
  std::unordered_map<uint32_t, PtTensor> built_;  // by node: shared tensors are built once
  std::unordered_map<std::string_view, Storage> storages_;  // by key
};

}  // namespace msprobe::formats
