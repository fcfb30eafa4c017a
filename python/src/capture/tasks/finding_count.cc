#include "capture/tasks/finding_count.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {
namespace {

// In the main thread, as soon as it runs Python code again.
void RaiseSoon(std::string text) {
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

void FoundCalls::Count(std::string_view what, int64_t limit, std::string_view kind, int64_t site) {
  ++found_;
  Log(LogLevel::kWarning,
      fmt::format("{} ({}{}){}", what, found_, limit > 0 ? fmt::format(" of {}", limit) : "",
                  recording_->WhereIs(site)));
  const std::string file = recording_->session->last_file();
  if (found_ != limit) return;
  complete_();
  if (recording_->config().pkl && recording_->config().pkl->raises)
    RaiseSoon(fmt::format("[overflow {} times]: {}; its values are in {}", found_, what, file));
  recording_->session->Conclude(fmt::format("{} calls that {} are recorded", found_, kind));
}

}  // namespace msprobe::capture
