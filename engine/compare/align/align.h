// Finds the golden's partner of each call of the target, and of each value.
//
// When all names, shapes and source lines are equal and in the same order, one pass pairs the calls
// by position. Otherwise names are not trusted: one inserted Functional.linear renumbers every
// later one. The two sequences of calls are then compared by what a call looks like
// (record_keys.h): first with strict keys, then with looser keys in the gaps that are left
// (record_gaps.h). Backward records are paired as their forward calls are, in whatever order they
// ran.
//
//   AlignedDumps a = AlignDumps(target, golden, options);
//
// Every record and every leaf of both dumps is in the result exactly once. One exception: a golden
// record is there twice when a data mapping pairs its values with those of several calls.
#pragma once

#include <vector>

#include "engine/compare/align/leaf_links.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct AlignedDumps {
  std::vector<RecordPair> pairs;    // in execution order of the target; a call that only the golden
                                    // has follows the call before it in the golden
  std::vector<Row> rows;            // grouped by pair
  std::vector<int32_t> forward_of;  // see Comparison::forward_of
};

AlignedDumps AlignDumps(const Dump& target, const Dump& golden, const CompareOptions& options);

// The two steps of AlignDumps, for tests.

// The partner of one target record. `confidence` is 1 for the same name or the same call site, and
// less for looser evidence.
struct Partner {
  int32_t golden = -1;
  float confidence = 0;
};
std::vector<Partner> AlignRecords(const Dump& target, const Dump& golden,
                                  const CompareOptions& options);

// Appends the rows of two records; one of the two may be null (the call is on one side only).
// `links` decides the partner of each leaf that it names. With `links_only` no other leaves are
// paired: the golden record has another partner already.
void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows,
                 const LeafLinks* links = nullptr, bool links_only = false);

}  // namespace msprobe::compare
