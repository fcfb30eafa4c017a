// The calls that a document of compare (finding_json.h) states to be of a region or of compiled
// code: neither the document nor a table has the values that tell.
//
//   const StatedCalls stated = StatedCallsOf(document);
//   stated.Mark(&comparison);   // of the document, or of the tables beside it
#pragma once

#include <string>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/formats/text/json.h"
#include "engine/results/comparison_builder.h"

namespace msprobe::results {

struct StatedCalls {
  // A stretch in which the runs make other calls (compare/regions/regions.h).
  struct Region {
    bool rewrite = false;  // else it is the region at the first divergence
    std::vector<std::string> target, golden;
    std::vector<std::pair<std::string, std::string>> matched;  // those of them that are pairs
  };
  std::vector<Region> regions;
  std::vector<std::string> compiled_target, compiled_golden;

  // Adds the calls that the rows of `builder` do not have. All other rows were added before.
  void AddCalls(ComparisonBuilder* builder) const;
  // Calls that the comparison does not have are left out.
  void Mark(compare::Comparison* comparison) const;
};

StatedCalls StatedCallsOf(const formats::JsonValue& document);

}  // namespace msprobe::results
