#include "engine/live/live_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/log.h"
#include "engine/compare/compare.h"
#include "engine/compare/relations/left_gradients.h"
#include "engine/compare/report/findings_screen.h"
#include "engine/dump/session/reference_dump.h"
#include "engine/live/other_program.h"
#include "engine/model/gradients_before.h"

namespace msprobe::live {
namespace {

template <typename Items>
void DropFrom(size_t leaf, Items* items) {
  std::erase_if(*items, [&](const auto& item) { return item.leaf >= leaf; });
}

// Leaves the first `count` records that CallCheck counts.
void Cut(size_t count, Dump* dump) {
  for (size_t i = 0; i < std::min(count, dump->records.size()); ++i)
    count += IsGradientsBefore(dump->records[i].name);
  if (count >= dump->records.size()) return;
  const size_t leaves = dump->records[count].first_leaf;
  dump->records.resize(count);
  dump->leaves.resize(leaves);
  DropFrom(leaves, &dump->unwritten);
  DropFrom(leaves, &dump->unreadable);
  DropFrom(leaves, &dump->strides);
  DropFrom(leaves, &dump->sketches);
  DropFrom(leaves, &dump->rests);
  // What follows was not looked at, so a call without partner proves nothing yet.
  dump->complete = false;
}

// Whether the first divergence is a call that has tensors of other shapes in the two runs.
bool IsOfOtherShape(const compare::Comparison& c) {
  const compare::RecordPair& pair = c.pairs[c.first.pair];
  const auto begin = c.measures.begin() + pair.first_row;
  return std::any_of(begin, begin + pair.row_count, [](const compare::Measure& m) {
    return m.reason == compare::Reason::kShapeDiffers;
  });
}

// The step of a path .../step3/rank0/dump.json; -1: it names none.
int64_t StepOf(const std::string& file) {
  const std::string folder = BaseName(DirectoryName(DirectoryName(file)));
  if (!folder.starts_with("step") || folder.size() > 11) return -1;
  int64_t step = 0;
  for (const char digit : folder.substr(4)) {
    if (digit < '0' || digit > '9') return -1;
    step = 10 * step + (digit - '0');
  }
  return folder.size() > 4 ? step : -1;
}

}  // namespace

void LiveComparison::GiveUp(Message why) {
  constexpr int64_t kTold = 3;  // steps; a long training must not fill the log
  check_.reset();
  if (++given_up_ > kTold) {
    if (given_up_ == kTold + 1)
      Log(LogLevel::kWarning,
          "more steps are not compared with the baseline; they are not listed"_t);
    return;
  }
  Log(LogLevel::kWarning,
      part_.rank ? "step {}, rank {} is not compared with the baseline: {}"_t(
                       part_.step, *part_.rank, std::move(why))
                 : "step {} is not compared with the baseline: {}"_t(part_.step, std::move(why)));
}

// Why the dump does not belong to the same step and number of ranks; "": it does.
Message LiveComparison::WhyNotOfThisPart(const dump::DumpLocation& location) const {
  if (const int64_t there = StepOf(location.path); there >= 0 && there != part_.step)
    return "{} is a dump of step {}"_t(location.path, there);
  if (!part_.rank || part_.world_size < 2) return {};
  if (location.rank < 0)
    return "{} was recorded by one process, this run has {}"_t(location.path, part_.world_size);
  const Result<std::vector<dump::DumpLocation>> dumps = dump::DumpsOfStep(path_, part_.step);
  if (!dumps.ok()) return dumps.status().AsMessage();
  std::set<int> ranks{location.rank};
  for (const dump::DumpLocation& dump : *dumps) {
    if (dump.step == location.step) ranks.insert(dump.rank);
  }
  // A recording may leave ranks out; 0 to 3 of 8 are taken for all of 4.
  const int last = *ranks.rbegin();
  const bool all = ranks.size() > 1 && *ranks.begin() == 0 && ranks.size() == last + size_t{1};
  if (last < part_.world_size && !(all && last + 1 < part_.world_size)) return {};
  if (all)
    return "{} was recorded by {} processes, this run has {}"_t(path_, last + 1, part_.world_size);
  return "{} was recorded by at least {} processes, this run has {}"_t(path_, last + 1,
                                                                       part_.world_size);
}

void LiveComparison::BeginStep(const Part& part, const std::string& own_file) {
  if (part.step == part_.step && own_file == own_file_) return;
  part_ = part;
  own_file_ = own_file;
  entries_ = 0;
  suspects_left_ = wants_look_ = waits_ = false;
  check_.reset();
  if (found_ || useless_) return;
  Result<std::optional<dump::DumpLocation>> location =
      dump::FindReference(path_, part.step, part.rank);
  if (!location.ok()) return GiveUp(location.status().AsMessage());
  if (!*location) return GiveUp(dump::WhyNoReference(path_, part.step));
  if (!(*location)->refused.ok()) return GiveUp((*location)->refused.AsMessage());
  file_ = (*location)->path;
  if (Message why = WhyNotOfThisPart(**location); !why.empty()) return GiveUp(std::move(why));
  Result<Dump> golden =
      dump::ReadDump(file_, nullptr, {.side_files = false, .parse_numbers = false});
  if (!golden.ok()) return GiveUp(golden.status().AsMessage());
  if (golden->records.empty()) return GiveUp("{} holds no call"_t(file_));
  if (!golden->complete) {
    Log(LogLevel::kWarning,
        "{} ends early: step {} is compared as far as it goes"_t(file_, part.step));
  }
  compare::DropGradientsBefore(&*golden);
  check_ = std::make_unique<CallCheck>(*std::move(golden));
}

bool LiveComparison::Look(const Entry& entry) {
  wants_look_ = false;
  ++entries_;
  // It tells why a later call differs, and nothing by itself.
  if (!on() || IsGradientsBefore(entry.name())) return false;
  if (check_->Look(entry, bits_decide_) != CallCheck::Answer::kSuspect) return false;
  suspects_left_ = true;
  // Among other calls, what looks wrong may be a rewrite whose results agree later: the whole step
  // tells. Otherwise looks at suspects 1, 2, 4, 8, ...: each reads the dumps once.
  const bool waits = waits_ || waits_always_ || check_->other_calls();
  wants_look_ = ++suspects_ >= next_look_ && !waits;
  return wants_look_;
}

bool LiveComparison::Settle() {
  if (!wants_look_ || !on()) return false;
  wants_look_ = false;
  return Compare(Extent::kSoFar) == News::kDiffers;
}

News LiveComparison::EndStep(bool is_over) {
  if (check_ == nullptr || entries_ == 0) return News::kNone;
  const bool other_calls = is_over && (check_->other_calls() || check_->has_more());
  const bool differs_here = found_ && answer_.step == part_.step;
  if (differs_here && (!is_over || told_)) return News::kNone;
  if (!differs_here && !suspects_left_ && !other_calls) return News::kNone;
  if (!is_over && (check_->other_calls() || waits_ || waits_always_)) return News::kNone;
  return Compare(is_over ? Extent::kWhole : Extent::kRecorded);
}

News LiveComparison::Compare(Extent extent) {
  Result<Dump> target = dump::ReadDump(own_file_), golden = dump::ReadDump(file_);
  if (!target.ok() || !golden.ok()) {
    GiveUp((target.ok() ? golden : target).status().AsMessage());
    return News::kNone;
  }
  if (extent != Extent::kWhole) {
    Cut(check_->reach(), &*golden);
    target->complete = false;
    // The run writes its own when the step ends; the functions are the same ones.
    if (target->signatures.empty()) target->signatures = golden->signatures;
  }
  const size_t calls = target->records.size();
  Result<compare::Comparison> compared =
      compare::Compare(*std::move(target), *std::move(golden), compare::CompareOptions());
  if (!compared.ok()) {
    GiveUp(compared.status().AsMessage());
    return News::kNone;
  }
  suspects_left_ = false;
  const compare::Comparison& c = *compared;
  if (Message why = WhyAnotherProgram(c); !why.empty() && !found_) {
    useless_ = true;
    GiveUp(std::move(why));
    return News::kNone;
  }
  if (c.first.pair < 0) {
    if (found_) return CompareAgain(c, "");
    const bool first_bits = bits_decide_ && c.exact.empty();
    // The environment cannot be another one in the next step; the calls can.
    if (c.exact.empty()) bits_decide_ = false;
    if (!first_bits) next_look_ = 2 * suspects_;
    return News::kNone;
  }
  if (extent == Extent::kSoFar && IsOfOtherShape(c)) {
    waits_ = suspects_left_ = true;
    return News::kNone;
  }
  const compare::Findings findings = compare::FindingsOf(c);
  const News news = found_ ? CompareAgain(c, findings.first_name.English()) : News::kDiffers;
  if (news == News::kNone) return news;
  found_ = true;
  const compare::RecordPair& pair = c.pairs[c.first.pair];
  answer_ = {.step = part_.step,
             .call = pair.target >= 0 ? pair.target : static_cast<int64_t>(calls),
             .name = findings.first_name.English(),
             .module = c.first.module,
             .source_line = c.first.source_line,
             .golden_line = c.first.golden_line,
             .why = c.first.why.English()};
  const compare::TerminalOptions options{.whole = true};
  answer_.lines = compare::FindingsScreen(findings, options).Finding();
  if (extent == Extent::kWhole) told_ = true;
  return news;
}

// The whole step, in which an answer was given: whether its first divergence is another call, or
// there is none ("").
News LiveComparison::CompareAgain(const compare::Comparison& c, const std::string& first) {
  told_ = true;
  if (first == answer_.name) return News::kNone;
  if (!first.empty()) {
    Log(LogLevel::kWarning,
        "the whole step {} names another call first: {}; msprobe compare {} {}"_t(
            part_.step, first, DirectoryName(own_file_), DirectoryName(file_)));
    return News::kOtherAnswer;
  }
  Log(LogLevel::kWarning,
      "the whole step {} agrees with the baseline: the answer {} is taken back"_t(part_.step,
                                                                                  answer_.name));
  if (c.exact.empty()) bits_decide_ = false;
  found_ = told_ = false;
  waits_always_ = true;  // the program computes the same by other calls
  answer_ = {};
  return News::kTakenBack;
}

}  // namespace msprobe::live
