// Which ranks of a joined run are wrong at its first divergence, as far as the dumps tell.
//
//   comparison.first.ranks = WrongRanks(comparison);   // {3}; empty: not known
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare::layouts {

// Those that make the call, if not all do. Those whose content is not the golden's, where others'
// is. Where elements were stored, those whose shard is farther from its slice of the golden than
// others are; without them, those whose part has an element beyond the golden's largest or
// smallest.
std::vector<int32_t> WrongRanks(const Comparison& comparison);

// What FirstDivergence::why ends with: "joined: Shard(2) of ranks 0, 1; rank 1 is wrong". "" where
// nothing was joined.
Message SayRanks(const Comparison& comparison);

}  // namespace msprobe::compare::layouts
