// Uses any bytes as the reference dump ("bench_path"): the search starts, and judges the entries.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "engine/dump/session/reference_search.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "tests/model/entry_from_json.h"

FUZZ_TARGET(reference) {
  static msprobe::MemoryFolder folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  folder.Set("golden/step0/rank/dump.json", text);
  const std::string path = folder.path() + "/golden";
  // Check refuses a dump without checksums, so a real run would not start the search.
  if (!msprobe::dump::ReferenceSearch::Check(path, folder.path() + "/now").ok()) return 0;
  msprobe::dump::ReferenceSearch search(path);
  const auto found = search.Begin(0, std::nullopt);
  if (!found.ok()) std::abort();
  if (!*found) return 0;
  for (size_t at = 0; at < size;) {
    const size_t end = std::min(text.find('\n', at), size);
    std::string_view line = text.substr(at, end - at);
    while (line.ends_with(',') || line.ends_with('\r')) line.remove_suffix(1);
    if (const auto entry = msprobe::test::EntryFromJson::Parse(line); entry)
      (void)search.Write(*entry);
    at = end + 1;
  }
  search.Report();
  return 0;
}
