// A checkpoint: a file or a folder of files with the tensors of a model. Opening it lists the
// tensors; Read reads one. Nothing in a checkpoint is executed.
//
//   MSPROBE_ASSIGN_OR_RETURN(Checkpoint c, Checkpoint::Open("runs/a/iter_0000100"));
//   for (const CheckpointTensor& t : c.tensors()) {
//     MSPROBE_ASSIGN_OR_RETURN(TensorFile data, c.Read(t));     // freed with `data`
//   }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/tensor_piece.h"

namespace msprobe::checkpoint {

// One tensor of the model. When each rank has saved a share of it, it is put together from parts.
struct CheckpointTensor {
  struct Part {
    TensorPiece piece;
    std::vector<int64_t> at;  // the position of its first element in the whole tensor
  };
  // The same part, saved by another rank as well.
  struct Replica {
    TensorPiece piece;
    size_t part = 0;  // index into parts: the part that it should be equal to
  };
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<Part> parts;  // one part that is the whole tensor, or several that cover it
  std::vector<Replica> replicas;
  // Belongs to the model. false: to the optimizer, a random generator, ..., as far as the layout
  // tells.
  bool is_parameter = true;
};

class Checkpoint {
 public:
  // Opens one of these layouts, which are told apart by content:
  // - a .safetensors file;
  // - a file of torch.save (PyTorch 1.6 and later): all tensors in its dicts and lists;
  // - a folder with such files, or with an index of them (model.safetensors.index.json,
  //  pytorch_model.bin.index.json);
  // - Megatron's iter_0000100 with mp_rank_00_000/model_optim_rng.pt, or the folder above it, of
  //  which the latest iteration is opened: shares of tensor-parallel ranks are joined, layers and
  //  experts of all ranks are numbered through;
  // - a folder of torch.distributed.checkpoint (.metadata and *.distcp).
  //
  // Errors: kNotFound; kInvalidDump with file and offset; kUnsupported; kInvalidArgument when there
  // is no tensor.
  static Result<Checkpoint> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const Message& layout() const { return layout_; }  // "safetensors, 3 files"
  // Files that were passed over, and why.
  const std::vector<Message>& notes() const { return notes_; }
  const std::vector<CheckpointTensor>& tensors() const {
    return tensors_;
  }  // no name is there twice

  // Thread-safe. A tensor of one part is mapped; a tensor of several is put together in memory.
  Result<formats::TensorFile> Read(const CheckpointTensor& tensor) const;
  // Bytes that Read needs at most. The system can take mapped bytes back.
  struct Cost {
    uint64_t mapped = 0, made = 0;
    uint64_t all() const { return mapped + made; }
  };
  static Cost CostOf(const CheckpointTensor& tensor);

 private:
  friend class CheckpointBuilder;
  std::string path_;
  Message layout_;
  std::vector<Message> notes_;
  std::vector<CheckpointTensor> tensors_;
};

// Whether the path is a checkpoint by its content and layout, whole or damaged. A dump is not.
bool LooksLikeCheckpoint(const std::string& path);

// Collects the tensors of a checkpoint while its files are read. Each layout is one of the Add
// functions.
class CheckpointBuilder {
 public:
  explicit CheckpointBuilder(Checkpoint* checkpoint) : out_(*checkpoint) {}
  // Adds the tensors of one file. A name that is taken already gets the file's name in front.
  Status AddFile(const std::string& path);
  // Adds the tensors of several files. A file that cannot be read becomes a note; when no file can
  // be read, that is the error.
  Status AddFiles(const std::vector<std::string>& paths);
  Status AddIndexed(const std::string& folder, const std::string& index_name);
  Status AddMegatron(const std::string& folder);     // megatron.cc
  Status AddDistributed(const std::string& folder);  // distributed.cc
  void Add(CheckpointTensor tensor);
  Status Finish(Message layout);

 private:
  Checkpoint& out_;
};

}  // namespace msprobe::checkpoint
