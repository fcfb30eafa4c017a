#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/replay_flags.h"
#include "cli/programs/observed_run.h"
#include "cli/programs/program.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/compare.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/step_in_path.h"
#include "engine/isolation/error_chain.h"
#include "engine/isolation/next_recording.h"

namespace msprobe::cli {
namespace {

using isolation::NextRecording;

// What one comparison of two runs says.
struct Round {
  std::string target, golden;  // paths of the two dumps of the answer
  int step = -1, rank = -1;
  std::vector<int32_t> ranks;  // on which the error begins
  compare::FirstDivergence first;
  std::string culprit;
  NextRecording next;
  std::string config;  // config.json of the narrower recording
};

class Bisect : public Verb {
 public:
  std::string_view name() const override { return "bisect"; }
  Message summary() const override {
    return "write the next, narrower configuration to record, or record with it"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("target", &target_,
              "the run under test: dump.json, rank folder, step folder or dump_path"_t)
        .TypeName("PATH")
        .Required();
    flags.Text("golden", &golden_, "the trusted run, the same kind of path"_t)
        .TypeName("PATH")
        .Required();
    flags
        .Text("call", &call_,
              "look at this call and not at the first divergence: conv2d.2, model.py:41, or loss"_t)
        .TypeName("CALL");
    flags
        .Text("-o,--output_path", &output_,
              "folder for round1/config.json and the dumps of later rounds"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    flags
        .Text("--run", &run_,
              "a line for the shell that makes the target's run, 'python train.py': it is run with "
              "the new configuration"_t)
        .TypeName("COMMAND");
    flags.Text("--golden-run", &golden_run_, "the same for the golden's run"_t).TypeName("COMMAND");
    flags.Number("--rounds", &rounds_, "the most rounds"_t).Positive().ShowDefault();
    flags
        .Text("--thresholds", &thresholds_,
              "yaml file with limits for the verdicts, as compare's"_t)
        .TypeName("FILE");
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Footer(
        "Programs get the configuration by MSPROBE_CONFIG and MSPROBE_DUMP_PATH, which "
        "PrecisionDebugger "
        "reads in\nplace of its arguments. Only the folder of -o is written.\n"
        "Exit code: 0 the runs agree, or the answer is as narrow as it gets; 1 a further recording "
        "says more;\n2 an error."_t);
  }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(Prepare());
    std::string target = target_, golden = golden_;
    for (int64_t round = 1;; ++round) {
      out.Progress("round {}: comparing {} with {}"_t(round, target, golden));
      MSPROBE_ASSIGN_OR_RETURN(
          Round found, call_.empty() ? CompareRuns(target, golden) : LookAtCall(target, golden));
      history_.push_back(std::move(found));
      const Round& now = history_.back();
      folder_ = JoinPath(output_, fmt::format("round{}", round));
      if (now.next.narrower) MSPROBE_RETURN_IF_ERROR(WriteConfig(now.config));
      // Another culprit on narrower data is no progress either, once it has been seen.
      const bool stuck = IsSeen(now);
      if (!now.next.narrower || stuck || run_.empty() || round > rounds_) {
        out.ClearProgress();
        format_ == "json" ? PrintJson(out) : PrintTable(stuck, out);
        return now.next.narrower && !stuck ? kExitDiffers : kExitOk;
      }
      target = JoinPath(folder_, "target"), golden = JoinPath(folder_, "golden");
      MSPROBE_RETURN_IF_ERROR(RecordBoth(target, golden, round, out));
    }
  }

 private:
  Status Prepare() {
    if (run_.empty() != golden_run_.empty()) {
      return InvalidArgument("--run and --golden-run belong together"_t)
          .Expected("both: a narrower recording of one side has no partner on the other"_t)
          .Hint("without them, record both runs with the configuration that is written"_t);
    }
    if (!thresholds_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(compare::ThresholdTable table,
                               compare::ThresholdTable::Read(thresholds_));
      options_.thresholds = std::make_shared<compare::ThresholdTable>(std::move(table));
    }
    return Status::Ok();
  }

  // Into the folder of this round.
  Status WriteConfig(const std::string& config) {
    config_ = JoinPath(folder_, "config.json");
    if (Exists(folder_)) {
      return InvalidArgument("-o"_t)
          .Expected("a folder without the rounds of an earlier bisection"_t)
          .Found(folder_)
          .Hint("name a new folder; nothing was removed"_t);
    }
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
    return WriteFileAtomically(config_, config);
  }

  Status RecordBoth(const std::string& target, const std::string& golden, int64_t round,
                    Console& out) {
    MSPROBE_RETURN_IF_ERROR(Record(true, run_, target, round, out));
    return Record(false, golden_run_, golden, round, out);
  }

  bool IsSeen(const Round& now) const {
    for (size_t i = 0; i + 1 < history_.size(); ++i) {
      if (history_[i].culprit == now.culprit && history_[i].config == now.config) return true;
    }
    return false;
  }

  // The first divergence as msprobe compare names it: of the first step that has one, over all
  // ranks.
  Result<Round> CompareRuns(const std::string& target, const std::string& golden) const {
    MSPROBE_ASSIGN_OR_RETURN(const PairedDumps paired, PairDumps(target, golden, {.common = true}));
    std::vector<compare::RankResult> results;
    std::vector<Round> rounds;  // one for each result
    for (size_t i = 0; i < paired.pairs.size(); ++i) {
      const DumpPair& pair = paired.pairs[i];
      MSPROBE_ASSIGN_OR_RETURN(Dump of_target, dump::ReadDump(pair.target));
      MSPROBE_ASSIGN_OR_RETURN(Dump of_golden, dump::ReadDump(pair.golden));
      MSPROBE_ASSIGN_OR_RETURN(
          const compare::Comparison c,
          compare::Compare(std::move(of_target), std::move(of_golden), options_));
      results.push_back(compare::SummarizeRank(c, pair.step, pair.rank));
      rounds.push_back({.target = pair.target,
                        .golden = pair.golden,
                        .step = pair.step >= 0 ? pair.step : dump::StepInPath(pair.target),
                        .rank = pair.rank,
                        .next = isolation::NextOf(c)});
      const bool more_ranks = i + 1 < paired.pairs.size() && paired.pairs[i + 1].step == pair.step;
      if (more_ranks) continue;
      compare::JudgeSteps(results);
      const std::vector<compare::StepOrigins> steps = compare::OriginsOfSteps(results);
      const auto first = compare::FirstWithOrigin(steps);
      if (first != steps.end()) return PlaceIn(*first, results, rounds);
    }
    for (const compare::RankResult& result : results) {
      if (result.judged.ok()) return std::move(rounds.front());
    }
    return results.front().judged;
  }

  // The call that was named: in the first step and rank in which it differs; else in the first that
  // has it.
  Result<Round> LookAtCall(const std::string& target, const std::string& golden) const {
    MSPROBE_ASSIGN_OR_RETURN(const PairedDumps paired, PairDumps(target, golden, {.common = true}));
    std::optional<Round> agrees;
    Status missing;
    for (const DumpPair& pair : paired.pairs) {
      MSPROBE_ASSIGN_OR_RETURN(Dump of_target, dump::ReadDump(pair.target));
      MSPROBE_ASSIGN_OR_RETURN(Dump of_golden, dump::ReadDump(pair.golden));
      MSPROBE_ASSIGN_OR_RETURN(
          compare::Comparison c,
          compare::Compare(std::move(of_target), std::move(of_golden), options_));
      const Result<int32_t> call = isolation::FindCall(c, call_);
      if (!call.ok()) {
        if (missing.ok()) missing = call.status();
        continue;
      }
      isolation::LookAt(*call, &c);
      const compare::CallClass is = c.first.call_class;
      Round round{.target = pair.target,
                  .golden = pair.golden,
                  .step = pair.step >= 0 ? pair.step : dump::StepInPath(pair.target),
                  .rank = pair.rank,
                  .ranks = {pair.rank},
                  .first = c.first,
                  .next = isolation::NextOf(c)};
      round.culprit = round.next.culprit.English();
      if (round.next.narrower)
        round.config = isolation::ConfigOf(round.next, round.step, round.rank);
      if (is != compare::CallClass::kEqual && is != compare::CallClass::kNoise) return round;
      if (!agrees) agrees = std::move(round);
    }
    if (!agrees) return missing;
    return *std::move(agrees);
  }

  static Round PlaceIn(const compare::StepOrigins& step,
                       std::span<const compare::RankResult> results, std::vector<Round>& rounds) {
    const compare::RankPlace place = compare::PlacesOf(step, results).front();
    const compare::RankResult& result = *place.result;
    Round round = std::move(rounds[static_cast<size_t>(&result - results.data())]);
    round.first = result.first;
    round.ranks = place.ranks;
    if (place.origin->in_exchange) round.rank = -1;  // the exchange is that of all ranks
    if (result.wrong_update_after >= 0) round.next = OfUpdate(result, results);
    round.culprit = round.next.culprit.English();
    if (round.next.narrower) round.config = isolation::ConfigOf(round.next, round.step, round.rank);
    return round;
  }

  // What lies between a step and the one before it, and what that step did differently.
  static NextRecording OfUpdate(const compare::RankResult& result,
                                std::span<const compare::RankResult> results) {
    const auto before = std::find_if(results.begin(), results.end(), [&](const auto& r) {
      return r.step == result.wrong_update_after && r.rank == result.rank;
    });
    Message why = "no call of step {} made the error"_t(result.step);
    if (before == results.end()) return isolation::NextOfUpdate(std::move(why), true);
    const bool recorded = !before->weights.optimizer_calls.empty();
    if (!before->otherwise.empty())
      why = "{}; in step {}, {}"_t(std::move(why), before->step, before->otherwise);
    return isolation::NextOfUpdate(std::move(why), recorded || !before->otherwise.empty());
  }

  Status Record(bool is_target, const std::string& command, const std::string& dump, int64_t round,
                Console& out) {
    const Message side = is_target ? "target"_t : "golden"_t;
    out.Progress("round {}: running the {}: {}"_t(round, side, command));
    const std::string log = JoinPath(folder_, side.English() + ".txt");
    MSPROBE_ASSIGN_OR_RETURN(
        const int code, RunProgram({"/bin/sh", "-c", command}, log,
                                   {{"MSPROBE_CONFIG", config_}, {"MSPROBE_DUMP_PATH", dump}}));
    if (code != 0) {
      return Unsupported("round {}: the {}'s run {}"_t(round, side, HowItEnded(code)))
          .At(log)
          .Found(LastLines(log, kOutputLines))
          .Hint("what is done stays in {}"_t(output_));
    }
    if (Exists(dump)) return Status::Ok();
    return NotFound(dump)
        .Expected("a recording of the {}'s run"_t(side))
        .Hint("the program must construct a PrecisionDebugger, start() and stop() it"_t);
  }

  void PrintTable(bool stuck, Console& out) const {
    const Round& last = history_.back();
    const bool agree = last.culprit.empty() && history_.size() == 1;
    out.Tell("msprobe bisect: {}"_t(agree                          ? "NOTHING TO NARROW"_t
                                    : last.next.narrower && !stuck ? "RECORD MORE"_t
                                                                   : "AS NARROW AS IT GETS"_t));
    for (size_t i = 0; i < history_.size(); ++i) PrintRound(i, out);
    if (last.culprit.empty() && history_.size() > 1) {
      out.Line("note"_t,
               "the narrower recording shows no divergence: the runs of this round do not have it; "
               "msprobe determinism says whether the program repeats"_t);
    }
    if (last.next.narrower && !stuck) {
      out.LineAsIs("written"_t, config_);
      if (run_.empty()) {
        out.Line("next"_t,
                 "MSPROBE_CONFIG={} MSPROBE_DUMP_PATH={}/target COMMAND, the command of "
                 "the target's run with all its arguments (no recording keeps it); the "
                 "golden alike; then msprobe bisect {}/target {}/golden -o FOLDER"_t(
                     config_, folder_, folder_, folder_));
      }
    } else if (const std::string call = CallOf(last.culprit); last.next.can_replay) {
      out.LineAsIs("next"_t,
                   fmt::format("msprobe replay {} {} {}", last.target, call, last.golden));
    } else if (const Message& advice = last.next.advice; !advice.empty()) {
      out.Line("next"_t, advice);
    }
  }

  void PrintRound(size_t index, Console& out) const {
    const Round& round = history_[index];
    const Message what = round.culprit.empty()
                             ? "no first divergence"_t
                             : Message::Joined({WhereText(round), round.culprit}, ", ");
    out.Tell("  {}"_t("round {}   {}"_t(index + 1, what)));
    if (round.culprit.empty()) return;
    const auto line = [&](const Message& text) {
      if (!text.empty()) out.Tell("            {}"_t(text));
    };
    for (const std::string* place : {&round.first.source_line, &round.first.caller_line}) {
      if (!place->empty()) out.Print("            {}\n", MakePrintable(*place));
    }
    if (const std::string& golden = round.first.golden_line; !golden.empty())
      line("in the golden: {}"_t(golden));
    line(round.first.why);
    out.Line("why"_t, round.next.why);
  }

  // "step 3, ranks 0-2"
  static Message WhereText(const Round& round) {
    const bool known = !round.ranks.empty() && round.ranks[0] >= 0;
    const std::string ranks = known ? compare::RankList(round.ranks) : "";
    return Message::Joined({round.step >= 0 ? "step {}"_t(round.step) : Message(),
                            !known                    ? Message()
                            : round.ranks.size() == 1 ? "rank {}"_t(ranks)
                                                      : "ranks {}"_t(ranks)},
                           ", ");
  }

  // "Functional.linear.0" of "Functional.linear.0.backward"; "" for modules.
  static std::string CallOf(const std::string& entry) {
    for (const std::string_view direction : {".forward", ".backward"}) {
      if (entry.ends_with(direction)) return entry.substr(0, entry.size() - direction.size());
    }
    return "";
  }

  void PrintJson(Console& out) const {
    std::string json = "{\"rounds\": [";
    for (const Round& round : history_) {
      json += fmt::format(
          "{}\n  {{\"target\": {}, \"golden\": {}, \"step\": {}, \"rank\": {}, \"name\": {}, "
          "\"source_line\": {}, \"golden_line\": {}, \"why\": {}, \"narrower\": {}, \"next\": {}}}",
          &round == history_.data() ? "" : ",", QuotedJson(round.target), QuotedJson(round.golden),
          round.step, round.rank, QuotedJson(round.culprit), QuotedJson(round.first.source_line),
          QuotedJson(round.first.golden_line), QuotedJson(round.first.why.English()),
          JsonBool(round.next.narrower), QuotedJson(round.next.why.English()));
    }
    out.Write(json + fmt::format("],\n\"config\": {}}}\n", QuotedJson(config_)));
  }

  std::string target_, golden_, call_, output_ = "./bisect", run_, golden_run_, format_ = "table",
                                       thresholds_;
  compare::CompareOptions options_;
  std::string folder_, config_;
  int64_t rounds_ = 4;
  std::vector<Round> history_;
};

}  // namespace

std::unique_ptr<Verb> MakeBisectVerb() { return std::make_unique<Bisect>(); }

}  // namespace msprobe::cli
