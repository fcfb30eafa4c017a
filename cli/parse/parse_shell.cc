#include "cli/parse/parse_shell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "cli/command_line/run_verb.h"
#include "cli/parse/parse_commands.h"
#include "cli/programs/program.h"
#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kPrompt = "Parse >>> ";
constexpr std::string_view kQuit[] = {"quit", "exit", "q", "bye"};
constexpr size_t kLongestLine = 1 << 20;

// Flags of the older shell with one dash and several letters.
constexpr std::pair<std::string_view, std::string_view> kOldFlags[] = {
    {"-out", "--output_path"},      {"-al", "--atol"},         {"-rl", "--rtol"},
    {"-cmp_path", "--ascend_path"}, {"-asc", "--ascend_path"}, {"--cmp_path", "--ascend_path"},
};

// Lines of a file descriptor. Not std::getline: a line without end must not fill the memory.
class Lines {
 public:
  explicit Lines(int descriptor) : descriptor_(descriptor) {}

  // nullopt at the end, and after Ctrl-C where the signal does not end the program.
  Result<std::optional<std::string>> Next() {
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos || (at_end_ && !buffer_.empty())) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end == std::string::npos ? buffer_.size() : end + 1);
        return std::optional(std::move(line));
      }
      if (at_end_) return std::optional<std::string>();
      if (buffer_.size() > kLongestLine)
        return InvalidArgument("a command has at most 1 MiB on its line"_t);
      char bytes[4096];
      const ssize_t n = ::read(descriptor_, bytes, sizeof(bytes));
      if (n < 0 && errno == EINTR) return std::optional<std::string>();
      if (n < 0) return IoError("standard input", "read"_t, errno);
      at_end_ = n == 0;
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }

 private:
  int descriptor_;
  bool at_end_ = false;
  std::string buffer_;
};

std::vector<std::string> WithLongFlags(std::vector<std::string> words) {
  for (std::string& word : words) {
    const size_t equals = word.find('=');
    for (const auto& [old, flag] : kOldFlags) {
      if (word.substr(0, equals) != old) continue;
      word.replace(0, old.size(), flag);
      break;
    }
  }
  return words;
}

}  // namespace

bool IsParseCommand(std::string_view word) {
  if (word == "run" || word == "help") return true;
  for (const auto& command : ParseCommands()) {
    if (command->name() == word) return true;
  }
  return false;
}

Message ParseCommandsHelp() {
  std::vector<Message> lines;
  const auto add = [&](std::string_view name, Message summary) {
    lines.push_back("  {:<5} {}"_t(name, std::move(summary)));
  };
  for (const auto& command : ParseCommands()) add(command->name(), command->summary());
  add("run", "run a line of the system's shell; only with --allow-run"_t);
  add("help", "this list; pt --help says more of pt"_t);
  add("quit", "leave"_t);
  return Message::Joined(std::move(lines), "\n");
}

Result<std::vector<std::string>> SplitShellWords(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool escapes = quote == '\0' || (quote == '"' && i + 1 < line.size() &&
                                           (line[i + 1] == '"' || line[i + 1] == '\\'));
    const bool blank = quote == '\0' && (c == ' ' || c == '\t' || c == '\r' || c == '\n');
    if (blank) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '\\' && escapes) {
      if (++i < line.size()) words.back() += line[i];
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = '\0';
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') {
    return InvalidArgument()
        .Expected("a closing {}"_t(quote))
        .Found("the end of the line: {}"_t(Excerpt(line)));
  }
  return words;
}

Result<int> ParseShell::RunLine(std::string_view line, Console& out) const {
  if (!options_.allow_run) {
    return InvalidArgument(
               "other programs run only where --allow-run was given: {}"_t(Excerpt(line)))
        .Hint("help shows the commands; msprobe parse --allow-run"_t);
  }
  MSPROBE_RETURN_IF_ERROR(out.Flush());
  MSPROBE_ASSIGN_OR_RETURN(const int code, RunShellLine(std::string(line)));
  if (code == 0) return kExitOk;
  out.Warn(code < 0 ? "ended by signal {}"_t(-code) : "ended with exit code {}"_t(code));
  return kExitError;
}

Result<int> ParseShell::Do(const std::vector<std::string>& words, Console& out) const {
  if (words.empty()) return kExitOk;
  if (words[0] == "help") {
    out.Write(ParseCommandsHelp().Shown() + "\n");
    return kExitOk;
  }
  if (words[0] == "run") {
    std::string line;
    for (size_t i = 1; i < words.size(); ++i) line += (i > 1 ? " " : "") + words[i];
    return RunLine(line, out);
  }
  for (const auto& command : ParseCommands()) {
    if (command->name() != words[0]) continue;
    return RunVerb(*command, WithLongFlags({words.begin() + 1, words.end()}), words[0], out);
  }
  return InvalidArgument()
      .Expected("pt, cn, pk, vc, dc, cad, run, help or quit"_t)
      .Found(Excerpt(words[0]));
}

bool ParseShell::DoLine(const std::string& line, Console& out, int* code) const {
  const std::string text(Trim(line));
  if (text.empty() || text[0] == '#') return true;
  const std::string lower = Lower(text);
  if (std::find(std::begin(kQuit), std::end(kQuit), lower) != std::end(kQuit)) return false;
  const std::string first = text.substr(0, text.find_first_of(" \t"));
  Result<int> done = kExitOk;
  if (first == "run") {
    // The system's shell gets the rest as it is, with its quotes.
    done = RunLine(Trim(std::string_view(text).substr(first.size())), out);
  } else if (!IsParseCommand(first)) {
    done = RunLine(text, out);
  } else {
    const Result<std::vector<std::string>> words = SplitShellWords(text);
    done = words.ok() ? Do(*words, out) : Result<int>(words.status());
  }
  if (!done.ok()) out.Error(done.status());
  const int result = done.ok() ? *done : kExitError;
  if (result != kExitDiffers || options_.exit_code) *code = std::max(*code, result);
  return true;
}

Result<int> ParseShell::Read(int descriptor, Console& out) {
  const bool person = ::isatty(descriptor) == 1;
  if (person) out.Tell("help shows the commands, quit leaves"_t);
  int code = kExitOk;
  Lines lines(descriptor);
  while (true) {
    if (person) out.Write(kPrompt);
    MSPROBE_RETURN_IF_ERROR(out.Flush());
    MSPROBE_ASSIGN_OR_RETURN(const std::optional<std::string> line, lines.Next());
    if (!line || !DoLine(*line, out, &code)) break;
  }
  out.ClearProgress();
  return person ? kExitOk : code;
}

}  // namespace msprobe::cli
