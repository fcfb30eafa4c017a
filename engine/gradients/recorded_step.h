// What one rank recorded of its gradients in one step of an optimizer.
//
//   MSPROBE_ASSIGN_OR_RETURN(RecordedStep step, RecordedStep::Open("runs/a/rank0", 7));
//   for (const GradientRow& row : step.rows()) Use(step.Read(row));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
#include "engine/formats/tensors/sign_archive.h"
#include "engine/gradients/similarity.h"
#include "engine/tensor/dtype.h"

namespace msprobe::gradients {

// A row of grad_summary_<step>.csv.
struct GradientRow {
  std::string parameter;
  std::vector<int64_t> shape;
  double norm = 0;
  bool has_nan = false;
  // In which its backward pass computed, as far as the recording tells; nullopt: not known.
  std::optional<DType> dtype;
};

// Whether the two have the same elements in the same order: MindSpore gives the weight of a Conv1d
// an extent of 1 that PyTorch's has not.
bool SameShape(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

// The numbers N for which the folder holds "<prefix>N<suffix>", ascending.
Result<std::vector<int64_t>> NumbersOf(const std::string& folder, std::string_view prefix,
                                       std::string_view suffix = "");
// The steps of a rank's folder that have directions, in either form. Not the last step of a run
// that was killed while it wrote it.
Result<std::vector<int64_t>> StepsOf(const std::string& rank_folder);

// The table of a step, in any of its spellings. Errors: those of the file; another table.
std::string GradientTablePath(const std::string& rank_folder, int64_t step);
Result<std::vector<GradientRow>> ReadGradientTable(const std::string& rank_folder, int64_t step);

class RecordedStep {
 public:
  // Errors: no table, or a damaged one; a damaged archive.
  static Result<RecordedStep> Open(const std::string& rank_folder, int64_t step);

  const std::vector<GradientRow>& rows() const { return rows_; }  // in the order of the table
  const GradientRow* Find(std::string_view parameter) const;      // null: no such row
  // The row that `row` of `other` is compared with: that of the same name or, where the two are of
  // MindSpore and PyTorch, of the name in the other framework. Null: none.
  const GradientRow* FindPartner(const GradientRow& row, const RecordedStep& other) const;
  // kInvalidDump: the directions are missing, are no booleans, or have another shape than the row.
  Result<Directions> Read(const GradientRow& row) const;

 private:
  std::string folder_;  // of the byte form
  std::optional<formats::SignArchive> archive_;
  std::vector<GradientRow> rows_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys: in rows_
};

}  // namespace msprobe::gradients
