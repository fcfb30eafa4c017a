#include "engine/dump/write/folder_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <map>

#include "engine/base/file.h"
#include "engine/base/log.h"

namespace msprobe::dump {
namespace {

struct Claim {
  bool granted = true;
  int fd = -1;  // holds the lock until the process ends
};

std::map<std::string, Claim>& Claims() {
  static auto* claims = new std::map<std::string, Claim>;  // never destroyed: used until exit
  return *claims;
}

// A run whose dump_path changes with each stage has a claim for each: the oldest are released, so
// that they do not use up the process's descriptors.
constexpr size_t kMostClaims = 128;

void ReleaseOldest(const std::string& newest) {
  static auto& order = *new std::deque<std::string>;
  order.push_back(newest);
  if (order.size() <= kMostClaims) return;
  const auto oldest = Claims().find(order.front());
  order.pop_front();
  if (oldest == Claims().end()) return;
  if (oldest->second.fd >= 0) ::close(oldest->second.fd);
  Claims().erase(oldest);
}

Claim Ask(const std::string& folder) {
  if (!MakeDirectories(folder).ok()) return {};  // the first write reports the error
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {};
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {.fd = fd};
  const bool taken = errno == EWOULDBLOCK;
  ::close(fd);
  return {.granted = !taken};
}

}  // namespace

std::string ClaimFolder(const std::string& dump_path, const std::string& step,
                        const std::string& name) {
  const std::string other = fmt::format("proc{}", ::getpid());
  const auto [it, is_new] = Claims().try_emplace(JoinPath(dump_path, name));
  if (is_new) {
    const std::string folder = JoinPath(JoinPath(dump_path, step), name);
    it->second = Ask(folder);
    if (!it->second.granted)
      Log(LogLevel::kWarning,
          "another process writes to {}; this one writes to {}. Ranks are known from "
          "init_process_group before start(), or from RANK and WORLD_SIZE; other runs "
          "need another dump_path"_t(folder, other));
  }
  std::string answer = it->second.granted ? name : other;
  if (is_new) ReleaseOldest(it->first);
  return answer;
}

void ForgetClaims() {
  // The descriptors are closed and not unlocked: an unlock would release the parent's lock as well.
  for (const auto& [folder, claim] : Claims()) {
    if (claim.fd >= 0) ::close(claim.fd);
  }
  Claims().clear();
}

}  // namespace msprobe::dump
