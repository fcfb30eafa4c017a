#include "cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/flags.h"
#include "cli/generation_arguments.h"
#include "cli/verb.h"

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

// "--golden_path is required" -> "-gp (--golden_path) is required".
std::string WithShortSpellings(std::string message) {
  for (const FlagAlias& a : FlagAliases()) {
    const size_t at = message.find(a.long_name);
    if (at == std::string::npos || a.alias != ShortSpelling(a.long_name)) continue;
    message.replace(at, a.long_name.size(), fmt::format("{} ({})", a.alias, a.long_name));
  }
  return message;
}

// The index of the first word that is neither a flag nor a flag's value. "-m" begins a command too.
size_t CommandStart(const Flags& flags, const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with("-") && arguments[i] != "-m") {
    const size_t equals = arguments[i].find('=');
    const bool has_value = flags.TakesValue(arguments[i].substr(0, equals));
    i += has_value && equals == std::string::npos ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

}  // namespace

Result<int> RunVerb(Verb& verb, std::vector<std::string> arguments, std::string_view program,
                    Console& console) {
  Flags flags(verb.summary(), program);
  verb.AddFlags(flags);
  if (verb.TakesCommand()) {
    const auto start = arguments.begin() + static_cast<long>(CommandStart(flags, arguments));
    verb.SetCommand({start, arguments.end()});
    arguments.erase(start, arguments.end());
  }
  arguments = NormalizeArguments(arguments);
  const Flags::Parsed parsed = flags.Parse(arguments);
  if (parsed.help || parsed.help_all) {
    constexpr int kWidest = 100;
    console.Write(flags.Help(parsed.help_all, std::min(console.width(), kWidest)));
    return kExitOk;
  }
  const std::vector<std::string> known = flags.Names();
  if (!parsed.error.empty()) {
    // A mistake in a flag's name often leaves a required flag without a value: report the mistake.
    for (const std::string& token : arguments) {
      if (token.size() < 2 || token[0] != '-' || (token[1] >= '0' && token[1] <= '9')) continue;
      const std::string flag = token.substr(0, token.find('='));
      if (std::find(known.begin(), known.end(), flag) == known.end())
        return UnknownFlag(flag, verb.name(), known);
    }
    return InvalidArgument(WithShortSpellings(parsed.error))
        .Hint(fmt::format("{} --help", program));
  }
  for (const std::string& extra : parsed.extra) {
    if (extra.size() > 1 && extra[0] == '-') return UnknownFlag(extra, verb.name(), known);
    return InvalidArgument(fmt::format("{}: unexpected argument {}", program, Excerpt(extra)))
        .Hint(fmt::format("{} --help", program));
  }
  return verb.Run(console);
}

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
