#include "cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/command_line/arguments.h"
#include "cli/command_line/language_flag.h"
#include "cli/command_line/run_verb.h"
#include "cli/inputs/generation_arguments.h"
#include "cli/verbs.h"
#include "engine/base/messages/language.h"

namespace msprobe::cli {
namespace {

std::string TopLevelHelp(const std::vector<std::unique_ptr<Verb>>& verbs) {
  std::string text = "msprobe " MSPROBE_VERSION ": ";
  text += "compares what two training runs computed and names the first wrong number"_t.Shown() +
          "\n\n" + "usage: msprobe VERB [FLAGS]"_t.Shown() + "\n\n";
  for (const auto& verb : verbs)
    text += fmt::format("  {:<21} {}\n", verb->name(), verb->summary().Shown());
  text += "\n  msprobe compare runs/new/step0 runs/good/step0 -o out\n\n";
  return text + "msprobe VERB --help says more; --lang en or --lang zh, the language."_t.Shown() +
         "\n";
}

}  // namespace

Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console) {
  MSPROBE_RETURN_IF_ERROR(CheckLanguageVariable());
  std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  // msprobe --lang zh VERB; RunVerb looks at the words after the verb.
  const auto first_word = std::find_if(arguments.begin(), arguments.end(), [](const auto& word) {
    return !word.starts_with("-") && LanguageNamed(word) == std::nullopt;
  });
  const auto front = static_cast<size_t>(first_word - arguments.begin());
  MSPROBE_RETURN_IF_ERROR(TakeLanguage(front, &arguments));
  if (BeginsWithFramework(arguments)) {
    // Its errors come before a verb is known, so the whole line is read for the language.
    MSPROBE_RETURN_IF_ERROR(TakeLanguage(arguments.size(), &arguments));
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
  MSPROBE_RETURN_IF_ERROR(TakeLanguage(arguments.size(), &arguments));
  return UnknownVerb(arguments[0], names);
}

}  // namespace msprobe::cli
