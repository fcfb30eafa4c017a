// How the elements of values differ, for the page: their differences by size, the distribution of
// both sides, the first elements that differ and those that are farthest apart.
//
//   const ElementDifferences differences(comparison, rows, 2u << 30);
//   differences.AppendJson(row, &line);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/kernels/diff_histogram.h"

namespace msprobe::report_page {

class ElementDifferences {
 public:
  static constexpr int kBins = 24;
  static constexpr size_t kMostRows = 2000;  // their numbers take a megabyte of the page

  // Reads the tensors of both sides of `rows` (indices into Comparison::rows) whose elements were
  // compared and are not all equal, in their order, until `bytes` have been read.
  ElementDifferences(const compare::Comparison& comparison, std::span<const uint32_t> rows,
                     uint64_t bytes);

  // {"equal": 90, "nonfinite": 0, "from": -7, "counts": [3, 7], "first": [["[0, 3]", 1.5, 1.25]],
  // "worst": [...], "values": {"low": -1, "high": 2, "target": [5, ...], "golden": [4, ...]}}:
  // values counts the elements in kBins intervals of one width; it is not there where all are one
  // number or no side is finite. counts[i] elements with 10^(from+i) <= |target - golden| <
  // 10^(from+i+1). 0: the tensors of the row were not read. Dumps with samples of elements have no
  // places.
  void AppendJson(uint32_t row, std::string* json) const;

 private:
  // Bytes that were read; 0: the tensors cannot be used.
  uint64_t Count(uint32_t row);

  const compare::Comparison& c_;
  struct Found {
    kernels::DiffHistogram differences;
    double low = 0, high = 0;             // bounds of what is counted below
    std::vector<int64_t> target, golden;  // elements of each interval; empty: not counted
  };
  std::unordered_map<uint32_t, Found> found_;
};

}  // namespace msprobe::report_page
