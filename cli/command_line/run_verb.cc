#include "cli/command_line/run_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/command_line/arguments.h"
#include "cli/command_line/flags.h"
#include "cli/command_line/language_flag.h"

namespace msprobe::cli {
namespace {

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

// A word without its flag, or a flag that is missing. `completed`: the command line with names and
// places for what is missing; "": not known.
Status Misplaced(Message message, const std::string& completed, std::string_view program) {
  Status status = InvalidArgument(std::move(message));
  const std::string help = fmt::format("{} --help", program);
  return completed.empty() ? std::move(status).Hint(help)
                           : std::move(status).Hint("did you mean: {}  ({})"_t(completed, help));
}

}  // namespace

Result<int> RunVerb(Verb& verb, std::vector<std::string> arguments, std::string_view program,
                    Console& console) {
  Flags flags(verb.summary(), program);
  verb.AddFlags(flags);
  AddLanguage(flags);
  if (verb.TakesCommand()) {
    const auto start = arguments.begin() + static_cast<long>(CommandStart(flags, arguments));
    verb.SetCommand({start, arguments.end()});
    arguments.erase(start, arguments.end());
  }
  // Before anything else is said: errors and help are in the language, too.
  MSPROBE_RETURN_IF_ERROR(TakeLanguage(arguments.size(), &arguments));
  const std::vector<std::string> given = arguments;  // as they were typed
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
        return UnknownFlag(flag, program, known);
    }
    Message missing = flags.FirstMissing();
    if (parsed.missing && !missing.empty())
      return Misplaced(std::move(missing), flags.Completed(given, parsed.extra), program);
    const std::string help = fmt::format("{} --help", program);
    return InvalidArgument(parsed.error)
        .Hint(parsed.nearest.empty() ? Message(help)
                                     : "did you mean {}?  ({})"_t(parsed.nearest, help));
  }
  for (const std::string& extra : parsed.extra) {
    if (extra.size() > 1 && extra[0] == '-') return UnknownFlag(extra, program, known);
    return Misplaced("{}: unexpected argument {}"_t(program, Excerpt(extra)),
                     flags.Completed(given, parsed.extra), program);
  }
  return verb.Run(console);
}

}  // namespace msprobe::cli
