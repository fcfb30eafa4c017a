#include "cli/outputs/merge_parts.h"

#include <utility>

namespace msprobe::cli {

Result<int> MergeParts(const PartsToMerge& parts, compare::ComparedPart all, Console& out) {
  PairedDumps paired{.left_out = std::move(all.left_out)};
  bool analyses = false;
  for (const compare::ComparedPair& pair : all.compared) {
    paired.pairs.push_back(
        {.target = pair.target, .golden = pair.golden, .rank = pair.rank, .step = pair.step});
    analyses |= !pair.analysis.empty();
  }
  if (paired.pairs.empty()) return NotFound(parts.input).Expected("a part with ranks"_t);
  CompareOutput output({.target = all.target,
                        .golden = all.golden,
                        .folder = parts.output,
                        .format = parts.format,
                        .diff_analyze = analyses,
                        .merges = true,
                        .reports = parts.reports},
                       paired, out);
  for (size_t i = 0; i < all.compared.size(); ++i) output.Add(i, std::move(all.compared[i]));
  MSPROBE_RETURN_IF_ERROR(output.Finish());
  return output.ExitCode(parts.exit_code);
}

}  // namespace msprobe::cli
