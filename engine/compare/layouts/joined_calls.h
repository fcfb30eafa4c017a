// Which calls of the ranks are one call of the whole run, and in which order a single process could
// make them.
//
//   for (const JoinedCall& call : JoinCalls(runs))
//     for (const RankCall& of : call.of) Print(runs[of.run].dump->records[of.record].name);
//
// Calls are one call if they stand at the same place: the same API, line, module and call of that
// module, for the same time. What one process sends another is a call of that process alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/compare/layouts/module_names.h"
#include "engine/model/table.h"

namespace msprobe::compare::layouts {

struct RankRun {
  int32_t rank = 0;
  std::shared_ptr<const Dump> dump;
  ModuleNames modules;
};

struct RankCall {
  int32_t run = 0;     // index into the runs
  int32_t record = 0;  // index into Dump::records
};

struct JoinedCall {
  std::vector<RankCall> of;  // by run
  int32_t forward = -1;      // of a backward call: index of its forward call; -1: none
};

// Each rank makes its calls in its own order, and what is sent is sent before it is received. If
// ranks disagree on an order, the lower rank's is kept.
std::vector<JoinedCall> JoinCalls(std::span<const RankRun> runs);

// Those that are not left out.
std::vector<JoinedCall> Without(std::vector<JoinedCall> calls,
                                const std::function<bool(const JoinedCall&)>& is_left_out);

// "layers.0.fc" of "Module.layers.0.fc.Linear".
std::string_view PathOfModule(std::string_view api);

}  // namespace msprobe::compare::layouts
