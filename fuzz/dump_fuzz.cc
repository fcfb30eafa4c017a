// Reads any bytes as dump.json: the result is a dump with valid indices, or a typed error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/dump/read/dump_file.h"
#include "fuzz/target.h"

FUZZ_TARGET(dump) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  msprobe::Dump dump;
  std::vector<std::string_view> stack_keys;
  msprobe::dump::DumpFileLayout layout;
  const msprobe::Status status =
      msprobe::dump::ReadDumpFile("dump.json", text, &dump, &stack_keys, &layout);
  if (status.ok()) {
    if (stack_keys.size() != dump.records.size() || layout.keep > size || layout.dropped > size)
      std::abort();
    size_t next = 0, bytes = 0;
    for (size_t r = 0; r < dump.records.size(); ++r) {
      if (dump.records[r].first_leaf != next) std::abort();
      next += dump.records[r].leaf_count;
      for (const msprobe::Leaf& leaf : dump.LeavesOf(dump.records[r])) {
        if (leaf.record != r) std::abort();
        const std::string_view parts[] = {leaf.name,  leaf.value, leaf.max,
                                          leaf.shape, leaf.dtype, leaf.data_name};
        for (const std::string_view part : parts) {
          for (const char c : part)
            bytes += static_cast<unsigned char>(c);  // reads every byte of the text
        }
      }
    }
    if (next != dump.leaves.size() || bytes == static_cast<size_t>(-1)) std::abort();
  } else if (status.code() != msprobe::ErrorCode::kInvalidDump || status.message().empty()) {
    std::abort();
  }
  return 0;
}
