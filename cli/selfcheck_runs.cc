#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "cli/programs/observed_run.h"
#include "cli/programs/program.h"
#include "cli/selfcheck.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/config/config.h"
#include "engine/dump/read/reader.h"
#include "engine/selfcheck/run_log.h"
#include "engine/selfcheck/verdict.h"

namespace msprobe::cli {
namespace {

bool HasLoss(const selfcheck::RunLog& log) {
  for (const selfcheck::RunLog::Step& step : log.steps) {
    for (const selfcheck::RunLog::Value& value : step.values) {
      if (value.kind == selfcheck::ValueKind::kLoss) return true;
    }
  }
  return false;
}

void CountValues(const selfcheck::RunLog& log, SelfcheckResult* result) {
  std::set<std::string> parameters;
  result->steps = log.StepCount();
  for (const selfcheck::RunLog::Step& step : log.steps) {
    result->values += step.values.size();
    for (const selfcheck::RunLog::Value& value : step.values) {
      if (value.kind == selfcheck::ValueKind::kWeight) parameters.insert(value.name);
    }
  }
  result->parameters = parameters.size();
}

// Counts the records and bytes of all dumps in a folder.
void CountDump(const std::string& folder, SelfcheckResult* result) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    result->bytes += it->file_size(error);
    if (it->path().filename() != "dump.json") continue;
    if (const Result<MappedFile> file = MappedFile::Open(it->path()); file.ok()) {
      const std::string_view text = file->bytes();  // one entry a line
      for (size_t at = 0; (at = text.find("\n\"", at)) != std::string_view::npos; ++at)
        ++result->records;
    }
  }
}

std::string DriveArguments(const SelfcheckOptions& options) {
  std::string json = "{\"dump_path\": ";
  AppendJsonString(&json, JoinPath(options.folder, "dump"));
  const auto add = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    json += fmt::format(", \"{}\": ", key);
    AppendJsonString(&json, value);
  };
  add("config_path", options.config);
  add("level", options.level);
  add("task", options.task);
  return json + "}";
}

SelfcheckResult Failed(SelfcheckResult result, SelfcheckResult::Verdict verdict, Message reason,
                       const ObservedRun& run) {
  result.verdict = verdict;
  result.reason = std::move(reason);
  result.output = LastLines(run.output, kOutputLines);
  return result;
}

// What the run with the tool (`on`) says, beside two without; `dump` is where it recorded.
void JudgeRuns(const ObservedRun& off, const ObservedRun& again, const ObservedRun& on,
               std::string dump, SelfcheckResult* result) {
  result->off_nanoseconds =
      std::min(selfcheck::MedianStep(off.log), selfcheck::MedianStep(again.log));
  result->on_nanoseconds = selfcheck::MedianStep(on.log);
  for (const std::string& note : on.log.notes) {
    if (note.starts_with("folder ")) dump = note.substr(7);
    constexpr std::string_view kUnread = " cannot be read: ";
    if (const size_t at = note.find(kUnread); at != std::string::npos) {
      Message unread =
          "{} cannot be read: {}"_t(note.substr(0, at), note.substr(at + kUnread.size()));
      if (std::find(result->notes.begin(), result->notes.end(), unread) == result->notes.end())
        result->notes.push_back(std::move(unread));
    }
  }
  if (!result->own_debugger || on.log.HasNote("folder " + dump)) CountDump(dump, result);
  if (const auto difference = selfcheck::FirstDifference(off.log, on.log)) {
    result->verdict = SelfcheckResult::kDiffers;
    result->reason = "with the tool on the program computes different values, first at {}"_t(
        Message(difference->Text()));
  } else if (result->records == 0) {
    result->reason = "the tool recorded nothing, so the run with the tool proves nothing"_t;
    result->hint = "its output is in {} (with --keep)"_t(on.output);
    result->output = LastLines(on.output, kOutputLines);
  } else {
    result->verdict = SelfcheckResult::kIdentical;
  }
}

}  // namespace

Result<SelfcheckResult> RunSelfcheck(const SelfcheckOptions& options) {
  const char* world = std::getenv("WORLD_SIZE");
  if (world != nullptr && std::atoi(world) > 1) {
    return Unsupported("selfcheck watches programs of one process only"_t)
        .Expected("WORLD_SIZE to be 1 or not set"_t)
        .Found(std::string(world));
  }
  const auto given = [](const std::string& text) {
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
  };
  // A mistake in these would look like a program that fails with the tool on.
  MSPROBE_RETURN_IF_ERROR(
      dump::LoadConfig(options.config,
                       {given(options.task), std::nullopt, given(options.level), {}})
          .status());
  const auto once = [&](const std::string& name, bool with_tool, const std::string& unit,
                        const std::string& drive) {
    if (options.progress) options.progress("running {}"_t(name));
    return RunObserved({.command = options.command,
                        .python = options.python,
                        .folder = options.folder,
                        .name = name,
                        .unit = unit,
                        .drive = drive,
                        .steps = options.steps,
                        .environment = {{"MSPROBE_DISABLE", with_tool ? "" : "1"}}});
  };
  SelfcheckResult result;
  MSPROBE_ASSIGN_OR_RETURN(ObservedRun off, once("off", false, result.unit, ""));
  if (off.code != 0)
    return Failed(result, SelfcheckResult::kUnknown,
                  "the program itself, without the tool, {}"_t(HowItEnded(off.code)), off);
  if (off.log.StepCount() == 0 && HasLoss(off.log)) {
    result.unit = "backward";
    MSPROBE_ASSIGN_OR_RETURN(off, once("off", false, result.unit, ""));
    if (off.code != 0)
      return Failed(result, SelfcheckResult::kUnknown,
                    "the program itself, without the tool, {}"_t(HowItEnded(off.code)), off);
  }
  if (off.log.StepCount() == 0) {
    result.reason = "nothing to compare: neither an optimizer's step nor backward() was seen"_t;
    result.hint =
        "a launcher (torchrun) trains in other processes, which are not checked: pass the "
        "training script itself"_t;
    return result;
  }
  CountValues(off.log, &result);
  result.own_debugger = off.log.HasNote("own debugger");
  MSPROBE_ASSIGN_OR_RETURN(const ObservedRun again, once("off_again", false, result.unit, ""));
  if (again.code != 0)
    return Failed(result, SelfcheckResult::kUnknown,
                  "the program's second run without the tool {}"_t(HowItEnded(again.code)), again);
  if (const auto difference = selfcheck::FirstDifference(off.log, again.log)) {
    result.reason =
        "the program itself is not reproducible: two runs without the tool differ first at {}"_t(
            Message(difference->Text()));
    result.hint =
        "seed every random generator and ask for deterministic algorithms: "
        "msprobe.pytorch.seed_all(mode=True) at the top of the script; msprobe determinism names "
        "the first call whose result differs"_t;
    return result;
  }
  if (result.own_debugger && options.drive_options_given) {
    result.notes.push_back(
        "the script has a PrecisionDebugger of its own: --level, --task and --config have no "
        "effect"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(
      const ObservedRun on,
      once("on", true, result.unit, result.own_debugger ? std::string() : DriveArguments(options)));
  if (on.code != 0)
    return Failed(result, SelfcheckResult::kDiffers,
                  "with the tool on the program {}"_t(HowItEnded(on.code)), on);
  JudgeRuns(off, again, on, JoinPath(options.folder, "dump"), &result);
  return result;
}

}  // namespace msprobe::cli
