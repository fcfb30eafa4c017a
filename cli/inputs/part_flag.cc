#include "cli/inputs/part_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cli/command_line/verb.h"
#include "engine/base/file.h"

namespace msprobe::cli {
namespace {

// What belongs to one part, to the report on all of them, or to none.
constexpr std::string_view kNotOfAll[] = {
    "--target_path", "--golden_path", "--output_path", "--part",     "--ray",
    "--lang",        "--format",      "--exit-code",   "--markdown", "--junit"};

bool ReadNumber(std::string_view text, int64_t* number) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

std::vector<DumpToCopy> DumpsOf(const DumpPair& pair) {
  std::vector<DumpToCopy> dumps;
  const auto add = [&](std::string_view side, int rank, const std::string& path) {
    std::string place(side);
    if (pair.step >= 0) place += fmt::format("_step{}", pair.step);
    if (rank >= 0) place += fmt::format("_rank{}", rank);
    dumps.push_back({rank, path, std::move(place)});
  };
  const auto add_side = [&](std::string_view side, const std::string& path,
                            const std::vector<DumpPair::RankPath>& ranks) {
    if (ranks.empty()) add(side, pair.rank, path);
    for (const DumpPair::RankPath& rank : ranks) add(side, rank.rank, rank.path);
  };
  add_side("target", pair.target, pair.target_ranks);
  add_side("golden", pair.golden, pair.golden_ranks);
  return dumps;
}

compare::PairOfCopies PlaceOf(const DumpPair& pair) {
  compare::PairOfCopies place{
      .step = pair.step, .rank = pair.rank, .target = pair.target, .golden = pair.golden};
  for (const DumpPair::RankPath& rank : pair.target_ranks)
    place.target_ranks.push_back({rank.rank, rank.path});
  for (const DumpPair::RankPath& rank : pair.golden_ranks)
    place.golden_ranks.push_back({rank.rank, rank.path});
  return place;
}

}  // namespace

void PartFlag::Add(Flags& flags) {
  flags_ = &flags;
  flags
      .Text("--part", &text_,
            "compare only the I-th of N blocks of the ranks, and leave a file beside the tables; "
            "when all parts are there, merge_result reports on all ranks"_t)
      .TypeName("I/N");
}

Status PartFlag::Parse() {
  if (!given()) return Status::Ok();
  const size_t slash = text_.find('/');
  const std::string_view text = text_;
  if (slash != std::string::npos && ReadNumber(text.substr(0, slash), &index_) &&
      ReadNumber(text.substr(slash + 1), &count_) && index_ >= 1 && index_ <= count_ &&
      count_ <= compare::kMostParts)
    return Status::Ok();
  return InvalidArgument(std::string("--part"))
      .Expected("I/N with I from 1 to N, such as 3/8"_t)
      .Found(Excerpt(text_))
      .Hint("for i in $(seq 8); do msprobe compare TARGET GOLDEN --part $i/8; done"_t);
}

void PartFlag::ChooseLayouts(const std::string& target, const std::string& golden,
                             const std::string& folder, PairOptions* options) const {
  options->join = true;
  if (index_ == 1) return;
  options->join_asks = false;
  const compare::ComparedPart part{.count = count_, .target = target, .golden = golden};
  if (compare::JoinsInFirstPart(part, folder).value_or(false)) options->join_always = true;
}

compare::ComparedPart PartFlag::Take(const std::string& target, const std::string& golden,
                                     PairedDumps* paired) const {
  compare::ComparedPart part{.index = index_, .count = count_, .target = target, .golden = golden};
  part.left_out = paired->left_out;
  std::set<int> ranks;
  for (const DumpPair& pair : paired->pairs) {
    ranks.insert(pair.rank);
    compare::ComparedPair& place = part.pairs.emplace_back();
    place.step = pair.step, place.rank = pair.rank;
    place.target = pair.target, place.golden = pair.golden;
  }
  std::erase_if(paired->pairs, [&](const DumpPair& pair) {
    const auto place = static_cast<size_t>(std::distance(ranks.begin(), ranks.find(pair.rank)));
    return !compare::IsInPart(place, ranks.size(), index_, count_);
  });
  return part;
}

Result<compare::ComparedPart> PartFlag::Copy(const std::string& target, const std::string& golden,
                                             const PairedDumps& paired, const DumpFlags& dumps,
                                             const std::string& folder,
                                             MemoryBudget::Options memory, Console& out) const {
  compare::ComparedPart part{.index = index_, .count = count_, .target = target, .golden = golden};
  part.left_out = paired.left_out;
  MSPROBE_ASSIGN_OR_RETURN(FlagsOfParts flags, FlagsOfAllParts(*flags_));
  part.words = std::move(flags.words), part.named = std::move(flags.named);
  part.joined = PlacesOf(paired);
  const std::vector<DumpToCopy> all = DumpsToCopy(paired);
  std::set<int> ranks;
  for (const DumpToCopy& dump : all) ranks.insert(dump.rank);
  size_t done = 0;
  for (const DumpToCopy& dump : all) {
    out.ProgressOf("copying {}"_t(dump.path), done++, all.size());
    const auto place = static_cast<size_t>(std::distance(ranks.begin(), ranks.find(dump.rank)));
    if (!compare::IsInPart(place, ranks.size(), index_, count_)) continue;
    MemoryBudget budget(memory);
    Result<compare::RankCopy> copy =
        compare::CopyRank(dump.path, folder, dump.place, &budget, dumps.OptionsOfRank());
    if (copy.ok()) {
      part.copies.push_back(*std::move(copy));
    } else {
      part.copies.push_back({.path = dump.path, .failed = std::move(copy).status()});
    }
  }
  return part;
}

std::vector<DumpToCopy> DumpsToCopy(const PairedDumps& paired) {
  std::map<std::string, DumpToCopy> all;  // a dump may be on both sides
  for (const DumpPair& pair : paired.pairs) {
    for (DumpToCopy& dump : DumpsOf(pair)) all.try_emplace(dump.path, std::move(dump));
  }
  std::vector<DumpToCopy> dumps;
  for (auto& [path, dump] : all) dumps.push_back(std::move(dump));
  return dumps;
}

std::vector<compare::PairOfCopies> PlacesOf(const PairedDumps& paired) {
  std::vector<compare::PairOfCopies> places;
  for (const DumpPair& pair : paired.pairs) places.push_back(PlaceOf(pair));
  return places;
}

Result<FlagsOfParts> FlagsOfAllParts(const Flags& flags) {
  FlagsOfParts of;
  of.words = flags.Words(kNotOfAll);
  for (const std::string& word : of.words) {
    const std::string value = word.substr(std::min(word.find('='), word.size() - 1) + 1);
    if (!IsRegularFile(value)) continue;
    MSPROBE_ASSIGN_OR_RETURN(compare::KnownFile file, compare::KnowFile(value));
    of.named.push_back(std::move(file));
  }
  return of;
}

bool AreJoined(const PairedDumps& paired) {
  return std::ranges::any_of(paired.pairs, std::mem_fn(&DumpPair::is_joined));
}

Result<int> PartFlag::EndEmpty(const compare::ComparedPart& part, const std::string& folder,
                               Console& out) {
  MSPROBE_RETURN_IF_ERROR(compare::WritePart(part, folder));
  out.Tell("part {} of {} has no rank"_t(part.index, part.count));
  return kExitOk;
}

Result<int> PartFlag::EndCopies(const compare::ComparedPart& part, const std::string& folder,
                                Console& out) {
  MSPROBE_RETURN_IF_ERROR(compare::WritePart(part, folder));
  size_t copied = 0;
  for (const compare::RankCopy& copy : part.copies) {
    if (!copy.failed.ok()) out.Error(copy.failed);
    copied += copy.failed.ok();
  }
  out.Tell("part {} of {}: {} of {} dumps copied, whose ranks are joined to be compared"_t(
      part.index, part.count, copied, part.copies.size()));
  out.Tell("next, when all parts are there: msprobe merge_result -i {} -o {}"_t(folder, folder));
  return copied == part.copies.size() ? kExitOk : kExitError;
}

}  // namespace msprobe::cli
