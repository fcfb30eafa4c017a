// The first anomaly of one rank: the first call that made NaN or infinity of finite inputs, and
// what is needed to follow it through other ranks. A dump can be freed when this was made from it.
//
//   MSPROBE_ASSIGN_OR_RETURN(Dump dump, dump::ReadDump("runs/a/step0/rank3"));
//   ranks.push_back(FindRankAnomaly(dump, 3));
//   FirstAnomalies found = FindFirstAnomalies(std::move(ranks));        // first_anomaly.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/anomaly/value_kinds.h"
#include "engine/base/messages/message.h"
#include "engine/compare/ranks/rank_trace.h"
#include "engine/model/table.h"

namespace msprobe::anomaly {

// A value of the call that is not finite.
struct WrongValue {
  std::string name;   // "output.0"
  std::string label;  // the same for people: "weight" of "input.1" (value_names.h)
  bool is_output = false;
  ValueKinds kinds;
  int64_t elements = -1, nan = -1, infinite = -1;  // -1: the dump does not say
  Message text;                                    // "3 of 16 elements are NaN"
  std::string type;                                // "torch.float32 [4, 4]"
};

struct RankAnomaly {
  Message label;    // "rank 3"; "proc123" when the rank is not known
  std::string key;  // "rank_3", "proc123": its member in the file
  // `pair` of its exchanges and `first` are indices of records. `received` and `from_outside` say
  // how the number of record `first` came to this rank; when both are unset, that call made it.
  compare::RankTrace trace;
  int64_t records = 0;
  // The records from the last exchange before `first` to `first`: its place between two exchanges.
  int64_t behind_exchange = 0;
  bool exchange_follows = false;  // an exchange comes after `first`

  // Of record `first`; all empty when there is none. A backward call has the line and the stack of
  // its forward call.
  std::string name, source_line;
  std::vector<std::string> stack;    // frames, innermost first
  std::vector<std::string> parents;  // module calls around it, outermost first
  std::vector<WrongValue> values;
  std::string entry;  // its JSON in the dump; "" when the dump is of another form
  // What else the reader must know: "one of its inputs is memory that nobody has written".
  Message note;
};

// A call is an anomaly when no input has NaN or infinity and an output has, or when it makes NaN
// and no input has NaN: a softmax over nothing but the -inf of a mask. Not an anomaly: a call that
// returns memory that nobody has written (torch.empty), one that fills with a given value
// (Torch.fill*, masked_fill_), and what came with an exchange. A module's call gives way to a call
// inside of it, also to one that only got such a number: a weight is no input of a module's call. A
// backward pass is none if the forward pass got such a number. Time: linear in the number of
// records.
RankAnomaly FindRankAnomaly(const Dump& dump, int32_t rank);

}  // namespace msprobe::anomaly
