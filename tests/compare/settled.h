// Whether values are related as they would be if each round looked at all of them again.
//
//   EXPECT_EQ(test::UnsettledOf(comparison), "");
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "engine/compare/model/content_ids.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::test {

// The first value that a skipped call relates otherwise; "": there is none. Where proofs are kept,
// no call is skipped.
inline std::string UnsettledOf(const Comparison& c) {
  namespace relations = compare::relations;
  const std::shared_ptr<const ContentIds> content = ContentOf(c);
  relations::Paths paths;
  const relations::Graph target(c, relations::Side::kTarget, *content, &paths);
  const relations::Graph golden(c, relations::Side::kGolden, *content, &paths);
  const relations::Carried nothing;
  relations::Proofs proofs;
  const relations::Relations all(c, target, golden, nothing, &proofs);
  const relations::Relations some(c, target, golden, nothing);
  for (relations::ValueId v = 0; v < static_cast<relations::ValueId>(target.values.size()); ++v) {
    const relations::Relation &a = all.of(v), &b = some.of(v);
    if (a == b && all.Terms(v) == some.Terms(v)) continue;
    return fmt::format("value {}: strength {} error {} bound {} terms {}, skipped {} {} {} {}", v,
                       static_cast<int>(a.strength), a.error, a.bound, all.Terms(v),
                       static_cast<int>(b.strength), b.error, b.bound, some.Terms(v));
  }
  return "";
}

}  // namespace msprobe::compare::test
