#include "cli/command_line/completion_scripts.h"

#include <fmt/format.h>

#include <utility>

#include "cli/command_line/language_flag.h"

namespace msprobe::cli {
namespace {

// A text in single quotes, which all three shells read alike but for a quote inside.
std::string Quoted(std::string_view text, std::string_view quote_inside) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out.append(quote_inside) : out.append(1, c);
  return out + "'";
}
constexpr std::string_view kPosixQuote = "'\\''", kFishQuote = "\\'";

// The flags that are known by their names, and the arguments that are known by their places. A flag
// that is known by both is in both.
std::vector<FlagInfo> ByName(const VerbCompletion& verb) {
  std::vector<FlagInfo> flags;
  for (const FlagInfo& flag : verb.flags) {
    if (!flag.names.empty()) flags.push_back(flag);
  }
  return flags;
}
std::vector<FlagInfo> ByPlace(const VerbCompletion& verb) {
  std::vector<FlagInfo> flags;
  for (const FlagInfo& flag : verb.flags) {
    if (!flag.place.empty()) flags.push_back(flag);
  }
  return flags;
}

// How the value of a flag is completed in bash.
std::string BashValue(const FlagInfo& flag) {
  if (!flag.choices.empty())
    return fmt::format("_msprobe_words '{}'", fmt::join(flag.choices, " "));
  return flag.takes_path ? "_msprobe_paths" : "return 0";
}

std::string BashVerb(const VerbCompletion& verb) {
  std::string values, names;
  for (const FlagInfo& flag : ByName(verb)) {
    fmt::format_to(std::back_inserter(names), "{}{}", names.empty() ? "" : " ",
                   fmt::join(flag.names, " "));
    // A value that may be left out does not hide the other words.
    if (flag.value.empty() || flag.optional_value) continue;
    values +=
        fmt::format("        {}) {}; return 0 ;;\n", fmt::join(flag.names, "|"), BashValue(flag));
  }
  std::string place = verb.takes_command ? "_msprobe_paths" : ":";
  for (const FlagInfo& flag : ByPlace(verb)) place = BashValue(flag);
  return fmt::format(
      "    {})\n"
      "      case $before in\n"
      "{}"
      "      esac\n"
      "      case $word in\n"
      "        -*) _msprobe_words '{}' ;;\n"
      "        *) {} ;;\n"
      "      esac ;;\n",
      verb.name, values, names, place);
}

std::string BashScript(const std::vector<VerbCompletion>& verbs) {
  std::string names, cases;
  for (const VerbCompletion& verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
    cases += BashVerb(verb);
  }
  return fmt::format(
      R"sh(# Completion of msprobe for bash. In ~/.bashrc: eval "$(msprobe completion bash)"
_msprobe_words() {{ COMPREPLY=($(compgen -W "$1" -- "$word")); }}
_msprobe_paths() {{ compopt -o default 2> /dev/null; COMPREPLY=(); }}

_msprobe() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} verb=1
  COMPREPLY=()
  # bash takes --format=json apart: "--format" "=" "json".
  if [ "$word" = "=" ]; then
    word=
  elif [ "$before" = "=" ]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  # msprobe -f pytorch VERB, as in scripts of msprobe 1.0 to 8.
  case ${{COMP_WORDS[1]}} in -f|--framework) verb=3 ;; esac
  if [ "$COMP_CWORD" -le "$verb" ]; then
    _msprobe_words '{} --help --version'
    return 0
  fi
  case ${{COMP_WORDS[verb]}} in
{}  esac
  return 0
}}
complete -F _msprobe msprobe
)sh",
      names, cases);
}

// The description of a flag in a specification of zsh's _arguments.
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// ":PATH:_files"
std::string ZshValue(const FlagInfo& flag, std::string_view name) {
  std::string text = fmt::format(":{}:", ZshText(name));
  if (!flag.choices.empty()) return text + fmt::format("({})", fmt::join(flag.choices, " "));
  return text + (flag.takes_path ? "_files" : "");
}

std::string ZshVerb(const VerbCompletion& verb) {
  std::string specs;
  const auto add = [&](const std::string& spec) {
    specs += " \\\n        " + Quoted(spec, kPosixQuote);
  };
  for (const FlagInfo& flag : ByName(verb)) {
    std::string value;
    if (!flag.value.empty()) value = (flag.optional_value ? ":" : "") + ZshValue(flag, flag.value);
    for (const std::string& name : flag.names) {
      // Without the star, a flag is offered once, and not after its other spellings.
      const std::string once =
          flag.repeated ? "*" : fmt::format("({})", fmt::join(flag.names, " "));
      const bool assigned = name.starts_with("--") && !flag.value.empty() && !flag.optional_value;
      add(fmt::format("{}{}{}[{}]{}", once, name, assigned ? "=" : "", ZshText(flag.help.Shown()),
                      value));
    }
  }
  for (const FlagInfo& flag : ByPlace(verb)) add(ZshValue(flag, flag.place));
  if (verb.takes_command) add("*::SCRIPT:_files");
  return fmt::format("    {})\n      _arguments{} ;;\n", verb.name, specs);
}

std::string ZshScript(const std::vector<VerbCompletion>& verbs) {
  std::string names, cases;
  for (const VerbCompletion& verb : verbs) {
    names += fmt::format(
        "    {}\n",
        Quoted(fmt::format("{}:{}", verb.name, ZshText(verb.summary.Shown())), kPosixQuote));
    cases += ZshVerb(verb);
  }
  return fmt::format(
      R"sh(#compdef msprobe
# Completion of msprobe for zsh. In ~/.zshrc, after compinit: eval "$(msprobe completion zsh)"
_msprobe() {{
  local -a verbs
  verbs=(
{}  )
  # msprobe -f pytorch VERB, as in scripts of msprobe 1.0 to 8.
  if [[ $words[2] == -f || $words[2] == --framework ]] && (( CURRENT > 3 )); then
    words=($words[1] $words[4,-1])
    (( CURRENT -= 2 ))
  fi
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT -= 1 ))
  case $verb in
{}  esac
}}
if [[ $funcstack[1] == _msprobe ]]; then
  _msprobe "$@"
else
  compdef _msprobe msprobe
fi
)sh",
      names, cases);
}

std::string FishVerb(const VerbCompletion& verb) {
  const std::string begin =
      fmt::format("complete -c msprobe -n '__fish_seen_subcommand_from {}'", verb.name);
  std::string text;
  for (const FlagInfo& flag : ByName(verb)) {
    text += begin;
    for (const std::string& name : flag.names) {
      const bool is_long = name.starts_with("--");
      text += is_long ? " -l " + name.substr(2)
                      : fmt::format(" -{} {}", name.size() == 2 ? 's' : 'o', name.substr(1));
    }
    if (!flag.value.empty() && !flag.optional_value) text += " -r";
    if (!flag.choices.empty()) {
      text += fmt::format(" -f -a '{}'", fmt::join(flag.choices, " "));
    } else if (!flag.value.empty()) {
      text += flag.takes_path ? " -F" : " -f";
    }
    text += fmt::format(" -d {}\n", Quoted(flag.help.Shown(), kFishQuote));
  }
  bool paths = verb.takes_command;
  for (const FlagInfo& flag : ByPlace(verb)) {
    paths = paths || flag.takes_path;
    if (!flag.choices.empty())
      text += fmt::format("{} -a '{}'\n", begin, fmt::join(flag.choices, " "));
  }
  return text + (paths ? begin + " -F\n" : "");
}

std::string FishScript(const std::vector<VerbCompletion>& verbs) {
  std::string text =
      "# Completion of msprobe for fish. In ~/.config/fish/config.fish: msprobe completion fish | "
      "source\n"
      "complete -c msprobe -f\n";
  for (const VerbCompletion& verb : verbs) {
    text += fmt::format("complete -c msprobe -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                        Quoted(verb.summary.Shown(), kFishQuote));
  }
  for (const VerbCompletion& verb : verbs) text += FishVerb(verb);
  return text;
}

}  // namespace

std::vector<VerbCompletion> Completions(const std::vector<std::unique_ptr<Verb>>& verbs) {
  std::vector<VerbCompletion> all;
  for (const std::unique_ptr<Verb>& verb : verbs) {
    Flags flags(verb->summary(), verb->name());
    verb->AddFlags(flags);
    AddLanguage(flags);
    VerbCompletion& completion = all.emplace_back(VerbCompletion{
        std::string(verb->name()), verb->summary(), flags.All(), verb->TakesCommand()});
    completion.flags.push_back(
        {.names = {"-h", "--help"}, .help = "the flags that people use first"_t});
    completion.flags.push_back({.names = {"--help-all"}, .help = "all flags"_t});
  }
  return all;
}

std::string CompletionScript(std::string_view shell, const std::vector<VerbCompletion>& verbs) {
  if (shell == "zsh") return ZshScript(verbs);
  if (shell == "fish") return FishScript(verbs);
  return BashScript(verbs);
}

}  // namespace msprobe::cli
