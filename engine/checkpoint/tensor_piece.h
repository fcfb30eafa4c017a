// Tensors inside checkpoint files: listed without touching their data, read one at a time.
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
#include "engine/formats/pickle.h"
#include "engine/formats/tensor_file.h"

namespace msprobe::checkpoint {

// The bytes that one or more tensors are views of. A flipped bit must not pass for another number:
// they are checked when the first of them is read.
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
  uint64_t offset = 0;  // in the file, of element (0, ..., 0); of an archive: of its first byte
  uint64_t archive_size = 0;                // not 0: a .pt archive of its own inside the file
  std::shared_ptr<StorageCheck> check;      // null: the file has no checksum
  std::optional<formats::TensorFile> held;  // what does not lie in the file as it is: in memory
};

// Appends every tensor of a .safetensors file or of what torch.save wrote, in the file's order.
// Containers are walked; objects of other classes are passed over, and never made. Errors as in
// tensor_file.h. `visit`, when given, sees the tree of values of a .pt file.
struct PickleVisitor {
  virtual ~PickleVisitor() = default;
  virtual void Visit(const formats::PickleTree& tree) = 0;
};
Status ListPieces(const std::string& path, std::vector<TensorPiece>* pieces,
                  PickleVisitor* visitor = nullptr);

// Bytes of the file that reading it touches.
uint64_t SizeOf(const TensorPiece& piece);

// Thread-safe. Errors as in tensor_file.h; kInvalidDump also when the file is another one by now.
Result<formats::TensorFile> ReadPiece(const TensorPiece& piece);

}  // namespace msprobe::checkpoint
