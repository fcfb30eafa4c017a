// Reads any bytes as what a node of a cluster sent (`compare --ray`): the dumps that it found, and
// the files of its answer, of a comparison and of a dump. No file is written outside their folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cluster/found_dumps.h"
#include "cli/cluster/node_answer.h"
#include "engine/compare/ranks/rank_copy.h"
#include "engine/formats/text/json.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

FUZZ_TARGET(node_answer) {
  using msprobe::cli::DumpPair;
  static msprobe::MemoryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto json = msprobe::formats::ParseJson(bytes, "node"); json.ok())
    (void)msprobe::cli::FoundDumpsOf(*json, "node");
  folder.Set("answer", bytes);
  const std::vector<DumpPair> pairs = {{.target = "a", .golden = "b", .rank = 0, .step = 0}};
  const auto compared =
      msprobe::cli::TakeAnswer(folder.path() + "/answer", pairs, folder.path() + "/out");
  if (!compared.ok() && compared.status().message().empty()) std::abort();
  const auto copy = msprobe::cli::TakeCopy(folder.path() + "/answer", "a/step0/rank0/dump.json",
                                           folder.path() + "/out", "place");
  if (!copy.ok() && copy.status().message().empty()) std::abort();
  if (copy.ok() && !msprobe::compare::StaysInFolder(*copy)) std::abort();
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename();
    if (name != "answer" && name != "out") std::abort();
  }
  return 0;
}
