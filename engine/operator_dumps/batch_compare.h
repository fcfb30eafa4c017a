// Two folders of dumps of operators, compared tensor by tensor. Tensors pair by the operator's
// name, and by the order of time where it was executed several times.
//
//   MSPROBE_ASSIGN_OR_RETURN(const BatchComparison both, CompareOperatorFolders("npu", "golden"));
//   MSPROBE_RETURN_IF_ERROR(WriteBatchTable(both, "out/batch_compare_1697617551.csv"));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::operator_dumps {

struct BatchRow {
  std::string target, golden;  // paths below the folders, with ".input.0"; "": no partner
  double target_mean = 0, golden_mean = 0;
  bool has_target_mean = false, has_golden_mean = false;
  bool equal = false;                           // dtype, shape and every byte
  bool compared = false;                        // the two errors are numbers
  double max_abs_error = 0, max_rel_error = 0;  // NaN: of elements that are not finite on one side
  std::string message;  // why there is no partner, no comparison; "": nothing to say
};

struct BatchComparison {
  std::vector<BatchRow> rows;         // in the order of the target; golden tensors alone are last
  std::vector<std::string> left_out;  // files that hold no tensors
  int64_t unequal = 0, unpaired = 0, not_compared = 0;
};

// Errors: a folder that does not exist, or that has no tensors. A file that cannot be read has a
// row that says so.
Result<BatchComparison> CompareOperatorFolders(const std::string& target,
                                               const std::string& golden);

// The columns of `vc` in the parse shell of msprobe 1, then Message.
Status WriteBatchTable(const BatchComparison& comparison, const std::string& path);

}  // namespace msprobe::operator_dumps
