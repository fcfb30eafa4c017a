// Compares pairs of tensors element by element: those of two dumps, or of two checkpoints. For each
// row it reads both tensors, compares and judges them, and releases their memory.
//
//   TensorPairs pairs(target_tensors, golden_tensors, options, pool, &comparison);
//   pairs.Add(row, {.largest = 4096, .needed = 8192}, judge);
//   pairs.Refuse(other_row, Reason::kPacked);
//   pairs.Run();                             // fills measures and diffs
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::compare {

// Reads the tensors of one side. Called from any thread.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // `leaf`: an index into Dump::leaves. Errors: kNotFound when there is no file; any other error
  // means that the file cannot be used.
  virtual Result<formats::TensorFile> Read(uint32_t leaf, formats::Verify verify) const = 0;
};

// Whether one element holds two values (float4_e2m1fn_x2). Shapes count elements.
inline bool IsPacked(DType dtype) { return dtype == DType::kFloat4E2M1X2; }

// The error of a pair that is not read because it needs more memory than options.max_pair_bytes.
Status TooLarge(uint64_t needed, uint64_t left);

class TensorPairs {
 public:
  // In bytes.
  struct Cost {
    uint64_t largest = 0;  // size of the larger tensor
    uint64_t needed = 0;   // memory that the pair needs and that options.max_pair_bytes limits
  };

  // All arguments outlive this object. `comparison` has its rows and leaves, and a measure for each
  // row.
  TensorPairs(const TensorSource& target, const TensorSource& golden, const CompareOptions& options,
              ThreadPool& pool, Comparison* comparison);

  // Run will compare the row. A pair that needs more memory than options.max_pair_bytes is not
  // compared: the row becomes unknown, and its note says why.
  void Add(uint32_t row, const Cost& cost, const JudgeOptions& judge);
  // The row is not compared. kShapeDiffers gives the verdict kDiffers, other reasons kUnknown.
  void Refuse(uint32_t row, Reason reason);
  // The row becomes unknown, and `note` says why.
  void Fail(uint32_t row, Reason reason, Message note);

  // Compares small pairs many at a time, each on one thread; then large pairs one after the other,
  // each on all threads. Fills Measure::tensor, Comparison::diffs (in the order of rows) and notes,
  // and the counts of leaves that have none. At most options.max_resident_tensor_bytes of small
  // pairs are held at a time.
  void Run();

 private:
  struct Job {
    uint32_t row;
    JudgeOptions judge;
    uint64_t bytes;  // of the larger tensor
  };
  struct Found {
    uint32_t row;
    const ElementCounts *target, *golden;
    kernels::Diff diff;
  };

  void Compare(const Job& job, ThreadPool* pool);
  void IsDone(const Job& job);
  void Fail(uint32_t row, const Status& status);
  // Ok, or the error of a tensor whose elements do not have the checksum that its file records.
  static Status Verified(const TensorSource& source, uint32_t leaf, std::string_view name,
                         std::optional<uint32_t> expected, uint32_t found);
  // The counts of the leaf, or new ones in `kept` when the dump did not count NaN and infinities.
  // `nonfinite`: how many elements of the tensor are not finite.
  const ElementCounts* CountsOf(const formats::TensorFile& tensor, int64_t nonfinite,
                                ThreadPool* pool, const Leaf& leaf, std::list<ElementCounts>* kept);

  const TensorSource &target_, &golden_;
  const CompareOptions& options_;
  ThreadPool& pool_;
  Comparison& c_;
  std::vector<Job> small_, large_;
  uint64_t all_bytes_ = 0;               // of small_ and large_
  std::atomic<uint64_t> done_bytes_{0};  // of those that are compared
  std::mutex mutex_;                     // guards the members below
  std::vector<Found> found_;
  std::list<ElementCounts> target_counts_, golden_counts_;
  std::vector<std::pair<uint32_t, Message>> notes_;
};

}  // namespace msprobe::compare
