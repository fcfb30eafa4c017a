#include "cli/inputs/rank_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/dump/config/config_values.h"

namespace msprobe::cli {
namespace {

Result<std::optional<std::vector<int64_t>>> Numbers(std::string_view flag,
                                                    const std::string& text) {
  if (text.empty()) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> numbers;
  for (const std::string_view part : Split(text, ',')) {
    if (!dump::AppendNumberRange(part, &numbers)) {
      return InvalidArgument("{} {}"_t(flag, Excerpt(text)))
          .Expected("numbers and ranges such as 0,2-5"_t)
          .Found(Excerpt(part));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return std::optional(std::move(numbers));
}

}  // namespace

void RankFlags::Add(Flags& flags) {
  flags.Text("--rank", &ranks, "compare only these ranks: 0,2-5"_t).TypeName("NUMBERS").Common();
  flags.Text("--step", &steps, "compare only these steps: 0,10-19"_t).TypeName("NUMBERS").Common();
  flags.Switch("--common", &common,
               "compare the ranks and steps that both sides have, and leave out the others"_t);
  flags.Switch("--rank-order", &by_order,
               "pair ranks by order if the sides have no rank number in common (process ids)"_t);
}

Result<PairOptions> RankFlags::Options() const {
  PairOptions options{.by_order = by_order, .common = common};
  MSPROBE_ASSIGN_OR_RETURN(options.ranks, Numbers("--rank", ranks));
  MSPROBE_ASSIGN_OR_RETURN(options.steps, Numbers("--step", steps));
  return options;
}

}  // namespace msprobe::cli
