// Which call of the target is which call of the golden, and which number is which.
//
// Equal names in equal order with equal shapes and source lines are the same calls: one pass.
// Otherwise names are not trusted, since one inserted Functional.linear renumbers every later one:
// the sequences of calls are compared by what a call looks like (record_keys.h), strict keys first,
// looser ones in the gaps they leave. A pair of forward calls then says which backward records
// belong together, in whatever order they ran.
//
//   AlignedDumps a = AlignDumps(target, golden, options);
// Every record and every leaf of both is in the result exactly once; a golden record twice where a
// data mapping pairs its values with those of several calls.
#pragma once

#include <vector>

#include "engine/compare/align/leaf_links.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct AlignedDumps {
  std::vector<RecordPair> pairs;    // in execution order of the target; golden-only ones at their
                                    // place in the golden order
  std::vector<Row> rows;            // grouped by pair
  std::vector<int32_t> forward_of;  // see Comparison::forward_of
};

AlignedDumps AlignDumps(const Dump& target, const Dump& golden, const CompareOptions& options);

// The steps, for tests and other comparers.

// Of one target record: its partner. confidence is 1 for the same name or the same call site, less
// for looser evidence.
struct Partner {
  int32_t golden = -1;
  float confidence = 0;
};
std::vector<Partner> AlignRecords(const Dump& target, const Dump& golden,
                                  const CompareOptions& options);

// Appends the rows of two records (either may be null: one side only). Linked leaves are paired as
// the links say; with `links_only`, because the golden record has a partner already, no others are.
void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows,
                 const LeafLinks* links = nullptr, bool links_only = false);

}  // namespace msprobe::compare
