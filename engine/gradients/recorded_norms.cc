#include "engine/gradients/recorded_norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "engine/base/file.h"
#include "engine/gradients/recorded_step.h"

namespace msprobe::gradients {
namespace {

constexpr size_t kMostErrorsOfNorms = 5;  // that are said one by one

std::string FolderOf(const Recording& recording, int64_t rank) {
  return rank < 0 ? recording.path : JoinPath(recording.path, fmt::format("rank{}", rank));
}

Result<std::vector<int64_t>> TablesOf(const std::string& rank_folder) {
  return NumbersOf(rank_folder, "grad_summary_", ".csv");
}

bool HasTables(const std::string& rank_folder) {
  if (!IsDirectory(rank_folder)) return false;
  const Result<std::vector<int64_t>> steps = TablesOf(rank_folder);
  return steps.ok() && !steps->empty();
}

std::vector<int64_t> RanksWithTables(const std::string& path) {
  Result<std::vector<int64_t>> ranks = NumbersOf(path, "rank");
  if (!ranks.ok()) return {};
  std::erase_if(*ranks, [&](int64_t rank) {
    return !HasTables(JoinPath(path, fmt::format("rank{}", rank)));
  });
  return *std::move(ranks);
}

}  // namespace

bool IsRecording(const std::string& path) {
  return IsDirectory(path) && (HasTables(path) || !RanksWithTables(path).empty());
}

Result<Recording> FindRecording(const std::string& path) {
  Recording found{.path = path, .ranks = RanksWithTables(path)};
  if (found.ranks.empty()) found.ranks = {-1};
  for (const int64_t rank : found.ranks) {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, TablesOf(FolderOf(found, rank)));
    found.steps.insert(found.steps.end(), steps.begin(), steps.end());
  }
  std::sort(found.steps.begin(), found.steps.end());
  found.steps.erase(std::unique(found.steps.begin(), found.steps.end()), found.steps.end());
  if (!found.steps.empty()) return found;
  return NotFound(path).Expected("the dump_path of a run with task grad_probe"_t);
}

NormFindings ReadNorms(const Recording& recording,
                       const std::function<void(const RecordedNorm&)>& sink) {
  NormFindings found;
  std::unordered_set<std::string> parameters;
  size_t errors = 0;
  for (size_t step = 0; step < recording.steps.size(); ++step) {
    bool earlier = found.first_not_finite.has_value();  // in a step before, or a rank below
    for (size_t rank = 0; rank < recording.ranks.size(); ++rank) {
      const int64_t number = recording.ranks[rank], in_step = recording.steps[step];
      const std::string folder = FolderOf(recording, number);
      if (!Exists(GradientTablePath(folder, in_step))) continue;
      const Result<std::vector<GradientRow>> rows = ReadGradientTable(folder, in_step);
      if (!rows.ok()) {
        if (++errors <= kMostErrorsOfNorms) found.errors.push_back(rows.status().AsMessage());
        continue;
      }
      for (const GradientRow& row : *rows) {
        parameters.insert(row.parameter);
        const bool finite = std::isfinite(row.norm) && !row.has_nan;
        sink({rank, step, row.parameter, row.norm, finite});
        if (!finite && !earlier) {
          found.not_finite_beside += found.first_not_finite.has_value();
          found.first_not_finite = {number, in_step, row.parameter, row.norm};
        }
        if (finite && (!found.largest || row.norm > found.largest->norm))
          found.largest = {number, in_step, row.parameter, row.norm};
      }
      earlier = found.first_not_finite.has_value();
    }
  }
  if (errors > kMostErrorsOfNorms)
    found.errors.push_back("{} more errors"_t(errors - kMostErrorsOfNorms));
  found.parameters = parameters.size();
  return found;
}

}  // namespace msprobe::gradients
