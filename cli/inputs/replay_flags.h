// The flags of the verbs that execute recorded calls again, in processes of Python, and the pool of
// processes that they ask for.
//
//   ReplayFlags replay_;
//   replay_.Add(flags, /*many=*/false);                                    // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(workers::PoolOptions pool, replay_.Pool({{"mode", "\"check\""}},
//       out));
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/model/table.h"
#include "engine/workers/worker_pool.h"

namespace msprobe::cli {

// What the processes are told: names, and values in JSON.
using ReplayOptions = std::vector<std::pair<std::string_view, std::string>>;

std::string QuotedJson(std::string_view text);
std::string JsonList(const std::set<std::string, std::less<>>& texts);
inline std::string JsonBool(bool value) { return value ? "true" : "false"; }

struct ReplayFlags {
  std::string dump, memory, references, ray;
  std::vector<std::string> devices;
  std::vector<std::string> imports;  // modules whose classes of autograd.Function may be called
  int64_t processes = 0, seed = 1234, timeout = 600;
  bool many = false, jit = false;

  // `several`: whether the verb uses several processes.
  void Add(Flags& flags, bool several);
  // Reads the dump. Of a run that was killed the calls that are there; then the verb ends with
  // kExitError, because calls that are not there are not checked.
  Result<Dump> Read(Console& out) const;
  // Checks the flags, warns of what is ignored, and starts and writes nothing; the log has no name
  // yet. The processes get `options`, and dump, device, seed and jit_compile. Errors:
  // kInvalidArgument. With --ray it asks the cluster how many workers it has room for. Errors then
  // also: kUnsupported.
  Result<workers::PoolOptions> Pool(const ReplayOptions& options, Console& out) const;

 private:
  Status CheckRayFlags() const;
};

}  // namespace msprobe::cli
