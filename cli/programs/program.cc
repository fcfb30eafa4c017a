#include "cli/programs/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/file.h"
#include "engine/base/system_calls.h"
#include "engine/base/temporary_files.h"

namespace msprobe::cli {
namespace {

std::vector<std::string> Environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool kept = true;
    for (const auto& [name, value] : changes) kept = kept && !text.starts_with(name + "=");
    if (kept) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Starts `words` with the redirections `files`, and waits.
Result<int> Run(const std::vector<std::string>& words, posix_spawn_file_actions_t* files,
                const std::vector<std::string>& variables) {
  pid_t child = 0;
  // Signals that this program waits for are not blocked in the child.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  const sigset_t mask = SignalMaskOfChildren();
  ::posix_spawnattr_setsigmask(&attributes, &mask);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&child, words[0].c_str(), files, &attributes,
                                   Pointers(words).data(), Pointers(variables).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(files);
  if (error == ENOENT) return NotFound(words[0]).Expected("a program"_t);
  if (error != 0) return IoError(words[0], "run"_t, error);
  int status = 0;
  if (Uninterrupted([&] { return ::waitpid(child, &status, 0); }) < 0)
    return IoError(words[0], "wait for"_t, errno);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

Result<int> RunProgram(const std::vector<std::string>& words, const std::string& output,
                       const std::vector<std::pair<std::string, std::string>>& environment) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::posix_spawn_file_actions_adddup2(&files, 1, 2);
  return Run(words, &files, Environment(environment));
}

Result<int> RunShellLine(const std::string& line) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  if (::isatty(STDIN_FILENO) != 1)
    ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  return Run({"/bin/sh", "-c", line}, &files, Environment({}));
}

std::string LastLines(const std::string& path, size_t count) {
  const Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return "";
  std::string_view text = file->bytes();
  while (text.ends_with('\n')) text.remove_suffix(1);
  size_t start = text.size();
  for (size_t i = 0; i < count && start > 0 && start != std::string_view::npos; ++i)
    start = text.rfind('\n', start - 1);
  return std::string(start == std::string_view::npos ? text : text.substr(start + (start > 0)));
}

std::string BesideThisProgram(const std::string& name) {
  char path[4096];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  if (size <= 0) return "";
  const std::string file =
      JoinPath(DirectoryName(std::string_view(path, static_cast<size_t>(size))), name);
  return ::access(file.c_str(), X_OK) == 0 ? file : "";
}

}  // namespace msprobe::cli
