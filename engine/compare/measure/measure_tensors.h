// The element-wise half of measuring: reads both files of a row and compares every element.
#pragma once

#include <list>
#include <mutex>

#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"
#include "engine/formats/tensor_file.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::compare {

// Bytes of memory for each row whose tensors are compared, besides the row itself.
inline constexpr uint64_t kMemoryOfTensorRow = 2 * sizeof(kernels::Diff) + 64;

// For each row whose two leaves are tensors: fills Measure::tensor and Comparison::diffs, and
// judges the row by the elements. A row whose files cannot be used has no numbers and becomes
// unknown; its note names the file. At most options.max_resident_tensor_bytes of files are held at
// a time. A pair that is larger is read alone; a pair beyond options.max_pair_bytes is not read.
void MeasureTensors(const CompareOptions& options, ThreadPool& pool, Comparison* comparison);

// The error of a pair that is not read because it needs more memory than options.max_pair_bytes.
Status TooLarge(uint64_t needed, uint64_t left);

// Counts NaN and infinities of the tensors that are compared, where the dump did not count them.
// The counts are given to the dump when all rows are measured, because two rows may share a leaf.
//
//   leaf.counts = counts.Of(tensor, diff.nonfinite_target, pool, leaf);   // from any thread
//   counts.MoveTo(&dump);
class NonFiniteCounts {
 public:
  // `nonfinite`: how many elements of the tensor are not finite. Counts that the leaf has stay.
  const ElementCounts* Of(const formats::TensorFile& tensor, int64_t nonfinite, ThreadPool* pool,
                          const Leaf& leaf);
  void MoveTo(Dump* dump) { dump->counts.splice(dump->counts.end(), found_); }

 private:
  std::mutex mutex_;
  std::list<ElementCounts> found_;
};

// Whether one element holds two values (float4_e2m1fn_x2). Shapes count elements.
inline bool IsPacked(DType dtype) { return dtype == DType::kFloat4E2M1X2; }

}  // namespace msprobe::compare
