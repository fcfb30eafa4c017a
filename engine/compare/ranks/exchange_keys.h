// Gives each exchange of a rank a name under which the other ranks that take part know it too.
//
//   for (const NumberedExchange& e : NumberExchanges(dump, 3))
//     Print("{}: {}", dump.records[e.record].name, e.keys[0]);   // "all_reduce [0, 1] #3"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compare/measure/exchange.h"

namespace msprobe::compare {

struct NumberedExchange {
  int32_t record = -1;  // index into Dump::records
  Exchange exchange;
  // One for each of exchange.parts; one for the whole call when it has no parts. All ranks that
  // take part have the same key, and no other exchange has it: kind, processes, and the index among
  // such exchanges, from 0: "all_reduce [0, 1] #3", "0 to 1 #2".
  std::vector<std::string> keys;
};

// All exchanges of the dump, in the order of its records. `rank` is the number of this process
// where the dump does not say it.
std::vector<NumberedExchange> NumberExchanges(const Dump& dump, int32_t rank);

}  // namespace msprobe::compare
