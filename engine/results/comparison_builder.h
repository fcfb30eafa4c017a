// Rows of a result table, put together to a comparison as if the two dumps had been compared.
//
//   ComparisonBuilder builder("out/compare_result_1.csv");
//   builder.Add({.target = {.name = "Torch.mm.0.forward.output.0", .max = "1.5"}, .golden = {}});
//   const compare::Comparison comparison = builder.Finish();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/kernels/diff.h"

namespace msprobe::results {

// One side of a row, as the table spells it; "" and "N/A": not there.
struct ResultValue {
  std::string_view name;  // "Functional.linear.0.forward.input.0"
  std::string_view dtype, shape, requires_grad, max, min, mean, norm, checksum;
  ElementCounts counts;
};

struct ResultRow {
  ResultValue target, golden;
  // Unset: the table has no such column. A row without verdict is judged by its numbers, a call
  // without class by its rows.
  std::optional<compare::RowVerdict> verdict;
  std::optional<compare::CallClass> call_class;
  std::optional<double> severity;
  std::optional<kernels::Diff> diff;  // of elements
  std::string_view reason;            // with its note, as the column Reason
  double confidence = 1;
  std::string_view stack;  // a Python list of frames; other text is not a stack
  // "train.py:41 in forward: y = F.gelu(x)": of the target's call, or of the only one. It stands in
  // for a stack that the table does not have.
  std::string_view source_line;
};

// The names of a row's call and of its value: "Torch.mm.0.forward" and "output.0". Names of all
// generations; a name of another form is the name of a call.
struct ValueName {
  std::string_view call, path;
};
ValueName SplitValueName(std::string_view name);

class ComparisonBuilder {
 public:
  // `path`: the file that the rows come from, for reports.
  explicit ComparisonBuilder(const std::string& path);

  // Rows of one call follow each other. The views need not outlive the call.
  void Add(const ResultRow& row);
  // What was added, without classes.
  const compare::Comparison& so_far() const { return c_; }
  // Fills forward calls, classes and the first divergence.
  compare::Comparison Finish();

 private:
  std::string_view Keep(std::string_view text);
  int32_t AddLeaf(const ResultValue& value, std::string_view call, std::string_view path,
                  int32_t* record, Dump* dump);
  bool OfLastPair(std::string_view target, std::string_view golden) const;
  void Judge(const ResultRow& row);
  void TakeStack(const ResultRow& row);
  void LinkBackwardCalls();

  compare::Comparison c_;
  std::unordered_set<std::string_view> kept_;
  std::unordered_map<std::string_view, int32_t> stacks_[2];  // of the target, of the golden
  std::vector<std::optional<compare::CallClass>> classes_;
};

}  // namespace msprobe::results
