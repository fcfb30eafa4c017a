// The calls of a dump that can be executed again, and the arguments of each.
//
//   for (const RecordedCall& call : CallsOf(dump, {})) {
//     const Arguments arguments = ArgumentsOf(dump, dump.records[call.forward]);
//   }
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/model/table.h"

namespace msprobe::replay {

struct RecordedCall {
  std::string name;       // "Functional.linear.3"
  int32_t forward = -1;   // index into Dump::records
  int32_t backward = -1;  // the same; -1: the dump has no backward entry of it
  Message skip;           // why it is not executed; empty when it is
  Message backward_skip;  // why its backward pass is not
};

struct CallChoice {
  std::set<std::string, std::less<>> white_list;  // base names, "linear"; empty: all
  std::set<std::string, std::less<>> black_list;
  // Only the first of several calls of an API whose arguments have equal types, shapes and values.
  bool distinct = false;
  // Whether classes of torch.autograd.Function can be called: the user has named their modules.
  bool functions = false;
};

// Whether a name that a dump gives is that of an operation, which may be executed: a prefix and
// identifiers, of a known namespace, and none that reads or writes files. A name from a hostile
// dump could reach any function else: Torch.serialization.os.system. "Function.Exp" is the name of
// a class, which only modules that the user has named may give.
bool IsCallableApi(std::string_view api);

// In the order of the dump. Calls that are not chosen are left out; those that cannot be executed
// (collectives, random numbers, memory that nobody wrote, no operation) have a reason. Modules are
// no calls.
std::vector<RecordedCall> CallsOf(const Dump& dump, const CallChoice& choice);

// A value in the arguments of a call: one leaf, or a list or dictionary of values.
struct Argument {
  enum class Kind : uint8_t { kLeaf, kList, kDictionary };
  Kind kind = Kind::kLeaf;
  int32_t leaf = -1;               // index into Dump::leaves
  std::vector<std::string> names;  // of a dictionary
  std::vector<Argument> values;    // of a list or dictionary
};

struct Arguments {
  Argument positional{.kind = Argument::Kind::kList};
  Argument keywords{.kind = Argument::Kind::kDictionary};
};

// What was passed to a forward call; of a backward call, the gradients that arrived (positional).
Arguments ArgumentsOf(const Dump& dump, const Record& record);

}  // namespace msprobe::replay
