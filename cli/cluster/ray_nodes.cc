#include "cli/cluster/ray_nodes.h"

#include <fmt/format.h>
#include <poll.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "cli/cluster/json_integer.h"
#include "cli/cluster/node_answer.h"
#include "cli/command_line/console.h"
#include "cli/programs/program.h"
#include "cli/programs/python_program.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kFrom = "msprobe.core.ray_compare";  // of an answer that is none

std::string ThisDirectory() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

std::string LogIn(const RunFolder& folder) { return JoinPath(folder.path(), "python.log"); }

}  // namespace

Result<RayNodes> RayNodes::Connect(const std::string& address, const std::string& target,
                                   const std::string& golden) {
  MSPROBE_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Make("", "ray"));
  MSPROBE_ASSIGN_OR_RETURN(
      workers::WorkerProcess python,
      workers::WorkerProcess::Start({PythonProgram(), "-m", std::string(kFrom), address},
                                    LogIn(folder)));
  RayNodes nodes(std::move(folder), std::move(python));
  std::string line = "{\"target\": ";
  AppendJsonString(&line, target);
  line += ", \"golden\": ";
  AppendJsonString(&line, golden);
  line += ", \"directory\": ";
  AppendJsonString(&line, ThisDirectory());
  (void)nodes.python_.Send(line + "}");  // of a process that has ended, NextLine says why
  MSPROBE_ASSIGN_OR_RETURN(const std::string answer, nodes.NextLine());
  const size_t tab = answer.find('\t');
  if (tab != answer.npos && !answer.starts_with("{")) {
    return Unsupported(MakePrintable(answer.substr(0, tab)))
        .Hint(MakePrintable(answer.substr(tab + 1)));
  }
  MSPROBE_RETURN_IF_ERROR(nodes.ReadNodes(answer));
  return nodes;
}

Result<std::string> RayNodes::NextLine() {
  std::optional<std::string> line;
  while (!(line = python_.TakeLine()) && !python_.at_end()) {
    pollfd output{.fd = python_.output(), .events = POLLIN, .revents = 0};
    ::poll(&output, 1, /*timeout=*/100);
  }
  if (line) return *std::move(line);
  const Message end = "{}: the process of Python {}"_t(std::string("--ray"), python_.End());
  return Unsupported(Message::Joined({end, MakePrintable(LastLines(LogIn(folder_), 1))}, ": "));
}

Status RayNodes::ReadNodes(const std::string& line) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue answer, formats::ParseJson(line, kFrom));
  for (const formats::JsonValue& value : answer.Member("nodes").items) {
    Node& node = nodes_.emplace_back();
    node.id = value.Member("id").text;
    node.name = MakePrintable(value.Member("name").text);
    node.wrong = MakePrintable(value.Member("wrong").text);
    if (!node.wrong.empty()) continue;
    MSPROBE_ASSIGN_OR_RETURN(node.target, FoundDumpsOf(value.Member("target"), node.name));
    MSPROBE_ASSIGN_OR_RETURN(node.golden, FoundDumpsOf(value.Member("golden"), node.name));
  }
  return Status::Ok();
}

void RayNodes::Start(const Task& task) {
  std::string line =
      fmt::format("{{\"task\": {}, \"most_bytes\": {}, \"node\": ", task.task, kMostBytesOfAnswer);
  AppendJsonString(&line, nodes_[task.node].id);
  line += ", \"file\": ";
  AppendJsonString(&line, task.file);
  line += ", \"directory\": ";
  AppendJsonString(&line, ThisDirectory());
  for (const auto& [key, texts] :
       {std::pair("words", &task.words), std::pair("paths", &task.paths)}) {
    line += fmt::format(", \"{}\": [", key);
    for (size_t i = 0; i < texts->size(); ++i) {
      if (i > 0) line += ", ";
      AppendJsonString(&line, (*texts)[i]);
    }
    line += "]";
  }
  (void)python_.Send(line + "}");  // of a process that has ended, WaitForOne says why
}

Result<RayNodes::Ended> RayNodes::WaitForOne() {
  MSPROBE_ASSIGN_OR_RETURN(const std::string line, NextLine());
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue answer, formats::ParseJson(line, kFrom));
  const std::optional<int64_t> task = IntegerOf(answer.Member("task"), 0, kMostInteger);
  const std::string& state = answer.Member("state").text;
  if (!task) return InvalidDump(kFrom).Expected("a number of a task"_t).Found(Excerpt(line));
  return Ended{.task = static_cast<size_t>(*task),
               .end = state == "answered" ? End::kAnswered
                      : state == "lost"   ? End::kLost
                                          : End::kFailed,
               .said = MakePrintable(answer.Member("said").text)};
}

}  // namespace msprobe::cli
