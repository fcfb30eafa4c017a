// The element-wise half of measuring: reads both files of a row and compares every element.
#pragma once

#include <cstdint>

#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

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

}  // namespace msprobe::compare
