#include "cli/selfcheck.h"

#include <fmt/format.h>

#include "cli/programs/observed_run.h"
#include "cli/verbs.h"
#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

std::string Duration(int64_t nanoseconds) {
  const double ns = static_cast<double>(nanoseconds);
  return nanoseconds < 1'000'000 ? fmt::format("{:.0f} us", ns / 1e3)
                                 : fmt::format("{:.2f} ms", ns / 1e6);
}

class Selfcheck : public Verb {
 public:
  std::string_view name() const override { return "selfcheck"; }
  Message summary() const override {
    return "check that a training computes the same bits with the tool off and on"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Usage("[FLAGS] SCRIPT.py [ARGUMENTS], or [FLAGS] -m MODULE [ARGUMENTS]");
    flags.Footer(
        "The program is run twice without the tool and once with it, in one process each.\n"
        "Exit code: 0 identical, 1 the tool changed something, 2 could not be judged."_t);
    flags.Text("--level", &options_.level, "of the recording (default: mix)"_t)
        .OneOf({"L0", "L1", "mix"});
    flags.Text("--task", &options_.task, "statistics (the default), tensor, ..."_t)
        .TypeName("TASK");
    flags.Text("--config", &options_.config, "config.json of the run with the tool"_t)
        .TypeName("FILE");
    flags.Number("--steps", &options_.steps, "end the program after this many steps"_t).Positive();
    flags
        .Text("--python", &options_.python,
              "the Python interpreter; default: the one beside msprobe"_t)
        .TypeName("FILE");
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Text("--keep", &options_.folder, "keep logs, outputs and the dump in this folder"_t)
        .TypeName("FOLDER");
  }
  bool TakesCommand() const override { return true; }
  void SetCommand(const std::vector<std::string>& words) override { options_.command = words; }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(CheckProgram(options_.command, name()));
    options_.drive_options_given =
        !options_.level.empty() || !options_.task.empty() || !options_.config.empty();
    if (options_.level.empty() && options_.config.empty()) options_.level = "mix";
    MSPROBE_ASSIGN_OR_RETURN(const RunFolder folder, RunFolder::Make(options_.folder, name()));
    options_.folder = folder.path();
    options_.progress = [&](const Message& text) { out.Progress(text); };
    const Result<SelfcheckResult> result = RunSelfcheck(options_);
    out.ClearProgress();
    if (!result.ok()) return result.status();
    format_ == "json" ? PrintJson(*result, out) : PrintTable(*result, out);
    constexpr int kCodes[] = {kExitOk, kExitDiffers, kExitError};
    return kCodes[result->verdict];
  }

 private:
  void PrintTable(const SelfcheckResult& r, Console& out) const {
    const Message verdicts[] = {"IDENTICAL"_t, "DIFFERS"_t, "UNKNOWN"_t};
    out.Tell("msprobe selfcheck, {}: {}"_t(CommandText(options_.command), verdicts[r.verdict]));
    out.Line("reason"_t, r.reason);
    out.Line("next"_t, r.hint);
    if (r.steps > 0) {
      const auto [steps, parameters, values] = std::tuple(r.steps, r.parameters, r.values);
      out.Line(
          "compared"_t,
          r.unit == "backward"
              ? "{} steps (backward passes), {} parameters: {} losses, gradients, weights and "
                "random generators"_t(steps, parameters, values)
              : "{} steps (optimizer.step()), {} parameters: {} losses, gradients, weights and "
                "random generators"_t(steps, parameters, values));
    }
    if (r.on_nanoseconds > 0) {
      const int64_t added = r.on_nanoseconds - r.off_nanoseconds;
      out.Line("time"_t, "a step takes {} without the tool, {} with it (median): {} added"_t(
                             Duration(r.off_nanoseconds), Duration(r.on_nanoseconds),
                             Duration(added > 0 ? added : 0)));
      out.Line("written"_t, r.own_debugger ? "{} records, {} bytes, by the script's own debugger"_t(
                                                 r.records, r.bytes)
                                           : "{} records, {} bytes"_t(r.records, r.bytes));
    }
    for (const Message& note : r.notes) out.Line("note"_t, note);
    if (!r.output.empty()) out.Print("\n{}\n{}\n", "its last lines:"_t.Shown(), r.output);
  }

  void PrintJson(const SelfcheckResult& r, Console& out) const {
    constexpr std::string_view kVerdicts[] = {"identical", "differs", "unknown"};
    std::string json = fmt::format("{{\"verdict\": \"{}\"", kVerdicts[r.verdict]);
    const auto text = [&](std::string_view key, std::string_view value) {
      json += fmt::format(", \"{}\": ", key);
      AppendJsonString(&json, value);
    };
    text("command", CommandText(options_.command));
    text("reason", r.reason.English());
    text("hint", r.hint.English());
    text("output", r.output);
    text("unit", r.unit);
    json += fmt::format(
        ", \"steps\": {}, \"parameters\": {}, \"values\": {}, \"own_debugger\": {}, "
        "\"nanoseconds_a_step\": {{\"off\": {}, \"on\": {}}}, \"records\": {}, \"bytes\": {}, "
        "\"notes\": [",
        r.steps, r.parameters, r.values, r.own_debugger, r.off_nanoseconds, r.on_nanoseconds,
        r.records, r.bytes);
    for (const Message& note : r.notes) {
      if (json.back() != '[') json += ", ";
      AppendJsonString(&json, note.English());
    }
    out.Print("{}]}}\n", json);
  }

  SelfcheckOptions options_;
  std::string format_ = "table";
};

}  // namespace

std::unique_ptr<Verb> MakeSelfcheckVerb() { return std::make_unique<Selfcheck>(); }

}  // namespace msprobe::cli
