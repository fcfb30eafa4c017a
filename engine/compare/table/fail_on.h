// --fail-on: when a comparison counts as failed.
//
//   MSPROBE_ASSIGN_OR_RETURN(FailOn limits, ParseFailOn("error,MaxRelativeErr>0.01"));
//   MSPROBE_ASSIGN_OR_RETURN(std::vector<FailHit> hits,
//                            CheckRows(limits, TableFormat(comparison)));
//
// Conditions, with commas between them; a row that meets one fails the comparison:
//   error       Result is error
//   warning     Result is warning or error
//   unmatched   the row has no partner
//   unknown     Verdict is unknown, except for rows that say nothing against a run (IsNeutral)
//   differs     Verdict is differs
//   noise       Verdict is noise or differs: anything that is not equal
//   COLUMN OP LIMIT   a number of the table, as MaxRelativeErr>0.01, Cosine<0.99, Severity>=100;
//               OP is > >= < <=, LIMIT a number or a percentage. Case, blanks and underscores of
//               the column's name do not matter. NaN meets every limit; a cell that is no number
//               meets none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/table/table_format.h"

namespace msprobe::compare {

struct FailCondition {
  enum class Kind : uint8_t { kError, kWarning, kUnmatched, kUnknown, kDiffers, kNoise, kColumn };
  enum class Op : uint8_t { kAbove, kAtLeast, kBelow, kAtMost };
  std::string text;  // as typed
  Kind kind = Kind::kError;
  std::string column;
  Op op = Op::kAbove;
  double limit = 0;
};
struct FailOn {
  std::vector<FailCondition> conditions;
  bool empty() const { return conditions.empty(); }
};

// A condition that at least one row meets.
struct FailHit {
  std::string condition;
  int64_t rows = 0;
  std::string first, value;  // the first such row, and its cell in the condition's column ("": the
                             // condition is a word)
};

// Errors: kInvalidArgument; the message lists the conditions that exist.
Result<FailOn> ParseFailOn(std::string_view text);

// One hit for each condition that a row meets, in the order of the conditions. Errors:
// kInvalidArgument for a column that this table does not have.
Result<std::vector<FailHit>> CheckRows(const FailOn& limits, const TableFormat& table);

// "MaxRelativeErr>0.01: 12 values, the first is Functional.linear.0.forward.output.0 (0.5)"
Message DescribeHit(const FailHit& hit);

}  // namespace msprobe::compare
