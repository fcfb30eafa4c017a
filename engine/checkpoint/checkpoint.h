// A checkpoint: a file or a folder of files that hold a model's tensors. Opening one lists them;
// nothing in it is executed, and no data are read before they are asked for.
//
//   MSPROBE_ASSIGN_OR_RETURN(Checkpoint c, Checkpoint::Open("runs/a/iter_0000100"));
//   for (const CheckpointTensor& t : c.tensors()) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile data, c.Read(t));     // gone with `data`
//   }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/tensor_piece.h"

namespace msprobe::checkpoint {

// One tensor of the model, put together from pieces where ranks have shares of it.
struct CheckpointTensor {
  struct Part {
    TensorPiece piece;
    std::vector<int64_t> at;  // of its first element in the whole
  };
  struct Copy {
    TensorPiece piece;
    size_t part = 0;  // what it should be the same as
  };
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<Part> parts;   // one that is the whole, or several that cover it
  std::vector<Copy> copies;  // of parts, that other ranks hold
  bool is_parameter = true;  // of the model; false: of the optimizer, a generator, ... (where the
                             // layout tells)
};

class Checkpoint {
 public:
  // A .safetensors file; a file that torch.save wrote (1.6 and later), its containers walked; a
  // folder with an index (model.safetensors.index.json, pytorch_model.bin.index.json) or with such
  // files; Megatron's iter_0000100 with mp_rank_00_000/model_optim_rng.pt (or the folder above it:
  // the latest one), shares of tensor-parallel ranks joined and layers and experts numbered
  // through; a folder of torch.distributed.checkpoint (.metadata and *.distcp). Errors: kNotFound;
  // kInvalidDump with file and offset; kUnsupported; kInvalidArgument when there is no tensor.
  static Result<Checkpoint> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& layout() const { return layout_; }             // "safetensors, 3 files"
  const std::vector<std::string>& notes() const { return notes_; }  // files passed over, and why
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }  // names differ

  // Thread-safe. Of one piece: mapped. Of several: put together in memory.
  Result<formats::TensorFile> Read(const CheckpointTensor& tensor) const;
  // Bytes that Read takes at most; what is mapped the system can take back.
  struct Cost {
    uint64_t mapped = 0, made = 0;
    uint64_t all() const { return mapped + made; }
  };
  static Cost CostOf(const CheckpointTensor& tensor);

 private:
  friend class CheckpointBuilder;
  std::string path_, layout_;
  std::vector<std::string> notes_;
  std::vector<CheckpointTensor> tensors_;
};

// Whether the path is one by its content and layout, whole or damaged; a dump is none.
bool LooksLikeCheckpoint(const std::string& path);

// What the folders and files of the layouts are read with.
class CheckpointBuilder {
 public:
  explicit CheckpointBuilder(Checkpoint* checkpoint) : out_(*checkpoint) {}
  // Each piece of a file is a tensor; names that are taken get the file's name in front.
  Status AddFile(const std::string& path);
  // The same, but a file that cannot be read costs a note, unless it is the only one.
  Status AddFiles(const std::vector<std::string>& paths);
  Status AddIndexed(const std::string& folder, const std::string& index_name);
  Status AddMegatron(const std::string& folder);     // megatron.cc
  Status AddDistributed(const std::string& folder);  // distributed.cc
  void Add(CheckpointTensor tensor);
  Status Finish(std::string layout);

 private:
  Checkpoint& out_;
};

}  // namespace msprobe::checkpoint
