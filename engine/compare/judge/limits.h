// How many roundings a value may be off: the table of rounding.h, what `rounding` of --thresholds
// says instead, and CompareOptions::tolerance. Every rule that counts in roundings asks here, so
// that a limit means one thing.
//
//   const Limits limits(comparison, record.api);
//   noise = severity <= limits.Explained(RoundingOfRow(comparison, row), terms);
//   other = roundings > 100 * limits.Scale(rounding);       // a rule with a limit of its own
#pragma once

#include <string_view>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {

class Limits {
 public:
  Limits() : Limits(ThresholdTable::Shipped(), 1, "") {}
  // `api`: of the golden's call, for overrides of an operation; "": the values belong to no call.
  // The table and the text outlive this object.
  Limits(const ThresholdTable& table, double tolerance, std::string_view api)
      : table_(&table), tolerance_(tolerance), api_(api) {}
  Limits(const Comparison& c, std::string_view api) : Limits(c.Thresholds(), c.tolerance, api) {}

  // The limits that the user has chosen, in times of the shipped ones: all that a rule counts in
  // roundings of the dtype is multiplied by it. 1: nothing was changed.
  double Scale(const Rounding& r) const { return tolerance_ * table_->RoundingScale(api_, r); }
  // How many roundings are explained for a number that is a sum of `terms` products (0 or 1: it is
  // no sum).
  double Explained(const Rounding& r, double terms = 0) const {
    return ExplainedRoundings(r, terms, Scale(r));
  }

 private:
  const ThresholdTable* table_;
  double tolerance_;
  std::string_view api_;
};

// The rounding that a row was judged by. The row must have both sides.
Rounding RoundingOfRow(const Comparison& comparison, int32_t row);

}  // namespace msprobe::compare
