// The tensors inside one file of a checkpoint: listed without reading their data, read one by one.
//
//   std::vector<TensorPiece> pieces;
//   MSPROBE_RETURN_IF_ERROR(ListPieces("model.safetensors", &pieces));    // or a .pt, .bin, .pth
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadPiece(pieces[0]));         // mapped while it lives
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/formats/tensors/pickle.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::checkpoint {

// The checksum of the bytes of which one or more tensors are views. It is checked when the first of
// these tensors is read: a flipped bit must not be taken for a different number.
struct StorageCheck {
  uint64_t offset = 0, size = 0;  // in the file
  uint32_t checksum = 0;
  std::once_flag once;
  bool intact = true;
};

struct TensorPiece {
  std::string name;  // keys joined by dots: "model.layers.0.weight", "optimizer.state.3.exp_avg"
  std::shared_ptr<const std::string> file;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;
  uint64_t offset = 0;        // in the file, of element (0, ..., 0), or of the archive's first byte
  uint64_t archive_size = 0;  // not 0: the tensor is a .pt archive inside the file
  std::shared_ptr<StorageCheck> check;      // null: the file has no checksum
  std::optional<formats::TensorFile> held;  // set: the data are not in the file as they are (a
                                            // compressed archive), but here
};

// Appends all tensors of a .safetensors file or of a file of torch.save, in the order of the file.
// Tensors are found in dicts and lists; objects of other classes are passed over and never made.
// Errors as in tensor_file.h. `visitor`, when given, sees the tree of values of a .pt file.
struct PickleVisitor {
  virtual ~PickleVisitor() = default;
  virtual void Visit(const formats::PickleTree& tree) = 0;
};
Status ListPieces(const std::string& path, std::vector<TensorPiece>* pieces,
                  PickleVisitor* visitor = nullptr);

// Bytes of the file that are read to read the piece.
uint64_t SizeOf(const TensorPiece& piece);

// Thread-safe. Errors as in tensor_file.h; also kInvalidDump when the file has been replaced since
// it was listed.
Result<formats::TensorFile> ReadPiece(const TensorPiece& piece);

}  // namespace msprobe::checkpoint
