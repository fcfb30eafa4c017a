// Reads the elements of a leaf, wherever its dialect keeps them.
//
//   if (HasTensorData(leaf)) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadTensorData(dump, leaf));   // this row only
//     Diff d = *ComputeDiff(t.view(), golden.view());
//   }
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/tensors/tensor_file.h"
#include "engine/formats/tensors/tensor_pack.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Whether the leaf names a tensor file or holds its elements itself. The file may be missing.
bool HasTensorData(const Leaf& leaf);

// Reads only files below dump.tensor_folder: symbolic links, "..", absolute paths and devices are
// refused. Elements that an older tool has flattened get the leaf's shape again.
// Errors: as ReadTensorFile; kNotFound also when the leaf has no data.
Result<formats::TensorFile> ReadTensorData(const Dump& dump, const Leaf& leaf,
                                           formats::Verify verify = formats::Verify::kByReader);

// Number of bytes that reading the tensor needs, for planning; 0 when there is no file.
uint64_t TensorDataSize(const Dump& dump, const Leaf& leaf);

// Files that hold several tensors. A file is opened and mapped once; tensors are read on demand.
class TensorArchives {
 public:
  struct Item {
    std::string name;  // inside the file, dotted: "layer.0.weight"; "" for a file that is a tensor
    DType dtype;
    std::vector<int64_t> shape;
  };
  TensorArchives();
  ~TensorArchives();

  // The pack of a dump's tensor folder, if there is one: each tensor is read by its file name. A
  // pack in an unfinished state is read up to its last whole tensor; see pack().
  Status OpenPack(const std::string& folder);
  const formats::TensorPack* pack() const { return pack_ ? &*pack_ : nullptr; }

  // The tensors of `name` below `folder`; the file stays open when there are several.
  Result<std::vector<Item>> Open(const std::string& folder, std::string_view name);
  // Whether that file is a pack. Its items are named like the files of a folder.
  bool IsPack(std::string_view name) const;
  // The tensor's pages are given back when it is destroyed.
  Result<formats::TensorFile> Read(std::string_view name, std::string_view item) const;
  // Number of bytes that reading the tensor needs; 0: there is no such tensor.
  uint64_t SizeOf(std::string_view name, std::string_view item) const;

 private:
  struct Archive;
  std::map<std::string, std::unique_ptr<Archive>, std::less<>> archives_;
  std::optional<formats::TensorPack> pack_;
};

}  // namespace msprobe::dump
