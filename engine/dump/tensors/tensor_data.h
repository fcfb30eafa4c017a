// The elements behind a leaf, wherever its dialect keeps them.
//
//   if (HasTensorData(leaf)) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadTensorData(dump, leaf));   // this row only
//     Diff d = *ComputeDiff(t.view(), golden.view());
//   }
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/tensor_file.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Whether the leaf names a file or carries its elements. The file need not be there.
bool HasTensorData(const Leaf& leaf);

// Below dump.tensor_folder only: symbolic links, "..", absolute paths and devices are refused.
// Elements of the oldest dumps, flattened on the way to the file, get the leaf's shape back.
// Errors: as ReadTensorFile; kNotFound also when the leaf has no data.
Result<formats::TensorFile> ReadTensorData(const Dump& dump, const Leaf& leaf,
                                           formats::Verify verify = formats::Verify::kByReader);

// Bytes that reading it takes, for planning; 0 when there is no file.
uint64_t TensorDataSize(const Dump& dump, const Leaf& leaf);

// Files that hold several tensors: opened once, mapped, read when asked.
class TensorArchives {
 public:
  struct Item {
    std::string name;  // inside the file, dotted: "layer.0.weight"; "" for a file that is a tensor
    DType dtype;
    std::vector<int64_t> shape;
  };
  TensorArchives();
  ~TensorArchives();

  // The tensors of `name` below `folder`; the file stays open when there are several.
  Result<std::vector<Item>> Open(const std::string& folder, std::string_view name);
  // Its pages are given back with the tensor.
  Result<formats::TensorFile> Read(std::string_view name, std::string_view item) const;
  // Bytes that reading it takes; 0: none there.
  uint64_t SizeOf(std::string_view name, std::string_view item) const;

 private:
  struct Archive;
  std::map<std::string, std::unique_ptr<Archive>, std::less<>> archives_;
};

}  // namespace msprobe::dump
