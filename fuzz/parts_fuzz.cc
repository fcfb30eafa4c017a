// Reads any bytes as what one of several processes has compared (`compare --part`). What can be
// read is written and read once more, and reports are made of it. Copies of ranks that it names are
// read, and never what lies elsewhere.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/compare/ranks/compared_part.h"
#include "engine/compare/ranks/rank_copy.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/compare/report/report_ranks.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace compare = msprobe::compare;

// The first line of the file, which names the version, is not part of the input.
FUZZ_TARGET(parts) {
  static msprobe::MemoryFolder folder;
  constexpr char kCopy[] = "{\"task\": \"statistics\", \"data\": {\n}}\n";
  folder.Set("parts/compare_ranks/a/step0/rank0/dump.json", kCopy);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  folder.Set("parts/compare_part_1_of_1.bin", "msprobe " + std::string(msprobe::kVersion) +
                                                  ": a part of a comparison\n" +
                                                  std::string(bytes));
  auto all = compare::ReadParts(folder.path() + "/parts");
  if (!all.ok()) {
    if (all.status().code() == msprobe::ErrorCode::kInternal || all.status().message().empty())
      std::abort();
    return 0;
  }
  all->index = all->count = 1;
  if (!compare::WritePart(*all, folder.path() + "/again").ok()) std::abort();
  if (!compare::ReadPart(folder.path() + "/again/compare_part_1_of_1.bin").ok()) std::abort();
  for (const compare::RankCopy& copy : all->copies) {
    if (compare::ReadRankCopy(copy, folder.path() + "/parts").ok() && copy.place != "a")
      std::abort();
  }
  std::vector<compare::RankResult> results;
  for (compare::ComparedPair& pair : all->compared) results.push_back(std::move(pair.result));
  if (results.empty()) return 0;
  compare::JudgeSteps(results);
  (void)compare::RankSummaryCsv(results);
  (void)compare::FirstPlaceJson(results);
  (void)compare::RanksReport(results, {"target", "golden", {}}, {.width = 80, .whole = true});
  return 0;
}
