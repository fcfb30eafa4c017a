// Records of one size that are written once and read once: a few stay in memory, more wait in a
// file that has no name, so nothing is left behind however the program ends.
//
//   Spill points("out", sizeof(Point), 100'000);
//   MSPROBE_RETURN_IF_ERROR(points.Append(&point));
//   MSPROBE_RETURN_IF_ERROR(points.ForEach(Take));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/status.h"

namespace msprobe::report_page {

// For one thread at a time. Errors: kIo.
class Spill {
 public:
  // `folder`: of the file; it is created when it is needed first. `in_memory`: records, at least 1.
  Spill(std::string folder, size_t record_bytes, size_t in_memory);
  Spill(Spill&& other) noexcept;
  Spill& operator=(Spill&& other) noexcept = delete;
  ~Spill();
  Status Append(const void* record);
  // All records, in the order of Append. `record` is not aligned, and valid during the call.
  Status ForEach(const std::function<void(const void* record)>& take);
  uint64_t bytes_in_file() const { return in_file_; }

 private:
  Status Write();  // what is in memory
  Status Open();

  std::string folder_;
  size_t record_bytes_, most_bytes_;
  std::string waiting_;  // after what is in the file
  uint64_t in_file_ = 0;
  int fd_ = -1;
};

}  // namespace msprobe::report_page
