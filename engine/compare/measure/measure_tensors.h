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

// What a row takes whose tensors are compared, beside the row itself.
inline constexpr uint64_t kMemoryOfTensorRow = 2 * sizeof(kernels::Diff) + 64;

// For every row whose two leaves are tensors: fills Measure::tensor and Comparison::diffs and
// judges by the elements. Rows whose files cannot be used keep no number and become unknown; notes
// name the file. At most options.max_tensor_bytes of files are held at a time (a single larger pair
// is read alone, or not at all: options.most_tensor_bytes).
void MeasureTensors(const CompareOptions& options, ThreadPool& pool, Comparison* comparison);

// Why tensors are not read: options.most_tensor_bytes.
Status TooLarge(uint64_t needed, uint64_t left);

// What a dump did not count, and what a checkpoint cannot: NaN and the infinities of each sign in
// tensors that were compared. Leaves are set when all rows are measured: rows may share one.
//
//   leaf.counts = counts.Of(tensor, diff.nonfinite_target, pool, leaf);   // from any thread
//   counts.MoveTo(&dump);
class NonFiniteCounts {
 public:
  // `nonfinite`: how many elements are not finite. What the leaf knows already stays.
  const ElementCounts* Of(const formats::TensorFile& tensor, int64_t nonfinite, ThreadPool* pool,
                          const Leaf& leaf);
  void MoveTo(Dump* dump) { dump->counts.splice(dump->counts.end(), found_); }

 private:
  std::mutex mutex_;
  std::list<ElementCounts> found_;
};

// Whether an element is two values; shapes count elements.
inline bool IsPacked(DType dtype) { return dtype == DType::kFloat4E2M1X2; }

}  // namespace msprobe::compare
