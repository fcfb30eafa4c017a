#include "engine/gradients/compare_gradients.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "engine/base/file.h"
#include "engine/gradients/compare_ranks.h"
#include "engine/gradients/recorded_step.h"

namespace msprobe::gradients {
namespace {

// A rank that both sides have.
struct PairedRank {
  int64_t rank = -1;
  RankFolders folders;
  std::vector<int64_t> steps;
};

// "1, 2, 5 and 12 more"
Message NumbersText(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(kMost, numbers.size());
  const std::string text = fmt::format(
      "{}", fmt::join(numbers.begin(), numbers.begin() + static_cast<long>(shown), ", "));
  return numbers.size() > shown ? "{} and {} more"_t(text, numbers.size() - shown) : text;
}

// "ranks 1, 2 only in the target; not compared".
struct OnlyInOne {
  Message::Format<2> one, many;
  Message label;  // in front
};

// The numbers of both lists; a note about each number that only one has.
std::vector<int64_t> Common(const std::vector<int64_t>& target, const std::vector<int64_t>& golden,
                            const OnlyInOne& what, std::vector<Message>* notes) {
  std::vector<int64_t> both, only[2];
  std::set_intersection(target.begin(), target.end(), golden.begin(), golden.end(),
                        std::back_inserter(both));
  std::set_difference(target.begin(), target.end(), golden.begin(), golden.end(),
                      std::back_inserter(only[0]));
  std::set_difference(golden.begin(), golden.end(), target.begin(), target.end(),
                      std::back_inserter(only[1]));
  for (const size_t side : {0, 1}) {
    if (only[side].empty() || both.empty()) continue;
    notes->push_back(Message::Joined(
        {what.label, (only[side].size() == 1 ? what.one : what.many)(
                         NumbersText(only[side]), side == 0 ? "target"_t : "golden"_t)},
        ": "));
  }
  return both;
}

Result<std::vector<int64_t>> RanksOf(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(std::vector<int64_t> ranks, NumbersOf(folder, "rank"));
  std::erase_if(ranks, [&](int64_t rank) {
    return !IsDirectory(JoinPath(folder, fmt::format("rank{}", rank)));
  });
  return ranks;
}

Status CheckFolder(const std::string& path) {
  if (IsDirectory(path)) return Status::Ok();
  return NotFound(path).Expected("the dump_path of a run with task grad_probe"_t);
}

// Whether the folder has tables but no directions: level L0.
bool HasOnlyTables(const std::string& rank_folder) {
  const Result<std::vector<int64_t>> tables = NumbersOf(rank_folder, "grad_summary_", ".csv");
  return tables.ok() && !tables->empty();
}

Status NoCommonStep(const std::string& target, const std::string& golden,
                    const std::vector<int64_t>& of_target, const std::vector<int64_t>& of_golden) {
  for (const auto& [folder, steps] : {std::pair(target, of_target), std::pair(golden, of_golden)}) {
    if (!steps.empty()) continue;
    return InvalidDump(folder)
        .Expected("directions of gradients, in grad_directions_<step>.npz or step<N>/*.npy"_t)
        .Found(HasOnlyTables(folder) ? "tables only"_t : "none"_t)
        .Hint("record both runs with task grad_probe and grad_level \"L1\" or \"L2\""_t);
  }
  return InvalidDump(target)
      .Expected("a step that {} has, too: {}"_t(golden, NumbersText(of_golden)))
      .Found("steps {}"_t(NumbersText(of_target)));
}

Result<std::vector<PairedRank>> PairRanks(const std::string& target, const std::string& golden,
                                          std::vector<Message>* notes) {
  MSPROBE_RETURN_IF_ERROR(CheckFolder(target));
  MSPROBE_RETURN_IF_ERROR(CheckFolder(golden));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> of_target, RanksOf(target));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> of_golden, RanksOf(golden));
  std::vector<PairedRank> pairs;
  const OnlyInOne of_ranks = {
      "rank {} only in the {}; not compared"_t, "ranks {} only in the {}; not compared"_t, {}};
  for (const int64_t rank : Common(of_target, of_golden, of_ranks, notes)) {
    const std::string name = fmt::format("rank{}", rank);
    pairs.push_back(
        {rank, {JoinPath(target, name), JoinPath(golden, name), "rank {}"_t(rank)}, {}});
  }
  if (of_target.empty() && of_golden.empty()) {
    pairs.push_back({-1, {target, golden, {}}, {}});
  } else if (pairs.empty()) {
    return InvalidDump(target)
        .Expected("a rank that {} has, too: {}"_t(
            golden, of_golden.empty() ? "none"_t : NumbersText(of_golden)))
        .Found(of_target.empty() ? "no folder of a rank"_t : "ranks {}"_t(NumbersText(of_target)));
  }
  Status none;
  for (PairedRank& pair : pairs) {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> a, StepsOf(pair.folders.target));
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> b, StepsOf(pair.folders.golden));
    const OnlyInOne of_steps = {"step {} only in the {}; not compared"_t,
                                "steps {} only in the {}; not compared"_t, pair.folders.label};
    pair.steps = Common(a, b, of_steps, notes);
    if (!pair.steps.empty()) continue;
    Status error = NoCommonStep(pair.folders.target, pair.folders.golden, a, b);
    notes->push_back(error.AsMessage());
    if (none.ok()) none = std::move(error);
  }
  std::erase_if(pairs, [](const PairedRank& pair) { return pair.steps.empty(); });
  if (pairs.empty()) return none;
  return pairs;
}

// Adds up the tables of ranks.
class Sum {
 public:
  explicit Sum(const std::vector<PairedRank>& pairs) : table_(Steps(pairs)) {}

  void Add(const SimilarityTable& of_rank) {
    const std::vector<int64_t>& steps = table_.steps();
    for (size_t r = 0; r < of_rank.parameters().size(); ++r) {
      const size_t row = table_.Row(of_rank.parameters()[r]);
      ranks_.resize(table_.parameters().size() * steps.size());
      for (size_t s = 0; s < of_rank.steps().size(); ++s) {
        const Similarity& cell = of_rank.At(r, s);
        if (!cell.known()) continue;
        const size_t step = static_cast<size_t>(
            std::lower_bound(steps.begin(), steps.end(), of_rank.steps()[s]) - steps.begin());
        Similarity& sum = table_.At(row, step);
        sum.count = std::max<int64_t>(sum.count, 0) + cell.count;
        sum.same += cell.same;
        sum.changed_parts += cell.changed_parts;
        sum.target_norm = std::hypot(sum.target_norm, cell.target_norm);
        sum.golden_norm = std::hypot(sum.golden_norm, cell.golden_norm);
        ++ranks_[row * steps.size() + step];
      }
    }
  }

  // Without the cells to which a rank of the parameter did not contribute.
  SimilarityTable Finish(std::vector<Message>* notes) {
    const size_t steps = table_.steps().size();
    size_t dropped = 0;
    for (size_t row = 0; row < table_.parameters().size(); ++row) {
      const auto begin = ranks_.begin() + static_cast<long>(row * steps);
      const uint32_t all = *std::max_element(begin, begin + static_cast<long>(steps));
      for (size_t step = 0; step < steps; ++step) {
        if (begin[static_cast<long>(step)] == all || !table_.At(row, step).known()) continue;
        table_.At(row, step) = {};
        ++dropped;
      }
    }
    if (dropped > 0) {
      notes->push_back(
          dropped == 1
              ? "1 cell of the table of all ranks is empty: a rank of the parameter lacks the "
                "step"_t
              : "{} cells of the table of all ranks are empty: a rank of the parameter lacks the "
                "step"_t(dropped));
    }
    return std::move(table_);
  }

 private:
  static std::vector<int64_t> Steps(const std::vector<PairedRank>& pairs) {
    std::vector<int64_t> steps;
    for (const PairedRank& pair : pairs)
      steps.insert(steps.end(), pair.steps.begin(), pair.steps.end());
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    return steps;
  }

  SimilarityTable table_;
  std::vector<uint32_t> ranks_;  // for each cell, how many contributed
};

std::optional<GradientNorms> NormsOf(const RankFolders& folders, const GradientFall& fall) {
  const Result<RecordedStep> target = RecordedStep::Open(folders.target, fall.step);
  const Result<RecordedStep> golden = RecordedStep::Open(folders.golden, fall.step);
  if (!target.ok() || !golden.ok()) return std::nullopt;
  const GradientRow* a = target->Find(fall.parameter);
  const GradientRow* b = a == nullptr ? nullptr : golden->FindPartner(*a, *target);
  if (b == nullptr) return std::nullopt;
  return GradientNorms{a->norm, b->norm};
}

void Append(std::vector<Message>* to, std::vector<Message> more) {
  std::move(more.begin(), more.end(), std::back_inserter(*to));
}

constexpr FallRule kAnyDifference{
    .lowest_first = 1, .largest_drop = 0, .rounding = 0, .joined = -1};

// "fc.bias", "fc.bias and 3 more".
Message FirstOf(const std::vector<std::string>& names) {
  return names.size() > 1 ? "{} and {} more"_t(names[0], names.size() - 1) : names[0];
}

// A sentence on the gradients whose directions are not judged; empty: there are none.
Message RoundingNote(const SimilarityTable& table, const FallRule& rule, const Message& label) {
  const std::vector<std::string> names = OnlyRounding(table, rule);
  if (names.empty()) return {};
  return Message::Joined({label,
                          "gradients as small as the rounding of the terms that they sum up, as "
                          "where mathematics makes "
                          "them zero: {}; their directions are not judged"_t(FirstOf(names))},
                         ": ");
}

// A sentence on those of which nothing is known; empty: there are none.
Message UnknownNote(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  return "unknown: the directions of {} differ, and rounding may explain it: their gradients are "
         "as "
         "small as the rounding of others, as where mathematics makes them zero (all in front of a "
         "norm whose result is averaged), or the backward pass computed in bfloat16 or float16, "
         "which turns small elements of every gradient. Next: record both runs at level L1 and "
         "type "
         "msprobe compare, which knows the terms of each sum"_t(FirstOf(names));
}

// Replaces `first`, which `rank_of_first` has, by what another rank has in an earlier step.
bool TakeEarlier(const std::optional<GradientFall>& other, size_t rank,
                 std::optional<GradientFall>* first, size_t* rank_of_first) {
  if (!other || (*first && (*first)->step <= other->step)) return false;
  *first = other;
  *rank_of_first = rank;
  return true;
}

}  // namespace

GradientVerdict VerdictOf(const GradientComparison& comparison) {
  if (comparison.fall) return GradientVerdict::kFalls;
  if (!comparison.errors.empty()) return GradientVerdict::kUnreadable;
  if (!comparison.may_be_rounding.empty()) return GradientVerdict::kMayBeRounding;
  return comparison.first_difference ? GradientVerdict::kSimilar : GradientVerdict::kSame;
}

Result<GradientComparison> CompareGradients(const std::string& target, const std::string& golden,
                                            const std::string& output,
                                            const GradientOptions& options) {
  GradientComparison result;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<PairedRank> pairs,
                           PairRanks(target, golden, &result.notes));
  size_t all = 0, done = 0;
  for (const PairedRank& pair : pairs) all += pair.steps.size();
  Sum sum(pairs);
  for (const PairedRank& pair : pairs) {
    SimilarityTable table(pair.steps);
    RankFindings found = CompareRank(pair.folders, &table, [&] {
      ++done;
      if (options.on_progress) options.on_progress(done, all);
    });
    Append(&result.notes, std::move(found.notes));
    Append(&result.errors, std::move(found.errors));
    const std::string folder =
        pair.rank < 0 ? output : JoinPath(output, fmt::format("rank{}", pair.rank));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
    result.files.push_back(JoinPath(folder, "similarities.csv"));
    MSPROBE_RETURN_IF_ERROR(table.Write(result.files.back()));
    RankSimilarity rank{.rank = pair.rank, .steps = pair.steps};
    for (size_t s = 0; s < pair.steps.size(); ++s) rank.summary.push_back(table.Summary(s));
    rank.parameters = table.parameters().size();
    rank.fall = FirstFall(table, options.rule);
    TakeEarlier(FirstFall(table, kAnyDifference), result.ranks.size(), &result.first_difference,
                &result.difference_rank);
    if (TakeEarlier(rank.fall, result.ranks.size(), &result.fall, &result.fall_rank))
      result.fall_norms = NormsOf(pair.folders, *rank.fall);
    result.ranks.push_back(std::move(rank));
    if (Message note = RoundingNote(table, options.rule, pair.folders.label); !note.empty())
      result.notes.push_back(std::move(note));
    for (std::string& name : MayBeRounding(table, options.rule)) {
      std::vector<std::string>& known = result.may_be_rounding;
      if (std::find(known.begin(), known.end(), name) == known.end())
        known.push_back(std::move(name));
    }
    sum.Add(table);
  }
  if (Message note = UnknownNote(result.may_be_rounding); !note.empty())
    result.notes.push_back(std::move(note));
  result.all = sum.Finish(&result.notes);
  if (pairs.size() > 1) {
    result.files.push_back(JoinPath(output, "similarities.csv"));
    MSPROBE_RETURN_IF_ERROR(result.all.Write(result.files.back()));
  }
  return result;
}

}  // namespace msprobe::gradients
