#include "engine/gradients/written_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/gradients/recorded_step.h"

namespace msprobe::gradients {
namespace {

constexpr std::string_view kTable = "similarities.csv";

struct RankTable {
  int64_t rank = -1;
  std::string path;
};

// The tables of ranks in a folder; of a folder without ranks its own table.
std::vector<RankTable> TablesIn(const std::string& path) {
  if (!IsDirectory(path)) return {{-1, path}};
  std::vector<RankTable> tables;
  if (const Result<std::vector<int64_t>> ranks = NumbersOf(path, "rank"); ranks.ok()) {
    for (const int64_t rank : *ranks) {
      std::string table = JoinPath(JoinPath(path, fmt::format("rank{}", rank)), kTable);
      if (Exists(table)) tables.push_back({rank, std::move(table)});
    }
  }
  if (tables.empty() && Exists(JoinPath(path, kTable)))
    tables.push_back({-1, JoinPath(path, kTable)});
  return tables;
}

// Of each parameter and step the lowest share of any rank.
SimilarityTable LowestOf(const std::vector<SimilarityTable>& tables) {
  std::vector<int64_t> steps;
  for (const SimilarityTable& table : tables)
    steps.insert(steps.end(), table.steps().begin(), table.steps().end());
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  SimilarityTable lowest(steps);
  for (const SimilarityTable& table : tables) {
    for (size_t row = 0; row < table.parameters().size(); ++row) {
      const size_t into = lowest.Row(table.parameters()[row]);
      for (size_t s = 0; s < table.steps().size(); ++s) {
        const auto step = std::lower_bound(steps.begin(), steps.end(), table.steps()[s]);
        Similarity& cell = lowest.At(into, static_cast<size_t>(step - steps.begin()));
        const Similarity& other = table.At(row, s);
        if (other.known() && (!cell.known() || other.share() < cell.share())) cell = other;
      }
    }
  }
  return lowest;
}

constexpr FallRule kAnyWrittenDifference{.lowest_first = 1, .largest_drop = 0};

bool IsEarlier(const std::optional<GradientFall>& fall, const std::optional<GradientFall>& first) {
  return fall && (!first || fall->step < first->step);
}

}  // namespace

bool IsWrittenComparison(const std::string& path) {
  if (IsDirectory(path)) return !TablesIn(path).empty();
  const Result<MappedFile> file = MappedFile::Open(path);
  return file.ok() &&
         (file->bytes().starts_with("step,") || file->bytes().starts_with("\"step\","));
}

Result<GradientComparison> ReadWrittenComparison(const std::string& path, const FallRule& rule) {
  GradientComparison result;
  std::vector<SimilarityTable> tables;
  Status first_error;
  for (const RankTable& of_rank : TablesIn(path)) {
    RankSimilarity rank{.rank = of_rank.rank};
    Result<SimilarityTable> table = SimilarityTable::Read(of_rank.path, &rank.summary);
    if (!table.ok()) {
      result.errors.push_back(table.status().AsMessage());
      if (first_error.ok()) first_error = table.status();
      continue;
    }
    rank.steps = table->steps();
    rank.parameters = table->parameters().size();
    rank.fall = FirstFall(*table, rule);
    if (IsEarlier(rank.fall, result.fall))
      result.fall = rank.fall, result.fall_rank = result.ranks.size();
    const std::optional<GradientFall> difference = FirstFall(*table, kAnyWrittenDifference);
    if (IsEarlier(difference, result.first_difference))
      result.first_difference = difference, result.difference_rank = result.ranks.size();
    result.ranks.push_back(std::move(rank));
    tables.push_back(std::move(*table));
  }
  if (tables.empty()) {
    if (!first_error.ok()) return first_error;
    return NotFound(path).Expected("similarities.csv, or folders rank0, rank1, ... with it"_t);
  }
  const std::string of_all = JoinPath(path, kTable);
  if (tables.size() == 1) {
    result.all = std::move(tables[0]);
    return result;
  }
  if (Exists(of_all)) {
    std::vector<Similarity> summary;
    Result<SimilarityTable> all = SimilarityTable::Read(of_all, &summary);
    if (all.ok()) {
      result.all = std::move(*all);
      return result;
    }
    result.errors.push_back(all.status().AsMessage());
  }
  result.notes.push_back(
      "there is no table of all ranks: of each parameter the lowest similarity "
      "of any rank is shown"_t);
  result.all = LowestOf(tables);
  return result;
}

}  // namespace msprobe::gradients
