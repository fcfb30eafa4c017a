// Reads any bytes as the dumps of the ranks of two runs, and as a declared layout. What can be read
// is joined: the ranks of the target with one process, and both sides with each other. The result
// is a comparison, or an error that says what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/compare/compare.h"
#include "engine/compare/layouts/declared_layout.h"
#include "engine/compare/layouts/join_both.h"
#include "engine/compare/layouts/other_layout.h"
#include "engine/compare/report/report_json.h"
#include "engine/dump/read/reader.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace {

namespace layouts = msprobe::compare::layouts;

void CheckJoined(const msprobe::Status& status) {
  if (!status.ok() && (status.code() == msprobe::ErrorCode::kInternal || status.message().empty()))
    std::abort();
}

// None: a dump cannot be read.
std::optional<layouts::RanksOfSide> ReadSide(const std::string& path, int ranks) {
  layouts::RanksOfSide side{.path = path, .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    auto dump = msprobe::dump::ReadDump(path + "/rank" + std::to_string(rank));
    CheckJoined(dump.status());
    if (!dump.ok()) return std::nullopt;
    side.ranks.push_back({rank, std::move(*dump)});
  }
  return side;
}

void CompareSides(msprobe::Dump target, msprobe::Dump golden) {
  msprobe::compare::CompareOptions options;
  options.exactness = msprobe::compare::Exactness::kTolerant;
  const auto result = msprobe::compare::Compare(std::move(target), std::move(golden), options);
  CheckJoined(result.status());
  if (result.ok() && msprobe::compare::JsonReport(*result).empty()) std::abort();
}

void JoinRuns(const std::string& path, const layouts::DeclaredLayout* declared) {
  auto target = ReadSide(path + "/target/step0", 2), golden = ReadSide(path + "/golden/step0", 2);
  if (!target || !golden) return;
  auto sides = layouts::JoinBoth(std::move(*target), std::move(*golden), declared);
  CheckJoined(sides.status());
  if (sides.ok()) CompareSides(std::move(sides->target), std::move(sides->golden));
  target = ReadSide(path + "/target/step0", 2);
  auto one = msprobe::dump::ReadDump(path + "/golden/step0/rank0");
  // The header of the rank may say that there are more.
  one->provenance.clear();
  one->folder.clear();
  auto run = layouts::JoinRanks(std::move(target->ranks), *one, path, {.declared = declared});
  CheckJoined(run.status());
  if (run.ok()) CompareSides(std::move(run->dump), std::move(*one));
}

}  // namespace

// 0x1e separates the layout, weights.json of all ranks, and the dumps of the two ranks of both
// sides.
FUZZ_TARGET(layouts) {
  static msprobe::MemoryFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&rest] {
    const size_t end = rest.find('\x1e');
    const std::string_view piece = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    return piece;
  };
  folder.Set("layout.yaml", next());
  const std::string_view weights = next();
  std::vector<std::string> dumps[2];
  for (const int side : {0, 1}) {
    for (const char* rank : {"rank0", "rank1"}) {
      const std::string of_rank = std::string(side == 0 ? "target" : "golden") + "/step0/" + rank;
      folder.Set(of_rank + "/weights.json", weights);
      folder.Set(of_rank + "/dump.json", next());
      dumps[side].push_back(folder.path() + "/" + of_rank);
    }
  }
  CheckJoined(layouts::AreOtherLayouts(dumps[0], dumps[1]).status());
  const auto declared = layouts::DeclaredLayout::Read(folder.path() + "/layout.yaml");
  if (!declared.ok() && declared.status().code() != msprobe::ErrorCode::kInvalidConfig)
    std::abort();
  JoinRuns(folder.path(), nullptr);
  if (declared.ok()) JoinRuns(folder.path(), &*declared);
  return 0;
}
