// An exchange: a call of torch.distributed by which processes give tensors to each other, as one
// process saw it. Which processes take part, which values this process gave, and which it received.
// A process that received a wrong number did not make it.
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
  // One send or receive of batch_isend_irecv.
  struct Part {
    std::string_view stem;  // what the names of its leaves have in common: ".input.0.1"
    bool sends = false;
    int32_t peer = -1;  // the other process
  };
  std::string_view kind;   // "all_reduce"
  std::string_view ranks;  // of all that take part: "[0, 1]"; "": all processes
  ProcessGroup::Role role = ProcessGroup::Role::kNone;
  int32_t rank = -1;        // of this process; -1: unknown
  int32_t peer = -1;        // the other process, or the one that gives to or gets from all
  std::vector<Part> parts;  // of batch_isend_irecv, otherwise empty
};

// nullopt when the call exchanges no tensors. Our dumps say who took part (Record::group); in those
// of other generations it follows from the arguments and from the name of the rank's folder.
std::optional<Exchange> ExchangeOf(const Dump& dump, const Record& record);

enum class ExchangePart : uint8_t {
  kOther,     // no tensor of the exchange: a rank, a reduction, a group
  kGiven,     // this process gives it to others
  kBuffer,    // the content of an output buffer before the call: it is not an input
  kReceived,  // the content of an output buffer, or the result, after the call
};
ExchangePart PartOf(const Exchange& exchange, const Record& record, const Leaf& leaf);
// The index in exchange.parts of the send or receive that a leaf belongs to; -1: none.
int32_t BatchPartOf(const Exchange& exchange, const Record& record, const Leaf& leaf);

bool IsPointToPoint(const Exchange& exchange);

}  // namespace msprobe::compare
