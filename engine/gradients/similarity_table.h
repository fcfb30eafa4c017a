// Similarities of gradients: a row for each parameter, a column for each step.
//
//   SimilarityTable table({0, 1, 2});
//   table.At(table.Row("fc.weight"), 0) = {.same = 97, .count = 100};
//   MSPROBE_RETURN_IF_ERROR(table.Write("out/rank0/similarities.csv"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/dtype.h"

namespace msprobe::gradients {

// What was counted of one parameter in one step.
struct Similarity {
  int64_t same = 0;    // elements whose directions are the same
  int64_t count = -1;  // elements; -1: not compared, or not known
  // Norms of the gradient on both sides; of several ranks the norm of all their elements together.
  // NaN: not known.
  double target_norm = 0, golden_norm = 0;
  // Of the elements with another direction those of the keys' and the values' bias that may be
  // chance, where the parameter is the joined bias of queries, keys and values.
  int64_t changed_parts = 0;
  // One rounding of the dtype in which the backward pass computed, of the coarser side.
  double epsilon = DTypeEpsilon(DType::kFloat32);
  double stated = -1;  // the share that a table states, which has no counts; -1: none

  bool known() const { return count >= 0 || stated >= 0; }
  // 0 of a parameter without elements, as in the older tools.
  double share() const {
    if (stated >= 0) return stated;
    return count > 0 ? static_cast<double>(same) / static_cast<double>(count) : 0;
  }
};

class SimilarityTable {
 public:
  explicit SimilarityTable(std::vector<int64_t> steps) : steps_(std::move(steps)) {}

  const std::vector<int64_t>& steps() const { return steps_; }
  const std::vector<std::string>& parameters() const { return parameters_; }
  size_t Row(std::string_view parameter);  // added at the end if it is new
  Similarity& At(size_t row, size_t step) { return cells_[row * steps_.size() + step]; }
  const Similarity& At(size_t row, size_t step) const { return cells_[row * steps_.size() + step]; }
  // Of all parameters together: each element counts once.
  Similarity Summary(size_t step) const;

  // The layout of the older tools: "step" and the steps, the parameters, last "summary". What was
  // not compared is an empty cell.
  Status Write(const std::string& path) const;
  // Such a file, ours or of an older tool: the stated shares, without counts and norms. `summary`
  // gets the last row, a cell for each step. kInvalidDump: another table.
  static Result<SimilarityTable> Read(const std::string& path, std::vector<Similarity>* summary);

 private:
  std::vector<int64_t> steps_;
  std::vector<std::string> parameters_;
  std::unordered_map<std::string, size_t> rows_;
  std::vector<Similarity> cells_;
};

}  // namespace msprobe::gradients
