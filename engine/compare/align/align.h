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
// Every record and every leaf of both dumps is in the result exactly once. Two exceptions: a golden
// record is there twice when a data mapping pairs its values with those of several calls, and a
// call of one framework is there with each of the calls by which the other framework computes the
// same.
#pragma once

#include <span>
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
  // The call computes only a part of what its partner computes: the pair has the values of the part
  // (framework_calls.h).
  bool part = false;
};
//
// `links` has the pairs of leaves that the user's data mapping names; those of two frameworks are
// added. `parts`: golden records that compute a part of what their partner computes.
struct CallPart {
  uint32_t target = 0, golden = 0;  // records
};
std::vector<Partner> AlignRecords(const Dump& target, const Dump& golden,
                                  const CompareOptions& options, LeafLinks* links = nullptr,
                                  std::vector<CallPart>* parts = nullptr);

// Appends the rows of two records; one of the two may be null (the call is on one side only).
// `links` decides the partner of each leaf that it names.
struct RowsOf {
  // Only leaves that `links` names are paired: the golden record has another partner, too.
  bool links_only = false;
  // The target record has another partner, in whose pair its other leaves are.
  bool target_listed = false;
  // Golden records whose values are in pairs of their own.
  std::span<const uint32_t> elsewhere = {};
  // HaveSamePlaces is known to be true of the two records.
  bool same_places = false;
};
void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows,
                 const LeafLinks* links = nullptr, const RowsOf& which = {});

// Whether both records have the same leaves in the same order, as nearly all pairs of calls do.
bool HaveSamePlaces(const Dump& target, const Record& target_record, const Dump& golden,
                    const Record& golden_record);

}  // namespace msprobe::compare
