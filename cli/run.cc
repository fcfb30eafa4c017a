#include "cli/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/legacy_arguments.h"
#include "cli/verb.h"

namespace msprobe::cli {
namespace {

// Shows the one-dash spelling people know beside the long one.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, positional);
    const std::string_view alias = ShortSpelling(name);
    return alias.empty() ? name : fmt::format("{},{}", alias, name);
  }
};

std::string TopLevelHelp(const std::vector<std::unique_ptr<Verb>>& verbs) {
  std::string text =
      "msprobe " MSPROBE_VERSION
      ": compares what two training runs computed and names the first wrong number\n\n"
      "usage: msprobe VERB [FLAGS]\n\n";
  for (const auto& verb : verbs)
    text += fmt::format("  {:<13} {}\n", verb->name(), verb->summary());
  text +=
      "\n  msprobe compare -tp runs/new/step0 -gp runs/good/step0 -o out\n"
      "\nmsprobe VERB --help says more.\n";
  return text;
}

// Options of a verb, by their long names.
std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
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

// The first word that is neither a flag nor the value of one; "-m" begins a command as well.
size_t CommandStart(const CLI::App& app, const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with("-") && arguments[i] != "-m") {
    const size_t equals = arguments[i].find('=');
    const CLI::Option* option = app.get_option_no_throw(arguments[i].substr(0, equals));
    const bool has_value = option != nullptr && option->get_items_expected_max() > 0;
    i += has_value && equals == std::string::npos ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

Result<int> Parse(Verb& verb, std::vector<std::string> arguments, Console& console) {
  CLI::App app(std::string(verb.summary()), fmt::format("msprobe {}", verb.name()));
  app.formatter(std::make_shared<HelpFormatter>());
  app.allow_extras();
  verb.AddFlags(app);
  if (verb.TakesCommand()) {
    const auto start = arguments.begin() + static_cast<long>(CommandStart(app, arguments));
    verb.SetCommand({start, arguments.end()});
    arguments.erase(start, arguments.end());
  }
  arguments = NormalizeArguments(arguments);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    console.Write(app.help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    // A slip in a flag's name usually also leaves a required flag unset: name the slip.
    for (const std::string& token : arguments) {
      if (token.size() < 2 || token[0] != '-' || (token[1] >= '0' && token[1] <= '9')) continue;
      const std::vector<std::string> known = FlagNames(app);
      const std::string flag = token.substr(0, token.find('='));
      if (std::find(known.begin(), known.end(), flag) == known.end()) {
        return UnknownFlag(flag, verb.name(), known);
      }
    }
    return InvalidArgument(WithShortSpellings(error.what()))
        .Hint(fmt::format("msprobe {} --help", verb.name()));
  }
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra[0] == '-') return UnknownFlag(extra, verb.name(), FlagNames(app));
    return InvalidArgument(
               fmt::format("msprobe {}: unexpected argument {}", verb.name(), Excerpt(extra)))
        .Hint(fmt::format("msprobe {} --help", verb.name()));
  }
  return verb.Run(console);
}

}  // namespace

Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console) {
  std::vector<std::unique_ptr<Verb>> verbs = AllVerbs();
  if (IsLegacyForm(arguments)) {
    MSPROBE_ASSIGN_OR_RETURN(arguments, LegacyArguments(arguments));
  }
  if (arguments.empty() || arguments[0] == "-h" || arguments[0] == "--help" ||
      arguments[0] == "help") {
    console.Write(TopLevelHelp(verbs));
    return kExitOk;
  }
  if (arguments[0] == "--version") arguments[0] = "version";
  std::vector<std::string_view> names;
  for (const auto& verb : verbs) {
    if (verb->name() == arguments[0]) {
      arguments.erase(arguments.begin());
      return Parse(*verb, arguments, console);
    }
    names.push_back(verb->name());
  }
  return UnknownVerb(arguments[0], names);
}

}  // namespace msprobe::cli
