#include "cli/inputs/generation_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace msprobe::cli {
namespace {

constexpr std::string_view kHint = "msprobe -f pytorch compare -i compare.json -o out";

// Takes flags and their values from a list of words: "--input_path=x" as well as "--input_path"
// "x".
struct Words {
  const std::vector<std::string>& all;
  size_t at;

  bool Is(std::string_view short_name, std::string_view long_name) const {
    const std::string_view word = std::string_view(all[at]).substr(0, all[at].find('='));
    return word == short_name || word == long_name;
  }
  Result<std::string> Value() {
    const size_t equals = all[at].find('=');
    if (equals != std::string::npos) return all[at].substr(equals + 1);
    if (at + 1 == all.size() || all[at + 1].starts_with("-")) {
      return InvalidArgument("{} needs a value"_t(all[at])).Hint(kHint);
    }
    return all[++at];
  }
};

Result<std::vector<std::string>> TranslateCompare(const std::vector<std::string>& arguments) {
  std::vector<std::string> flags;
  std::string input_path;
  for (Words words{arguments, 3}; words.at < arguments.size(); ++words.at) {
    const std::string& word = arguments[words.at];
    if (word == "-h" || word == "--help") return std::vector<std::string>{"compare", "--help"};
    if (words.Is("-i", "--input_path")) {
      MSPROBE_ASSIGN_OR_RETURN(input_path, words.Value());
    } else {
      flags.push_back(word);
    }
  }
  // `msprobe -f mindspore compare TARGET GOLDEN`: the dumps tell their framework themselves.
  const bool paths = !flags.empty() && (!flags[0].starts_with("-") || flags[0] == "-tp" ||
                                        flags[0].starts_with("--target_path"));
  if (input_path.empty() && paths) {
    flags.insert(flags.begin(), "compare");
    return flags;
  }
  if (input_path.empty()) {
    return InvalidArgument("-i compare.json is missing: with -f, compare takes its paths from it"_t)
        .Hint("-i compare.json, or without -f: msprobe compare TARGET GOLDEN"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(const compare::CompareInput input,
                           compare::ReadCompareInput(input_path));
  return TranslateCompareArguments(flags, input);
}

std::string JoinedByCommas(const std::vector<int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

// `msprobe -f pytorch graph -i compare.json -o out -lm -oc -f`.
Result<std::vector<std::string>> TranslateGraph(const std::vector<std::string>& arguments) {
  std::vector<std::string> flags;
  std::string input_path;
  for (Words words{arguments, 3}; words.at < arguments.size(); ++words.at) {
    const std::string& word = arguments[words.at];
    if (words.Is("-i", "--input_path")) {
      MSPROBE_ASSIGN_OR_RETURN(input_path, words.Value());
    } else {
      flags.push_back(word == "-f" ? "--fuzzy_match" : word);
    }
  }
  std::vector<std::string> out = {"graph_visualize"};
  if (!input_path.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(const compare::CompareInput input,
                             compare::ReadCompareInput(input_path, compare::InputUse::kGraph));
    out.insert(out.end(), {"--target_path", input.target});
    if (!input.golden.empty()) out.insert(out.end(), {"--golden_path", input.golden});
    if (!input.golden.empty() && input.print_log) out.push_back("--is_print_compare_log");
    if (!input.ranks.empty()) out.insert(out.end(), {"--rank", JoinedByCommas(input.ranks)});
    if (!input.steps.empty()) out.insert(out.end(), {"--step", JoinedByCommas(input.steps)});
  }
  out.insert(out.end(), flags.begin(), flags.end());
  return out;
}

// The --rename expression that changes `from` to `to` in the names of files such as
// input_float32_1.npy, where the dtype and a number follow.
std::string RenameOf(const std::string& from, const std::string& to) {
  const auto quoted = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') || c == '_' || static_cast<signed char>(c) < 0;
      if (!plain) out += '\\';
      out += c;
    }
    return out;
  };
  return "s/(^|\\/)" + quoted(from) + "(_[A-Za-z0-9]+_[0-9]+)$/\\1" + quoted(to) + "\\2/";
}

}  // namespace

Result<std::vector<std::string>> TranslateCompareArguments(const std::vector<std::string>& flags,
                                                           const compare::CompareInput& input) {
  std::vector<std::string> rest;
  bool stacks = false, advisor = true, first = false;
  for (Words words{flags, 0}; words.at < flags.size(); ++words.at) {
    const std::string& word = flags[words.at];
    if (word == "-s" || word == "--stack_mode") {
      stacks = true;
    } else if (word == "-c" || word == "--compare_only" || word == "-a" ||
               word == "--auto_analyze") {
      advisor = false;
    } else if (word == "-f") {
      rest.push_back("--fuzzy_match");
    } else if (word == "-hl") {
      rest.push_back("--highlight");
    } else if (words.Is("--table-format", "--table_format")) {
      MSPROBE_ASSIGN_OR_RETURN(const std::string format, words.Value());
      first = format == "1.0";
      rest.insert(rest.end(), {"--table-format", format});
    } else {
      rest.push_back(word);
    }
  }
  std::vector<std::string> out = {"compare",       "--target_path", input.target,
                                  "--golden_path", input.golden,    "--xlsx"};
  out.insert(out.end(), rest.begin(), rest.end());
  const auto has = [&](std::string_view flag) {
    for (const std::string& word : rest) {
      if (word == flag) return true;
    }
    return false;
  };
  if (!has("--table-format")) out.insert(out.end(), {"--table-format", "auto"});
  if (advisor) out.push_back("--advisor");
  // Without a stack_path, msprobe 8 shows the stacks that it finds.
  const bool shown = stacks || (!input.has_stack && !first);
  if (!shown) out.push_back("--no-stacks");
  if (!input.ranks.empty()) out.insert(out.end(), {"--rank", JoinedByCommas(input.ranks)});
  if (!input.steps.empty()) out.insert(out.end(), {"--step", JoinedByCommas(input.steps)});
  for (const auto& [from, to] : input.renamed)
    out.insert(out.end(), {"--rename", RenameOf(from, to)});
  if (input.print_log) out.push_back("--is_print_compare_log");
  return out;
}

bool BeginsWithFramework(const std::vector<std::string>& arguments) {
  return !arguments.empty() &&
         (arguments[0] == "-f" || arguments[0].substr(0, arguments[0].find('=')) == "--framework");
}

Result<std::vector<std::string>> TranslateArguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  if (const size_t equals = words[0].find('='); equals != std::string::npos) {
    words.insert(words.begin() + 1, words[0].substr(equals + 1));
    words[0].resize(equals);
  }
  if (words.size() < 3) return std::vector<std::string>{"--help"};
  if (words[1] != "pytorch" && words[1] != "mindspore") {
    return InvalidArgument()
        .Expected("pytorch or mindspore after {}"_t(words[0]))
        .Found(Excerpt(words[1]))
        .Hint(kHint);
  }
  if (words[2] == "compare") return TranslateCompare(words);
  if (words[2] == "graph") return TranslateGraph(words);
  return std::vector<std::string>(words.begin() + 2, words.end());
}

}  // namespace msprobe::cli
