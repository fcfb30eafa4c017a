#include "capture/tasks/findings.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {
namespace {

// Raises a ValueError in the main thread, as soon as that thread runs Python code again.
void RaiseInMainThread(std::string text) {
  static auto* message = new std::string;
  *message = std::move(text);
  const auto raise = [](void*) {
    PyErr_SetString(PyExc_ValueError, message->c_str());
    return -1;
  };
  if (Py_AddPendingCall(raise, nullptr) != 0)
    Log(LogLevel::kError, "the program cannot be ended now: " + *message);
}

}  // namespace

void Findings::Count(std::string_view what, int64_t limit, std::string_view kind, int64_t site) {
  ++count_;
  Log(LogLevel::kWarning,
      fmt::format("{} ({}{}){}", what, count_, limit > 0 ? fmt::format(" of {}", limit) : "",
                  recording_->WhereIs(site)));
  const std::string file = recording_->session->last_file();
  if (count_ != limit) return;
  complete_();
  if (recording_->config().pkl && recording_->config().pkl->raises)
    RaiseInMainThread(
        fmt::format("[overflow {} times]: {}; its values are in {}", count_, what, file));
  recording_->session->Conclude(fmt::format("{} calls that {} are recorded", count_, kind));
}

}  // namespace msprobe::capture
