// A call of torch.distributed as one process saw it: with whom, and which of its values it gave to
// the others, which it got from them. A process that got a wrong number did not introduce it.
//
//   if (const std::optional<Exchange> e = ExchangeOf(dump, record)) {
//     for (const Leaf& leaf : dump.LeavesOf(record))
//       if (PartOf(*e, record, leaf) == ExchangePart::kGiven) ...
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::compare {

struct Exchange {
  // One of a batch of sends and receives.
  struct Part {
    std::string_view stem;  // of its leaves' names: ".input.0.1"
    bool sends = false;
    int32_t peer = -1;
  };
  std::string_view kind;   // "all_reduce"
  std::string_view ranks;  // "[0, 1]"; "" where the dump does not say: the default group
  ProcessGroup::Role role = ProcessGroup::Role::kNone;
  int32_t rank = -1;  // this process, -1: unknown
  int32_t peer = -1;
  std::vector<Part> parts;  // of batch_isend_irecv
};

// Nothing for calls that are no exchange of tensors. Our dumps say who took part (Record::group);
// in older ones it follows from the arguments and the name of the rank's folder.
std::optional<Exchange> ExchangeOf(const Dump& dump, const Record& record);

enum class ExchangePart : uint8_t {
  kOther,     // says how: a rank, an operation, a group
  kGiven,     // goes to others
  kBuffer,    // what stood where the results came: nobody's number
  kReceived,  // as the call left it
};
ExchangePart PartOf(const Exchange& exchange, const Record& record, const Leaf& leaf);
// The element of exchange.parts that a leaf belongs to; -1: none.
int32_t BatchPartOf(const Exchange& exchange, const Record& record, const Leaf& leaf);

bool IsPointToPoint(const Exchange& exchange);

}  // namespace msprobe::compare
