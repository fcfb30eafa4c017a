#include "cli/compare_copies.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/command_line/run_verb.h"

namespace msprobe::cli {
namespace {

// What a part refuses, or merge_result says itself. A file that has them is damaged or hostile.
constexpr std::string_view kNotOfParts[] = {
    "--format",      "--exit-code",      "--junit",  "--markdown", "--html",
    "--perfetto",    "--model-explorer", "--vis-db", "--part",     "--ray",
    "--output_path", "--explain",        "--why"};

Status CheckWords(const compare::ComparedPart& all) {
  for (const std::string& word : all.words) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const bool is_flag = name.starts_with("--");
    if (!is_flag || std::ranges::find(kNotOfParts, name) != std::end(kNotOfParts)) {
      return InvalidArgument("a part has the flag {}, which parts do not have"_t(Excerpt(word)))
          .Hint("compare all parts once more"_t);
    }
  }
  for (const compare::KnownFile& file : all.named) {
    MSPROBE_ASSIGN_OR_RETURN(const compare::KnownFile now, compare::KnowFile(file.name));
    if (now.bytes == file.bytes && now.crc == file.crc) continue;
    return InvalidArgument()
        .At(file.name)
        .Expected("the file that the parts were compared with"_t)
        .Found("another content"_t)
        .Hint("compare all parts once more"_t);
  }
  return Status::Ok();
}

std::vector<DumpPair::RankPath> RanksOf(const std::vector<compare::PairOfCopies::Rank>& ranks) {
  std::vector<DumpPair::RankPath> paths;
  for (const compare::PairOfCopies::Rank& rank : ranks) paths.push_back({rank.rank, rank.path});
  return paths;
}

std::vector<std::string> WordsOf(const PartsToMerge& parts, const compare::ComparedPart& all) {
  std::vector<std::string> words = {all.target, all.golden};
  words.insert(words.end(), all.words.begin(), all.words.end());
  words.push_back("--output_path=" + parts.output);
  if (parts.format == StdoutFormat::kJson) words.emplace_back("--format=json");
  if (parts.exit_code) words.emplace_back("--exit-code");
  if (!parts.reports.junit.empty()) words.push_back("--junit=" + parts.reports.junit);
  if (!parts.reports.markdown.empty()) words.push_back("--markdown=" + parts.reports.markdown);
  return words;
}

}  // namespace

Result<int> CompareCopies(const PartsToMerge& parts, compare::ComparedPart all, Console& out) {
  MSPROBE_RETURN_IF_ERROR(CheckWords(all));
  CopiedRanks copied{.paired = {.pairs = {}, .left_out = std::move(all.left_out)},
                     .copies = std::move(all.copies),
                     .folder = parts.input};
  for (const compare::PairOfCopies& pair : all.joined) {
    copied.paired.pairs.push_back({.target = pair.target,
                                   .golden = pair.golden,
                                   .rank = pair.rank,
                                   .step = pair.step,
                                   .target_ranks = RanksOf(pair.target_ranks),
                                   .golden_ranks = RanksOf(pair.golden_ranks)});
  }
  const std::unique_ptr<Verb> verb = MakeCompareVerb(&copied);
  return RunVerb(*verb, WordsOf(parts, all), "msprobe compare", out);
}

}  // namespace msprobe::cli
