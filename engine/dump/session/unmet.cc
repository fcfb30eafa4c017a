#include "engine/dump/session/unmet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/base/status.h"

namespace msprobe::dump {
namespace {

constexpr size_t kShown = 5;  // numbers or names in a line

// "5", "5, 6", "2, 3, 4, 5, 6 and 14 more".
template <typename Item>
std::string Listed(const std::vector<Item>& items) {
  const std::vector<Item> shown(
      items.begin(), items.begin() + static_cast<int64_t>(std::min(kShown, items.size())));
  return fmt::format(
      "{}{}", fmt::join(shown, ", "),
      items.size() > kShown ? fmt::format(" and {} more", items.size() - kShown) : "");
}

std::string Quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(Excerpt(text));
  return Listed(quoted);
}

class Unmet {
 public:
  Unmet(const Config& config, const Filter& filter, const RunExtent& extent)
      : config_(config), filter_(filter), extent_(extent) {
    // Task free_benchmark judges calls, and writes no entries.
    if (!extent.recorded && config.task != Task::kFreeBenchmark)
      nothing_ = ": nothing was recorded";
  }

  std::vector<std::string> Lines() {
    if (extent_.last_step < 0) return {};
    OfRanks();
    if (!filter_.WantsRank(extent_.rank.value_or(-1))) return lines_;
    OfSteps();
    if (extent_.collected) OfNames();
    OfTensors();
    if (lines_.empty() && extent_.collected && !nothing_.empty()) OfNothing();
    return lines_;
  }

 private:
  void OfRanks() {
    if (extent_.rank != 0 || extent_.ranks == 0) return;
    const auto beyond =
        std::lower_bound(config_.rank.begin(), config_.rank.end(), int64_t{extent_.ranks});
    const std::vector<int64_t> ranks(beyond, config_.rank.end());
    if (ranks.empty()) return;
    lines_.push_back(fmt::format("rank{} {} {} asked for, the run has ranks 0 to {}{}",
                                 ranks.size() == 1 ? "" : "s", Listed(ranks),
                                 ranks.size() == 1 ? "was" : "were", extent_.ranks - 1,
                                 beyond == config_.rank.begin() ? ": nothing was recorded" : ""));
  }

  void OfSteps() {
    const std::vector<int64_t> later = filter_.StepsAfter(extent_.last_step);
    if (!later.empty()) {
      lines_.push_back(fmt::format(
          "step{} {} {} asked for, the run ended at step {}{}", later.size() == 1 ? "" : "s",
          Listed(later), later.size() == 1 ? "was" : "were", extent_.last_step, nothing_));
    }
    // While `dump_enable` is false a step is not recorded, as asked.
    if (!extent_.recorded || config_.dump_enable) return;
    std::vector<int64_t> empty;
    for (const int64_t step : filter_.StepsUpTo(extent_.last_step)) {
      if (extent_.steps.count(step) == 0) empty.push_back(step);
    }
    if (empty.empty()) return;
    lines_.push_back(fmt::format(
        "step{} {} {} asked for, and nothing was recorded in {}", empty.size() == 1 ? "" : "s",
        Listed(empty), empty.size() == 1 ? "was" : "were", empty.size() == 1 ? "it" : "them"));
  }

  void OfNames() {
    const Filter::Met& met = filter_.met();
    if (met.calls == 0) return;
    if (!config_.scope.empty() && !met.began) {
      lines_.push_back(
          fmt::format("\"scope\" begins at {}, and none of the {} calls has this name{}",
                      Excerpt(config_.scope[0]), met.calls, nothing_));
      return;
    }
    if (!config_.scope.empty() && !met.ended) {
      lines_.push_back(
          fmt::format("\"scope\" ends at {}, and no call after its beginning has this "
                      "name: it went on to the end of the step",
                      Excerpt(config_.scope[1])));
    }
    if (const std::vector<std::string> missing = filter_.list().Missing(); !missing.empty())
      lines_.push_back(fmt::format("\"list\": no name of the {} calls contains {}{}", met.in_scope,
                                   Quoted(missing), nothing_));
  }

  void OfTensors() {
    const std::vector<std::string> missing = filter_.tensor_list().Missing();
    if (!extent_.recorded || missing.empty()) return;
    lines_.push_back(
        fmt::format("\"tensor_list\": no name of the recorded calls contains {}", Quoted(missing)));
  }

  void OfNothing() {
    // These tasks record what they find, and say themselves that they found nothing.
    if (config_.task == Task::kOverflowCheck || !config_.bench_path.empty()) return;
    lines_.push_back(
        "nothing was recorded: between start() and stop() no call ran that the configuration "
        "selects");
  }

  const Config& config_;
  const Filter& filter_;
  const RunExtent& extent_;
  std::string nothing_;  // "" or ": nothing was recorded"
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> UnmetRequests(const Config& config, const Filter& filter,
                                       const RunExtent& extent) {
  return Unmet(config, filter, extent).Lines();
}

}  // namespace msprobe::dump
