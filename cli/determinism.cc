#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/replay_flags.h"
#include "cli/programs/observed_run.h"
#include "cli/programs/program.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/compare.h"
#include "engine/compare/explain/summary.h"
#include "engine/dump/config/config.h"
#include "engine/dump/read/reader.h"
#include "engine/isolation/unstable.h"

namespace msprobe::cli {
namespace {

using isolation::Unstable;

constexpr int64_t kMostRuns = 100;

// The first difference between the first run and a later one.
struct Difference {
  int step = -1, rank = -1;
  size_t run = 0;  // the later one, from 2
  Unstable found;
  std::string settings;  // what differs in the environments; ""
};

class Determinism : public Verb {
 public:
  std::string_view name() const override { return "determinism"; }
  Message summary() const override {
    return "run a training several times, and name the first call that does not repeat"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Usage("[FLAGS] SCRIPT.py [ARGUMENTS], or [FLAGS] -m MODULE [ARGUMENTS]");
    flags.Footer(
        "Each run is recorded in a process of its own, and nothing is seeded: a difference is that "
        "of the\nprogram. msprobe selfcheck says whether recording changes the program.\n"
        "Exit code: 0 all runs computed the same bits, 1 they did not, 2 could not be judged."_t);
    flags.Number("--runs", &runs_, "how many runs, 2 to 100"_t).Positive().ShowDefault();
    flags.Text("--level", &level_, "L0, L1 or mix"_t).TypeName("LEVEL").ShowDefault();
    flags.Text("--config", &config_, "config.json of the recording, in place of --level"_t)
        .TypeName("FILE");
    flags.Number("--steps", &steps_, "end the program after this many steps"_t).Positive();
    flags.Text("--python", &python_, "the Python interpreter; default: the one beside msprobe"_t)
        .TypeName("FILE");
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Text("--keep", &keep_, "keep outputs and dumps in this folder"_t).TypeName("FOLDER");
  }
  bool TakesCommand() const override { return true; }
  void SetCommand(const std::vector<std::string>& words) override { command_ = words; }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(CheckProgram(command_, name()));
    if (runs_ < 2 || runs_ > kMostRuns) {
      return InvalidArgument(std::string("--runs"))
          .Expected("2 to {}"_t(kMostRuns))
          .Found(std::to_string(runs_));
    }
    MSPROBE_ASSIGN_OR_RETURN(const RunFolder folder, RunFolder::Make(keep_, name()));
    folder_ = folder.path();
    MSPROBE_RETURN_IF_ERROR(MakeConfig());
    std::optional<Difference> first;
    size_t differing = 0;
    for (size_t run = 1; run <= static_cast<size_t>(runs_); ++run) {
      out.Progress("run {} of {}"_t(run, runs_));
      MSPROBE_ASSIGN_OR_RETURN(const bool ended_well, Record(run, out));
      if (!ended_well) return kExitError;
      if (run == 1) continue;
      out.Progress("comparing run {} with run 1"_t(run));
      MSPROBE_ASSIGN_OR_RETURN(std::optional<Difference> found, CompareWithFirst(run));
      differing += found.has_value();
      if (found && (!first || Earlier(*found, *first))) first = std::move(found);
    }
    out.ClearProgress();
    format_ == "json" ? PrintJson(first, differing, out) : PrintTable(first, differing, out);
    return first ? kExitDiffers : without_bits_ > 0 ? kExitError : kExitOk;
  }

 private:
  std::string DumpOf(size_t run) const { return JoinPath(folder_, fmt::format("run{}", run)); }

  // The configuration of all runs; a script with a PrecisionDebugger of its own gets it, too.
  Status MakeConfig() {
    if (config_.empty()) {
      config_ = JoinPath(folder_, "config.json");
      MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(
          config_,
          fmt::format("{{\"task\": \"statistics\", \"level\": {}}}\n", QuotedJson(level_))));
    }
    return dump::LoadConfig(config_, {}).status();
  }

  // False: the program failed, which has been said.
  Result<bool> Record(size_t run, Console& out) {
    const std::string path = DumpOf(run);
    if (Exists(path)) {
      return InvalidArgument(std::string("--keep"))
          .Expected("a folder without dumps of earlier runs"_t)
          .Found(path)
          .Hint("name a new folder"_t);
    }
    const auto observe = [&] {
      return RunObserved({.command = command_,
                          .python = python_,
                          .folder = folder_,
                          .name = fmt::format("run{}", run),
                          .unit = unit_,
                          .drive = R"({"as_is": true})",
                          .steps = steps_,
                          .environment = {{"MSPROBE_CONFIG", config_},
                                          {"MSPROBE_DUMP_PATH", path},
                                          {"MSPROBE_FINGERPRINTS", "all"}}});
    };
    MSPROBE_ASSIGN_OR_RETURN(ObservedRun done, observe());
    const bool no_optimizer = done.code == 0 && run == 1 && done.log.StepCount() == 0;
    if (no_optimizer && unit_ == "optimizer" && !done.log.HasNote("own debugger") &&
        HasLoss(done)) {
      unit_ = "backward";
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
      MSPROBE_ASSIGN_OR_RETURN(done, observe());
    }
    if (done.code == 0) return true;
    out.ClearProgress();
    out.Tell("msprobe determinism, {}: {}"_t(CommandText(command_), "UNKNOWN"_t));
    out.Line("reason"_t, "run {} {}"_t(run, HowItEnded(done.code)));
    out.Print("\n{}\n{}\n", "its last lines:"_t.Shown(), LastLines(done.output, kOutputLines));
    return false;
  }

  static bool HasLoss(const ObservedRun& run) {
    for (const selfcheck::RunLog::Step& step : run.log.steps) {
      for (const selfcheck::RunLog::Value& value : step.values) {
        if (value.kind == selfcheck::ValueKind::kLoss) return true;
      }
    }
    return false;
  }

  static bool Earlier(const Difference& a, const Difference& b) {
    return a.step != b.step ? a.step < b.step : a.found.pair < b.found.pair;
  }

  Result<std::optional<Difference>> CompareWithFirst(size_t run) {
    if (!Exists(DumpOf(1)) && !Exists(DumpOf(run))) {
      return Unsupported("{} recorded nothing"_t(CommandText(command_)))
          .Expected("a training in the process of the script, or a PrecisionDebugger in it"_t)
          .Hint(
              "a launcher (torchrun) trains in other processes: construct a PrecisionDebugger in "
              "the script, start() and stop() it, and run -m torch.distributed.run SCRIPT.py"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(const PairedDumps paired,
                             PairDumps(DumpOf(run), DumpOf(1), {.common = true}));
    std::optional<Difference> first;  // of the ranks of one step, the earliest call
    for (const DumpPair& pair : paired.pairs) {
      if (first && pair.step != first->step) break;
      MSPROBE_ASSIGN_OR_RETURN(Dump target, dump::ReadDump(pair.target));
      MSPROBE_ASSIGN_OR_RETURN(Dump golden, dump::ReadDump(pair.golden));
      compare::CompareOptions options;
      options.exactness = compare::Exactness::kExact;
      MSPROBE_ASSIGN_OR_RETURN(const compare::Comparison c,
                               compare::Compare(std::move(target), std::move(golden), options));
      if (run == 2) {
        ++compared_steps_;
        calls_ += static_cast<int64_t>(c.pairs.size());
      }
      without_bits_ += isolation::CountWithoutBits(c);
      if (std::optional<Unstable> found = isolation::FirstUnstable(c)) {
        Difference difference{.step = pair.step,
                              .rank = pair.rank,
                              .run = run,
                              .found = *std::move(found),
                              .settings = OfRuns(c.run_start.settings.English(), run)};
        if (!first || Earlier(difference, *first)) first = std::move(difference);
      }
    }
    if (!first && !paired.left_out.empty() && note_.empty()) note_ = paired.left_out[0].English();
    return first;
  }

  // "seed 7 in the target, 8 in the golden" in the words of runs.
  static std::string OfRuns(std::string text, size_t run) {
    const std::pair<std::string_view, std::string> words[] = {
        {"the target", fmt::format("run {}", run)}, {"the golden", "run 1"}};
    for (const auto& [word, name] : words) {
      for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += name.size())
        text.replace(at, word.size(), name);
    }
    return text;
  }

  void PrintTable(const std::optional<Difference>& first, size_t differing, Console& out) const {
    const Message verdict = first ? "DIFFERS"_t : without_bits_ > 0 ? "UNKNOWN"_t : "IDENTICAL"_t;
    out.Tell("msprobe determinism, {}: {}"_t(CommandText(command_), verdict));
    if (!first) {
      const bool one = compared_steps_ == 1;
      const Message what = one ? "{} runs, {} step, {} calls"_t(runs_, compared_steps_, calls_)
                               : "{} runs, {} steps, {} calls"_t(runs_, compared_steps_, calls_);
      out.Line("compared"_t,
               Message::Joined({what, without_bits_ > 0 ? "nothing differs"_t : "the same bits"_t},
                               ": "));
      if (without_bits_ > 0) {
        out.Line("reason"_t,
                 "{} recorded tensors have statistics and no fingerprint: elements of "
                 "them may have changed places"_t(without_bits_));
      }
      out.Line("note"_t, note_);
      return;
    }
    const Unstable& u = first->found;
    out.Line("first"_t,
             Message::Joined({first->step >= 0 ? "step {}"_t(first->step) : Message(),
                              first->rank >= 0 ? "rank {}"_t(first->rank) : Message(), u.name},
                             ", "));
    out.LineAsIs("module"_t, u.module);
    out.LineAsIs("line"_t, u.source_line);
    out.LineAsIs("called by"_t, u.caller_line);
    out.Line("cause"_t, Message::Joined({Message(CauseName(u.cause)), Message(u.why)}, ": "));
    out.Line("seen"_t, "in run {}; {} of {} later runs differ from the first one"_t(
                           first->run, differing, runs_ - 1));
    out.Line("began"_t, Message(first->settings));
    out.Line("next"_t, u.advice);
    if (!keep_.empty()) {
      out.LineAsIs("compare"_t,
                   fmt::format("msprobe compare {} {} --exact", DumpOf(first->run), DumpOf(1)));
    }
  }

  void PrintJson(const std::optional<Difference>& first, size_t differing, Console& out) const {
    std::string json = fmt::format(
        "{{\"verdict\": \"{}\", \"command\": {}, \"runs\": {}, \"runs_that_differ\": {}, "
        "\"first\": ",
        first               ? "differs"
        : without_bits_ > 0 ? "unknown"
                            : "identical",
        QuotedJson(CommandText(command_)), runs_, differing);
    if (!first) {
      out.Write(json + "null}\n");
      return;
    }
    const Unstable& u = first->found;
    out.Write(json +
              fmt::format("{{\"step\": {}, \"rank\": {}, \"run\": {}, \"name\": {}, \"cause\": "
                          "\"{}\", \"module\": {}, \"source_line\": {}, \"caller_line\": {}, "
                          "\"why\": {}, \"advice\": {}, \"settings\": {}}}}}\n",
                          first->step, first->rank, first->run, QuotedJson(u.name),
                          CauseName(u.cause).English(), QuotedJson(u.module),
                          QuotedJson(u.source_line), QuotedJson(u.caller_line),
                          QuotedJson(u.why.English()), QuotedJson(u.advice.English()),
                          QuotedJson(first->settings)));
  }

  std::vector<std::string> command_;
  std::string level_ = "mix", config_, python_, keep_, format_ = "table", folder_,
              unit_ = "optimizer";
  Message note_;  // on what was not compared
  int64_t runs_ = 3, steps_ = 0, calls_ = 0;
  int64_t without_bits_ = 0;  // tensors of which equal bits cannot be claimed
  int compared_steps_ = 0;
};

}  // namespace

std::unique_ptr<Verb> MakeDeterminismVerb() { return std::make_unique<Determinism>(); }

}  // namespace msprobe::cli
