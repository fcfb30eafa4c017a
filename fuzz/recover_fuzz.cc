// Recovers any bytes as the files of a killed run: the result is an error, or a dump of the same
// records that stays whole if it was whole, and a second recovery changes nothing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/dump/read/reader.h"
#include "engine/dump/read/recover.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

// 0x1e separates dump.json, stack.json and construct.json.
FUZZ_TARGET(recover) {
  static msprobe::MemoryFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"dump.json", "stack.json", "construct.json"}) {
    const size_t end = rest.find('\x1e');
    folder.Set(name, rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  const auto before = msprobe::dump::ReadDump(folder.path());
  if (!before.ok()) msprobe::CheckRefusal(before.status(), folder.path());
  const size_t records = before.ok() ? before->records.size() : 0;
  const auto recovered = msprobe::dump::RecoverDump(folder.path());
  if (!recovered.ok()) {
    msprobe::CheckRefusal(recovered.status(), folder.path());
    return 0;
  }
  if (!before.ok() || recovered->records != static_cast<int64_t>(records)) std::abort();
  const auto after = msprobe::dump::ReadDump(folder.path());
  if (!after.ok() || after->records.size() != records) std::abort();
  if (before->complete && !after->complete) std::abort();
  const auto again = msprobe::dump::RecoverDump(folder.path());
  if (!again.ok() || !again->closed.empty() || again->dropped_bytes != 0) std::abort();
  return 0;
}
