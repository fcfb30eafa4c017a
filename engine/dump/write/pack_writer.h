// Writes the tensors of a step into one pack (formats/tensors/tensor_pack.h): no file is created
// for a tensor, and small ones cost no system call.
//
//   MSPROBE_ASSIGN_OR_RETURN(std::unique_ptr<PackWriter> pack, PackWriter::Create(folder));
//   MSPROBE_RETURN_IF_ERROR(pack->Add("Torch.mm.0.forward.output.0.pt", dtype, shape, bytes));
//   MSPROBE_RETURN_IF_ERROR(pack->Finish());   // the index; Add may follow all the same
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/formats/tensors/tensor_pack.h"
#include "engine/kernels/content_digest.h"

namespace msprobe::dump {

// Small tensors are copied into the log, a file beside the pack that is mapped into memory: what is
// in it survives the death of the process, without a system call. When it is full, its bytes are
// appended to the pack with one write. Where the log cannot be made (no room, no shared maps), each
// tensor is appended to the pack. May be used by several threads at once.
class PackWriter {
 public:
  // An earlier pack in the folder is replaced. `link_equal`: elements that are in the pack already
  // are not written again.
  static Result<std::unique_ptr<PackWriter>> Create(const std::string& folder,
                                                    bool link_equal = true);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // `data`: the elements in logical order. Sets *linked when they were in the pack.
  Status Add(std::string_view name, DType dtype, std::span<const int64_t> shape,
             std::string_view data, bool* linked = nullptr);
  Status Finish();

 private:
  class Log;
  struct DigestHash {
    size_t operator()(const kernels::ContentDigest& digest) const { return digest.low; }
  };
  struct Place {
    uint64_t offset, size;
    uint32_t crc32;
  };
  PackWriter() = default;
  Status Reopen();
  Status Flush();  // moves the log's bytes into the pack
  Status Append(std::string_view header, std::string_view data);

  std::mutex mutex_;
  std::string path_;
  formats::PackId id_{};
  bool link_equal_ = true, finished_ = false, log_refused_ = false;
  AppendFile file_;
  std::unique_ptr<Log> log_;
  uint64_t end_ = formats::kPackHeaderBytes;  // of the records, those in the log too
  std::string index_;                         // headers of all records
  uint64_t count_ = 0;
  std::unordered_map<kernels::ContentDigest, Place, DigestHash> known_;
};

// Completes the pack of a killed run in this folder: the log's tensors are appended, then the
// index. False: there is no pack, or it is complete. Not to be called while the run goes on. A
// second call continues where a killed one ended.
Result<bool> ClosePack(const std::string& folder);

}  // namespace msprobe::dump
