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
Message Listed(const std::vector<Item>& items) {
  const std::vector<Item> shown(
      items.begin(), items.begin() + static_cast<int64_t>(std::min(kShown, items.size())));
  const std::string names = fmt::format("{}", fmt::join(shown, ", "));
  return items.size() > kShown ? "{} and {} more"_t(names, items.size() - kShown) : names;
}

Message Quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(Excerpt(text));
  return Listed(quoted);
}

class Unmet {
 public:
  Unmet(const Config& config, const Filter& filter, const RunExtent& extent)
      : config_(config), filter_(filter), extent_(extent) {
    // Task free_benchmark judges calls, and writes no entries.
    nothing_ = !extent.recorded && config.task != Task::kFreeBenchmark;
  }

  std::vector<Message> Lines() {
    if (extent_.last_step < 0) return {};
    OfRanks();
    if (!filter_.WantsRank(extent_.rank.value_or(-1))) return lines_;
    OfSteps();
    if (extent_.collected) OfNames();
    OfTensors();
    if (lines_.empty() && extent_.collected && nothing_) OfNothing();
    return lines_;
  }

 private:
  void Add(Message line, bool nothing) {
    const Message end = nothing ? "nothing was recorded"_t : Message();
    lines_.push_back(Message::Joined({std::move(line), end}, ": "));
  }

  void OfRanks() {
    if (extent_.rank != 0 || extent_.ranks == 0) return;
    const auto beyond =
        std::lower_bound(config_.rank.begin(), config_.rank.end(), int64_t{extent_.ranks});
    const std::vector<int64_t> ranks(beyond, config_.rank.end());
    if (ranks.empty()) return;
    const int last = extent_.ranks - 1;
    Add(ranks.size() == 1
            ? "rank {} was asked for, the run has ranks 0 to {}"_t(ranks[0], last)
            : "ranks {} were asked for, the run has ranks 0 to {}"_t(Listed(ranks), last),
        beyond == config_.rank.begin());
  }

  void OfSteps() {
    const std::vector<int64_t> later = filter_.StepsAfter(extent_.last_step);
    if (!later.empty()) {
      const int64_t last = extent_.last_step;
      Add(later.size() == 1
              ? "step {} was asked for, the run ended at step {}"_t(later[0], last)
              : "steps {} were asked for, the run ended at step {}"_t(Listed(later), last),
          nothing_);
    }
    // While `dump_enable` is false a step is not recorded, as asked.
    if (!extent_.recorded || config_.dump_enable) return;
    std::vector<int64_t> empty;
    for (const int64_t step : filter_.StepsUpTo(extent_.last_step)) {
      if (extent_.steps.count(step) == 0) empty.push_back(step);
    }
    if (empty.empty()) return;
    lines_.push_back(
        empty.size() == 1
            ? "step {} was asked for, and nothing was recorded in it"_t(empty[0])
            : "steps {} were asked for, and nothing was recorded in them"_t(Listed(empty)));
  }

  void OfNames() {
    const Filter::Met& met = filter_.met();
    if (met.calls == 0) return;
    if (!config_.scope.empty() && !met.began) {
      Add("\"scope\" begins at {}, and none of the {} calls has this name"_t(
              Excerpt(config_.scope[0]), met.calls),
          nothing_);
      return;
    }
    if (!config_.scope.empty() && !met.ended) {
      lines_.push_back(
          "\"scope\" ends at {}, and no call after its beginning has this name: it went on to the "
          "end of the step"_t(Excerpt(config_.scope[1])));
    }
    if (const std::vector<std::string> missing = filter_.list().Missing(); !missing.empty())
      Add("\"list\": no name of the {} calls contains {}"_t(met.in_scope, Quoted(missing)),
          nothing_);
  }

  void OfTensors() {
    const std::vector<std::string> missing = filter_.tensor_list().Missing();
    if (!extent_.recorded || missing.empty()) return;
    lines_.push_back(
        "\"tensor_list\": no name of the recorded calls contains {}"_t(Quoted(missing)));
  }

  void OfNothing() {
    // These tasks record what they find, and say themselves that they found nothing.
    if (config_.task == Task::kOverflowCheck || !config_.bench_path.empty()) return;
    lines_.push_back(
        "nothing was recorded: between start() and stop() no call ran that the configuration "
        "selects"_t);
  }

  const Config& config_;
  const Filter& filter_;
  const RunExtent& extent_;
  bool nothing_ = false;  // was recorded
  std::vector<Message> lines_;
};

}  // namespace

std::vector<Message> UnmetRequests(const Config& config, const Filter& filter,
                                   const RunExtent& extent) {
  return Unmet(config, filter, extent).Lines();
}

}  // namespace msprobe::dump
