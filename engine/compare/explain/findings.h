// What a report says of one comparison. It is small, and stays when the comparison is freed: the
// reports on many ranks and steps say as much of each pair of dumps as the report on one pair.
//
//   const Findings found = FindingsOf(comparison);
//   if (found.first.pair < 0) Print("no divergence in {} values", found.summary.rows[0]);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct Findings {
  struct Side {
    std::string dump;     // path
    std::string dialect;  // "msprobe 27"; "" for dumps without one
    int64_t calls = 0, values = 0;
    bool complete = true;
    std::vector<std::string> only_here;  // names of calls without a partner, the first four
  };
  // A call that differs, and its worst value.
  struct OtherCall {
    std::string name;
    Message what;
    std::string roundings;  // "-" where the error is not measured in roundings
    CallClass call_class = CallClass::kUnknown;
  };

  Mode mode = Mode::kStatistics;
  Summary summary;
  Side target_side, golden_side;
  RunStart began;
  Message exact;             // Comparison::exact
  FirstDivergence first;     // first.pair < 0: none
  Message first_name;        // of its call; "" when there is none
  Message first_bits;        // DescribeFirstBits
  Message rewrites;          // DescribeRewrites
  Message wrong_region;      // DescribeWrongRegion
  Message equal;             // "bit-equal" or "equal" (EqualWord)
  double largest_noise = 0;  // in roundings
  // Where that is, and why it is no error: "output.0 of Torch.sub.0.forward: this kind ..."; "":
  // there is no reason but rounding itself.
  Message why_largest_noise;
  Message not_judged;             // WhyNothingWasJudged
  Message other_arguments;        // DescribeDifferingArguments, when there is no first divergence
  Message unmatched_calls;        // DescribeUnmatchedCalls, when there is no first divergence
  bool two_frameworks = false;    // one dump is of MindSpore, the other is not
  std::string compared_nowhere;   // the name of the call Summary::first_compared_nowhere, or ""
  std::vector<OtherCall> others;  // besides the first divergence: the first eight
  int64_t more_others = 0;        // how many more there are
  std::vector<Message> not_observed;
};

Findings FindingsOf(const Comparison& comparison);

struct LabelledText {
  Message label, text;
};
// Under which conditions the two runs were compared, as far as it is known: "note" (a likely
// mistake of the caller, which must be read first), "began" (from the same weights (148)), "run"
// (settings that differ), "exact" (why bits decide).
std::vector<LabelledText> ConditionsOf(const Findings& found);
// "calls" (5 equal, 1 introduced) and "values".
std::vector<LabelledText> CountsOf(const Findings& found);

}  // namespace msprobe::compare
