// The last step of the accuracy pre-check: the details files of a device under test ("npu") and of
// a reference device ("gpu") are joined, and each result is judged by its errors beside the
// reference's.
//
//   MSPROBE_ASSIGN_OR_RETURN(PrecisionComparison c, ComparePrecision(npu, gpu, {.rules =
//       Rules::k26}));
//   MSPROBE_RETURN_IF_ERROR(c.Write("out", "20260102030405"));
//   const bool accurate = c.errors == 0;
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/accuracy/check_csv.h"
#include "engine/accuracy/columns.h"
#include "engine/accuracy/details_table.h"
#include "engine/accuracy/row_verdict.h"
#include "engine/accuracy/standards.h"

namespace msprobe::accuracy {

struct PrecisionOptions {
  Rules rules = Rules::kOurs;
  int decimals = 14;                     // of numbers in the details, 0 to 20
  const Standards* standards = nullptr;  // null: those of the program
};

struct ComparedOutput {
  std::string name;  // "Tensor.add.0.forward.output.0"
  RowVerdict verdict;
  std::string message;
};
struct ComparedCall {
  std::string name;  // "Tensor.add.0"
  Verdict forward = Verdict::kBlank, backward = Verdict::kBlank;
  std::string message;
};

struct PrecisionComparison {
  std::vector<ComparedOutput>
      outputs;                      // in the order of the npu's file; then those of the gpu alone
  std::vector<ComparedCall> calls;  // as they stand in the result file
  int64_t passes = 0, warnings = 0, errors = 0, skips = 0;  // of calls: the worse direction
  int64_t only_npu = 0, only_gpu = 0;                       // outputs
  CheckCsv result, details;                                 // the files

  // api_precision_compare_result_TIME.csv and ..._details_TIME.csv, both or none.
  Status Write(const std::string& folder, std::string_view time) const;
  // The outputs that are errors, then warnings; the largest ratio first. At most `most`.
  std::vector<const ComparedOutput*> Worst(size_t most) const;
};

// An output that one side alone has is a row with the verdict SKIP that says so. Errors:
// kInvalidArgument when the files have no output in common.
Result<PrecisionComparison> ComparePrecision(const DetailsTable& npu, const DetailsTable& gpu,
                                             const PrecisionOptions& options = {});

}  // namespace msprobe::accuracy
