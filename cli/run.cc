#include "cli/run.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/command_line/arguments.h"
#include "cli/command_line/run_verb.h"
#include "cli/inputs/generation_arguments.h"
#include "cli/verbs.h"

namespace msprobe::cli {
namespace {

std::string TopLevelHelp(const std::vector<std::unique_ptr<Verb>>& verbs) {
  std::string text =
      "msprobe " MSPROBE_VERSION
      ": compares what two training runs computed and names the first wrong number\n\n"
      "usage: msprobe VERB [FLAGS]\n\n";
  for (const auto& verb : verbs)
    text += fmt::format("  {:<21} {}\n", verb->name(), verb->summary());
  text +=
      "\n  msprobe compare runs/new/step0 runs/good/step0 -o out\n"
      "\nmsprobe VERB --help says more.\n";
  return text;
}

}  // namespace

Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console) {
  std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  if (BeginsWithFramework(arguments)) {
    MSPROBE_ASSIGN_OR_RETURN(arguments, TranslateArguments(arguments));
  }
  if (arguments.empty() || arguments[0] == "-h" || arguments[0] == "--help" ||
      arguments[0] == "help") {
    console.Write(TopLevelHelp(verbs));
    return kExitOk;
  }
  if (arguments[0] == "--version") arguments[0] = "version";
  // Names of msprobe 26.
  if (arguments[0] == "acc_check") arguments[0] = "run_ut";
  if (arguments[0] == "multi_acc_check") arguments[0] = "multi_run_ut";
  std::vector<std::string_view> names;
  for (const auto& verb : verbs) {
    if (verb->name() == arguments[0]) {
      arguments.erase(arguments.begin());
      return RunVerb(*verb, arguments, fmt::format("msprobe {}", verb->name()), console);
    }
    names.push_back(verb->name());
  }
  return UnknownVerb(arguments[0], names);
}

}  // namespace msprobe::cli
