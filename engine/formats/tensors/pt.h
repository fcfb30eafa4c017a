// Files of torch.save: a zip archive with one pickle and the raw storages that it refers to.
// Opening one never runs code.
//
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadPtTensor("Tensor.add.0.forward.output.0.pt"));
//   MSPROBE_ASSIGN_OR_RETURN(PtFile file, ReadPt("model.pt"));       // any tree of plain values
//   for (const PtTensor& t : file.tensors) Print(t.name);      // "['layer']['weight']"
//   MSPROBE_RETURN_IF_ERROR(WritePt("copy.pt", t.view()));     // torch.load reads it
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/threads.h"
#include "engine/formats/tensors/pickle.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::formats {

struct PtTensor {
  std::string name;   // how Python would reach it: "" for the root, "['state'][0]['exp_avg']"
  uint32_t node = 0;  // in PtFile::tree
  TensorFile tensor;  // conjugate and negative bits are resolved
  bool requires_grad = false;
  bool is_parameter = false;
  std::string_view storage;          // the bytes of its storage, as the file has them
  std::optional<uint32_t> checksum;  // CRC-32 of these bytes, when the file has one
};

struct PtFile {
  PickleTree tree;  // None, numbers, strings, lists, dicts...; tensors are kCall nodes
  std::vector<PtTensor>
      tensors;  // in the order of the tree; a tensor that stands in two places is listed twice
  std::shared_ptr<const void> owner;  // the memory that the strings of `tree` point into
};

struct PtReadOptions {
  bool verify_checksums =
      true;  // a flipped bit in a file must not look like a numerical difference
  // Also verify the elements; false: the caller does it while reading them (PtTensor::checksum).
  bool verify_storages = true;
  // Objects that are not tensors (a Namespace of arguments, states of generators) are left in the
  // tree as kCall nodes; false: they are refused. No object is ever made.
  bool keep_objects = false;
  // The archive is a part of the file; size 0: all of it.
  uint64_t offset = 0, size = 0;
};

// Errors as in tensor_file.h. Refused by name: files that would need code (any global but a short
// list), sparse, quantized, nested, meta and distributed tensors, big-endian files, TorchScript
// archives, and the format of torch.save before 1.6.
Result<PtFile> ReadPt(const std::string& path, const PtReadOptions& options = {});
Result<PtFile> ReadPt(MappedFile file, const PtReadOptions& options = {});
// The file's only tensor, whether it is the root or the one tensor inside containers.
Result<TensorFile> ReadPtTensor(const std::string& path, const PtReadOptions& options = {});
Result<TensorFile> ReadPtTensor(MappedFile file, const PtReadOptions& options = {},
                                Verify verify = Verify::kByReader);

struct PtWriteOptions {
  bool requires_grad = false;
  bool is_parameter = false;  // torch.load gives a torch.nn.Parameter
  std::string_view archive_name =
      "archive";  // the folder inside the zip; torch uses the file's stem
};

// The bytes around a tensor's data, so that writing it needs no copy:
//   MSPROBE_ASSIGN_OR_RETURN(PtLayout layout, MakePtLayout(dtype, shape));   // microseconds
//   MSPROBE_RETURN_IF_ERROR(file.Write({{layout.prefix(), data, layout.Suffix(checksum)}}));
// prefix() does not depend on the data and its size is a multiple of 64. The file is prefix,
// data_size() bytes in logical (row-major) order, suffix.
class PtLayout {
 public:
  std::string_view prefix() const { return prefix_; }
  std::string Suffix(uint32_t checksum) const;
  uint64_t data_size() const { return data_size_; }

 private:
  friend Result<PtLayout> MakePtLayout(DType, std::span<const int64_t>, const PtWriteOptions&);
  std::string prefix_, suffix_;              // the latter with zeros for the checksum
  std::array<size_t, 2> checksum_places_{};  // in the suffix
  uint64_t data_size_ = 0;
};
// kInvalidArgument: a negative extent or a product over 2^63 bytes.
Result<PtLayout> MakePtLayout(DType dtype, std::span<const int64_t> shape,
                              const PtWriteOptions& options = {});

// torch.load(weights_only=True) gives the view's elements bit for bit, contiguous, with its dtype
// and shape. Views with strides are copied first (the viewed elements only). Readers see the former
// file or the new one, never half. A second thread of `pool` computes the checksum of large
// tensors.
Status WritePt(const std::string& path, const TensorView& view, const PtWriteOptions& options = {},
               ThreadPool* pool = nullptr);
// The same with a layout made before, of the view's dtype and shape.
Status WritePt(const std::string& path, const PtLayout& layout, const TensorView& view,
               ThreadPool* pool = nullptr);
// The same for bytes that are already in logical order; data.size() must be layout.data_size().
Status WritePt(const std::string& path, const PtLayout& layout, std::string_view data,
               ThreadPool* pool = nullptr);

}  // namespace msprobe::formats
