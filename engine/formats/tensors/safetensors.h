// Safetensors files: the length of a JSON header, the header, the tensors' bytes end to end.
//
//   MSPROBE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open("model.safetensors"));
//   for (const SafetensorsEntry& e : file.entries()) Print(e.name);   // no data are touched
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t, file.Read(file.entries()[0]));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::formats {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;     // float4: of bytes, as everywhere (dtype.h)
  uint64_t offset = 0, size = 0;  // bytes, in the file
};

class SafetensorsFile {
 public:
  // Checks the whole header: it has at most 100,000,000 bytes, each name occurs once, sizes agree
  // with shapes, and the tensors cover the rest of the file without gap or overlap. Errors as in
  // tensor_file.h; kUnsupported for an element type that we have no dtype for (6-bit floats).
  static Result<SafetensorsFile> Open(const std::string& path);
  static Result<SafetensorsFile> Open(MappedFile file);

  // In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsEntry* Find(std::string_view name) const;  // nullptr: none
  const std::string& path() const { return file_->path(); }
  // The file's own notes, in its order: {"format", "pt"}.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

  // A view into the mapped file; a copy where the file does not align the elements. kUnsupported
  // when there is no memory for that copy.
  Result<TensorFile> Read(const SafetensorsEntry& entry) const;

 private:
  friend class SafetensorsHeader;
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<uint32_t> by_name_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// Whether a file begins like a safetensors file, complete or not.
bool LooksLikeSafetensors(std::string_view bytes);

// The file's only tensor.
Result<TensorFile> ReadSafetensorsTensor(MappedFile file);

}  // namespace msprobe::formats
