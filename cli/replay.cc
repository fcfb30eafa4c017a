#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/inputs/replay_flags.h"
#include "cli/programs/observed_run.h"
#include "cli/verbs.h"
#include "engine/base/display_width.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/align/align.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/isolation/nearer.h"
#include "engine/isolation/other_call.h"
#include "engine/replay/find_call.h"
#include "engine/replay/recorded_call.h"

namespace msprobe::cli {
namespace {

using isolation::ErrorOf;
using isolation::Nearer;
using isolation::OutputError;
using isolation::ReplayedCall;

// One recorded run, and the call in it.
struct Side {
  Dump dump;
  std::vector<replay::RecordedCall> calls;
  size_t call = 0;  // index into calls
  ReplayedCall found;
  isolation::OtherCall other;  // of the golden: how what it passes is not what the target passes
};

std::string LineOf(const Side& side, size_t call) {
  const int32_t stack = side.dump.records[side.calls[call].forward].stack;
  return stack < 0 ? "" : dump::UserSourceLine(side.dump.stacks[stack]);
}

class Replay : public Verb {
 public:
  std::string_view name() const override { return "replay"; }
  Message summary() const override {
    return "execute one recorded call again, and say which side is nearer to float64"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("dump", &flags_.dump, "dump.json, or a folder with one; best of task tensor"_t)
        .TypeName("PATH")
        .Required();
    flags
        .Text("call", &call_,
              "Functional.linear.3, a part of such a name, or a line: model.py:41"_t)
        .TypeName("CALL")
        .Required();
    flags.Text("golden", &golden_, "the dump of another run, in which the call is executed, too"_t)
        .TypeName("PATH");
    flags
        .Texts("-d,--device", &flags_.devices,
               "number of the device: an NPU, else a GPU, else the CPU"_t)
        .TypeName("NUMBER");
    flags.Number("--seed", &flags_.seed, "of elements that are made from statistics"_t)
        .ShowDefault();
    flags.Number("--timeout", &flags_.timeout, "seconds that the call may take"_t)
        .Positive()
        .ShowDefault();
    flags.Text("--memory", &flags_.memory, "memory that the process may take, such as 4GB"_t)
        .TypeName("SIZE");
    flags
        .Text("--references", &flags_.references,
              "YAML: functions that compute golden results, a line `API: file.py:function` for "
              "each"_t)
        .TypeName("FILE");
    flags
        .Texts("--import", &flags_.imports,
               "module or FILE.py of the program that has the class of a torch.autograd.Function: "
               "it is imported, so its code runs"_t)
        .TypeName("MODULE");
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_,
                 "exit with 1 unless the target is as near to float64 as the golden, or exact"_t);
    flags.Footer(
        "Elements that the dump does not have are made from the statistics. Such a call says what "
        "the operation\ndoes here, and nothing of the recorded result: record with task tensor.\n"
        "Exit code: 0 a verdict; 1 with --exit-code, the target is farther from float64; 2 "
        "UNKNOWN, "
        "or an error."_t);
  }

  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(Side target, Open(flags_.dump, out));
    Result<size_t> call = replay::FindCall(target.dump, target.calls, call_, flags_.dump);
    if (!call.ok() && Exists(call_) && !golden_.empty() && !Exists(golden_)) {
      return std::move(call).status().Hint("did you mean: {}"_t(
          fmt::format("msprobe replay {} {} {}", flags_.dump, golden_, call_)));
    }
    MSPROBE_ASSIGN_OR_RETURN(target.call, std::move(call));
    std::optional<Side> golden;
    if (!golden_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(golden, Open(golden_, out));
      MSPROBE_RETURN_IF_ERROR(FindPartner(target, &*golden));
    }
    MSPROBE_ASSIGN_OR_RETURN(const RunFolder folder, RunFolder::Make("", name()));
    out.Progress("executing {} again"_t(target.calls[target.call].name));
    MSPROBE_RETURN_IF_ERROR(Execute(flags_.dump, folder.path(), out, &target));
    if (golden) MSPROBE_RETURN_IF_ERROR(Execute(golden_, folder.path(), out, &*golden));
    out.ClearProgress();
    isolation::NearerVerdict verdict =
        isolation::WhichIsNearer(target.found, golden ? &golden->found : nullptr);
    if (golden && !golden->other.why.empty()) verdict = isolation::OfOtherCalls(std::move(verdict));
    format_ == "json" ? PrintJson(target, golden, verdict, out)
                      : PrintTable(target, golden, verdict, out);
    if (verdict.nearer == Nearer::kUnknown) return kExitError;
    const bool good = verdict.nearer == Nearer::kTarget || verdict.nearer == Nearer::kBoth;
    return exit_code_ && !good ? kExitDiffers : kExitOk;
  }

 private:
  Result<Side> Open(const std::string& path, Console& out) const {
    Side side;
    MSPROBE_ASSIGN_OR_RETURN(side.dump, dump::ReadDump(path));
    if (!side.dump.complete) {
      out.Warn("warning: {}: {}"_t(side.dump.path, side.dump.note));
    }
    side.calls = replay::CallsOf(side.dump, {.functions = !flags_.imports.empty()});
    return side;
  }

  // The golden's partner of the call, as compare finds it.
  static Status FindPartner(const Side& target, Side* golden) {
    const int32_t forward = target.calls[target.call].forward;
    const std::vector<compare::Partner> partners =
        compare::AlignRecords(target.dump, golden->dump, {});
    for (size_t i = 0; i < golden->calls.size(); ++i) {
      if (golden->calls[i].forward != partners[forward].golden) continue;
      golden->call = i;
      golden->other = isolation::OtherCallOf(target.dump, golden->dump, partners, forward);
      return Status::Ok();
    }
    return InvalidArgument()
        .At(golden->dump.path)
        .Expected("a partner of {}"_t(target.calls[target.call].name))
        .Found("none: only the target makes this call"_t)
        .Hint("leave the golden out: the call is measured against float64 alone"_t);
  }

  Status Execute(const std::string& path, const std::string& folder, Console& out, Side* side) {
    const replay::RecordedCall& call = side->calls[side->call];
    side->found.name = call.name;
    side->found.why = call.skip;
    if (!call.skip.empty()) return Status::Ok();
    ReplayFlags flags = flags_;
    flags.dump = path;
    MSPROBE_ASSIGN_OR_RETURN(workers::PoolOptions pool, flags.Pool({{"mode", QuotedJson("nearer")},
                                                                    {"white_list", "[]"},
                                                                    {"black_list", "[]"},
                                                                    {"distinct", "false"},
                                                                    {"error_data", "\"\""}},
                                                                   out));
    pool.log = JoinPath(folder, "replay.log");
    return workers::RunTasks(
        {std::to_string(side->call)}, pool, [&](size_t, const workers::TaskResult& result) {
          side->found.why = result.lost;
          if (result.end == workers::TaskEnd::kAnswered) {
            Result<ReplayedCall> answered = isolation::ReplayedCallFromLine(result.answer);
            if (answered.ok()) {
              side->found = *std::move(answered);
            } else {
              side->found.why = answered.status().AsMessage();
            }
          }
          return true;
        });
  }

  // A word in the language of the reader, in so many columns; fewer than 0: at their right end.
  static std::string Cell(const Message& word, int columns) {
    const std::string text = word.Shown();
    const std::string blanks(
        static_cast<size_t>(std::max(0, std::abs(columns) - DisplayWidth(text))), ' ');
    return columns < 0 ? blanks + text : text + blanks;
  }

  static void PrintOutputs(const Message& label, const Side& side, Console& out) {
    if (!side.found.why.empty()) {
      out.Line(label, "not executed: {}"_t(side.found.why));
      return;
    }
    if (!side.found.note.empty()) out.Line(label, "note: {}"_t(side.found.note));
    for (const OutputError& o : side.found.outputs) {
      const auto row = [&](const Message& which, const ErrorOf& e) {
        const std::string ulp = e.ulp < 0 ? "-" : fmt::format("{:.3g}", e.ulp);
        const std::string bad =
            e.nonfinite > 0 ? "  " + "{} not finite"_t(e.nonfinite).Shown() : "";
        out.Print("  {} {:<18} {:<9} {} {:>11.3g} {:>11.3g} {:>11}{}\n", Cell(label, 8), o.place,
                  o.dtype, Cell(which, 9), e.max_abs, e.relative, ulp, bad);
      };
      if (o.has_recorded) row("recorded"_t, o.recorded);
      row("again"_t, o.again);
    }
  }

  static Message Again(const Side& side) {
    int64_t unlike = 0, recorded = 0;
    for (const OutputError& o : side.found.outputs) {
      recorded += o.has_recorded;
      unlike += o.recorded_unlike_again;
    }
    if (recorded == 0) return {};
    return unlike == 0 ? "gives the recorded bits"_t
                       : "{} elements differ from the recorded ones"_t(unlike);
  }

  static void PrintTable(const Side& target, const std::optional<Side>& golden,
                         const isolation::NearerVerdict& verdict, Console& out) {
    const Message titles[] = {"TARGET"_t,  "GOLDEN"_t,  "BOTH"_t,
                              "NEITHER"_t, "UNKNOWN"_t, "OTHER CALLS"_t};
    const Message title = golden ? titles[static_cast<size_t>(verdict.nearer)]
                          : verdict.nearer == Nearer::kTarget  ? "EXACT"_t
                          : verdict.nearer == Nearer::kUnknown ? "UNKNOWN"_t
                                                               : "NOT EXACT"_t;
    out.Tell("msprobe replay, {}: {}"_t(target.found.name, title));
    out.LineAsIs("line"_t, LineOf(target, target.call));
    out.Line("verdict"_t, verdict.sentence);
    if (golden) {
      if (golden->found.name != target.found.name) out.LineAsIs("golden"_t, golden->found.name);
      out.Line("inputs"_t, golden->other.inputs);
      out.Line("arguments"_t, golden->other.why);
    }
    out.Line("again"_t, Again(target));
    if (golden && !Again(*golden).empty()) out.Line({}, "golden: {}"_t(Again(*golden)));
    if (target.found.made || (golden && golden->found.made)) {
      out.Line("note"_t,
               "elements that the dump does not have were made from its statistics: the numbers "
               "are those of such elements, not of the recorded ones (record with task tensor)"_t);
    }
    const bool measured =
        !target.found.outputs.empty() || (golden && !golden->found.outputs.empty());
    if (!measured) return;  // the verdict says why
    out.Print("\n  {} {} {} {} {} {} {:>11}\n", Cell("side"_t, 8), Cell("result"_t, 18),
              Cell(std::string("dtype"), 9), Cell({}, 9), Cell("max error"_t, -11),
              Cell("relative"_t, -11), "ulp");
    PrintOutputs("target"_t, target, out);
    if (golden) PrintOutputs("golden"_t, *golden, out);
    out.Write("\n");
    out.Tell("  {}"_t(
        "errors are those against float64 of the same inputs; ulp: representable numbers of "
        "the dtype"_t));
  }

  static std::string Json(const Side& side) {
    std::string json = fmt::format(
        "{{\"dump\": {}, \"name\": {}, \"source_line\": {}, \"not_executed\": {}, \"note\": {}, "
        "\"made_from_statistics\": {}, \"outputs\": [",
        QuotedJson(side.dump.path), QuotedJson(side.found.name),
        QuotedJson(LineOf(side, side.call)), QuotedJson(side.found.why.English()),
        QuotedJson(side.found.note.English()), JsonBool(side.found.made));
    const auto error = [](const ErrorOf& e) {
      std::string text;
      for (const auto& [key, value] :
           {std::pair("max_abs", e.max_abs), std::pair("relative", e.relative),
            std::pair("ulp", e.ulp)}) {
        text += std::isfinite(value) ? fmt::format("\"{}\": {}, ", key, value)
                                     : fmt::format("\"{}\": \"{}\", ", key, value);
      }
      return fmt::format("{{{}\"nonfinite\": {}}}", text, e.nonfinite);
    };
    for (const OutputError& o : side.found.outputs) {
      json += fmt::format(
          "{}\n  {{\"place\": {}, \"dtype\": {}, \"elements\": {}, \"recorded\": {}, \"again\": "
          "{}, "
          "\"recorded_unlike_again\": {}}}",
          &o == side.found.outputs.data() ? "" : ",", QuotedJson(o.place), QuotedJson(o.dtype),
          o.count, o.has_recorded ? error(o.recorded) : "null", error(o.again),
          o.has_recorded ? std::to_string(o.recorded_unlike_again) : "null");
    }
    return json + "]}";
  }

  static void PrintJson(const Side& target, const std::optional<Side>& golden,
                        const isolation::NearerVerdict& verdict, Console& out) {
    constexpr std::string_view kNames[] = {"target",  "golden",  "both",
                                           "neither", "unknown", "other calls"};
    out.Write(fmt::format(
        "{{\"nearer\": \"{}\", \"verdict\": {}, \"arguments\": {},\n\"target\": {},\n"
        "\"golden\": {}}}\n",
        kNames[static_cast<size_t>(verdict.nearer)], QuotedJson(verdict.sentence.English()),
        QuotedJson(golden ? golden->other.why.English() : ""), Json(target),
        golden ? Json(*golden) : "null"));
  }

  ReplayFlags flags_;
  std::string call_, golden_, format_ = "table";
  bool exit_code_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeReplayVerb() { return std::make_unique<Replay>(); }

}  // namespace msprobe::cli
