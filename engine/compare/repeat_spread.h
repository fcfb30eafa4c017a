// Noise, measured: repeats of the golden's code say how far a value may be off without a fault.
//
//   std::deque<Dump> repeats;                 // of other runs of the golden's code
//   MSPROBE_ASSIGN_OR_RETURN(Comparison c, CompareWithRepeats(std::move(target),
//       std::move(golden), options, std::move(repeats)));
//   // "...; it is off by 40 times the spread of 3 repeats"
//   Print("{}", c.first.why);
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// A row is noise up to so many times the largest difference between the golden and a repeat. A few
// repeats do not show the largest difference that there can be.
inline constexpr double kSpreadFactor = 4;

// As Compare (compare.h), with repeats. Rounding and the environment of the runs then decide only
// where no repeat says anything of a value; with Exactness::kExact bits decide everywhere.
Result<Comparison> CompareWithRepeats(Dump target, Dump golden, const CompareOptions& options,
                                      std::deque<Dump> repeats);

// How far the repeats are from the golden, for each row of a comparison.
class RepeatSpread {
 public:
  // Rows and measures of the comparison must be filled. Calls of a repeat without a partner in the
  // golden, and values of other shapes, say nothing; a sentence in not_observed counts them.
  static RepeatSpread Measure(const CompareOptions& options, std::deque<Dump> repeats,
                              Comparison* comparison);

  // Changes verdicts of rows that `noise` or `differs`. A value with the same bits in the golden
  // and in all repeats has no noise: any difference counts, if both sides have the same dtype.
  // Another value is noise up to kSpreadFactor times its spread.
  void Judge(Comparison* comparison) const;

  // "it is off by 40 times the spread of 3 repeats", "3 repeats of the golden have the same
  // bits"; "" where nothing is known of the row.
  Message Sentence(const Comparison& comparison, int32_t row) const;
  bool empty() const { return repeats_ == 0; }

 private:
  int repeats_ = 0;
  // For each row the largest severity between the golden and a repeat. 0: the same bits in all of
  // them; -1: not known.
  std::vector<float> spreads_;
};

}  // namespace msprobe::compare
