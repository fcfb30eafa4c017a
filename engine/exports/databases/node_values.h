// The inputs and outputs of a node as JSON, in the form of msprobe 26's graph:
// {"Torch.mm.0.forward.input.0": {"type": "torch.Tensor", "Max": "1.5", ...}, ...}. All values are
// texts.
//
//   NodeValues values(comparison);
//   std::string inputs, outputs;
//   values.OfPair(17, &inputs, &outputs);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/table/table_format.h"

namespace msprobe::exports {

// The values of a call as they were recorded. `inputs` holds everything that is no output.
void AppendRecordedValues(const Dump& dump, const Record& record, std::string* inputs,
                          std::string* outputs);

// The verdict on a call, or on one row of it.
enum class NodeVerdict : uint8_t { kPass, kWarning, kError };
std::string_view NodeVerdictName(NodeVerdict verdict);  // "pass", "warning", "error"
// Error: the values differ. Warning: unknown, for a reason that counts against a run. Pass: equal,
// within rounding, or part of a rewrite.
NodeVerdict VerdictOfRow(const compare::Comparison& comparison, size_t row);
// The worst verdict of its rows.
NodeVerdict VerdictOfPair(const compare::Comparison& comparison, int32_t pair);

class NodeValues {
 public:
  // The comparison must outlive the values.
  explicit NodeValues(const compare::Comparison& comparison);

  // The target's values of a matched pair, with how far they are from the golden's.
  void OfPair(int32_t pair, std::string* inputs, std::string* outputs);

  // The names of the columns for differences, as JSON: {"Max diff": "explanation", ...}.
  static std::string Explanations(compare::Mode mode);

 private:
  void AppendDifferences(size_t row, std::string* json);

  const compare::Comparison& c_;
  const compare::TableFormat table_;
  std::vector<size_t> columns_;  // of the table, in order
  compare::TableRow cells_;
};

}  // namespace msprobe::exports
