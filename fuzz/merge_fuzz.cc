// Reads any bytes as the input files of `msprobe merge_result`: its configuration and the tables of
// two ranks. If they can be read, they are merged and written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/compare/merge_ranks.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace {

bool Holds(const msprobe::Status& status) {
  if (!status.ok() && (status.code() == msprobe::ErrorCode::kInternal || status.message().empty()))
    std::abort();
  return status.ok();
}

}  // namespace

// 0x1e separates the configuration, the table of rank 0 and the table of rank 1.
FUZZ_TARGET(merge) {
  static msprobe::MemoryFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"merge.yaml", "tables/compare_result_rank0_20260102030405.csv",
                           "tables/compare_result_rank1_20260102030405.csv"}) {
    const size_t end = rest.find('\x1e');
    folder.Set(name, rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  const auto config = msprobe::compare::ReadMergeConfig(folder.path() + "/merge.yaml");
  if (!Holds(config.status())) return 0;
  const auto merged = msprobe::compare::MergeRanks(folder.path() + "/tables", *config);
  if (!Holds(merged.status())) return 0;
  for (const msprobe::compare::MergedTables::Index& index : merged->indices) {
    for (const msprobe::compare::MergedTables::Row& row : index.rows)
      if (row.values.empty() || row.values.size() > merged->ranks.size()) std::abort();
  }
  if (!msprobe::compare::WriteMerged(*merged, folder.path() + "/merged.xlsx").ok()) std::abort();
  return 0;
}
