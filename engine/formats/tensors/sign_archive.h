// The directions of many gradients in one file: one bit for each element, set where the element is
// greater than zero. The file is a .npz archive: np.unpackbits(np.load(path)[name], count=n) gives
// the n bits of an array in logical order.
//
//   MSPROBE_ASSIGN_OR_RETURN(SignWriter out, SignWriter::Create("rank0/grad_directions_7.npz"));
//   MSPROBE_RETURN_IF_ERROR(out.Add("fc.weight", positive));  // a byte for each element
//   MSPROBE_RETURN_IF_ERROR(out.Finish());
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "engine/base/atomic_file.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/formats/archive/zip.h"

namespace msprobe::formats {

// The bits of one array. The first element is the highest bit of the first byte; bits after the
// last element are zero.
struct SignBits {
  const uint8_t* data = nullptr;  // (count + 7) / 8 bytes, with any alignment
  int64_t count = 0;
};

// Eight elements for each byte of `bits`; an element is set when its byte is not zero.
void PackSigns(std::span<const uint8_t> elements, uint8_t* bits);

// In memory is at most one array. Readers see the former file or the complete new one.
class SignWriter {
 public:
  static Result<SignWriter> Create(const std::string& path);
  // One byte for each element. A name that was added before is left out.
  Status Add(std::string_view name, std::span<const uint8_t> elements);
  Status Finish();

 private:
  AtomicFile file_;
  ZipComposer zip_;
  std::unordered_set<std::string> names_;
};

// The file stays mapped while the archive lives.
class SignArchive {
 public:
  static Result<SignArchive> Open(const std::string& path);
  bool Has(std::string_view name) const;
  // The bits of an array of `count` elements. kInvalidDump: no such array, another number of
  // elements, or a wrong checksum. The bits are valid while the archive lives.
  Result<SignBits> Read(std::string_view name, int64_t count) const;

 private:
  struct Opened {
    MappedFile file;
    ZipReader zip;
  };
  std::shared_ptr<const Opened> opened_;
};

}  // namespace msprobe::formats
