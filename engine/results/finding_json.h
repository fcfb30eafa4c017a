// The document of `msprobe compare --format json` (docs/reference/compare-json.md), read again.
//
//   MSPROBE_ASSIGN_OR_RETURN(std::vector<JsonFinding> found, ReadFindingJson("report.json"));
//   Print("{}", found[0].result.first_name);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/results/stated_calls.h"

namespace msprobe::results {

struct JsonFinding {
  JsonFinding() = default;
  JsonFinding(JsonFinding&&) = default;
  JsonFinding& operator=(JsonFinding&&) = default;

  compare::RankResult result;  // result.failed: this pair could not be compared
  // The calls that the document names: the first divergence, further ones, those without a partner.
  compare::Comparison calls;
  StatedCalls stated;  // marked in `calls`
};

// What is not observed where a document is all that there is.
inline Message OnlyCallsThatDiffer() {
  return "the document names only calls that differ and calls without partner; the table has all"_t;
}

// Whether a text begins as such a document does.
bool LooksLikeFindingJson(std::string_view text);

// One for each pair of dumps, ordered by step and rank. Errors: those of the file; kInvalidConfig
// with the line for another document.
Result<std::vector<JsonFinding>> ReadFindingJson(const std::string& path);

}  // namespace msprobe::results
