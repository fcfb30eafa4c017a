#include "capture/tasks/findings.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {

void RaiseInMainThread(const char* type, std::string text) {
  struct Pending {
    const char* type;
    std::string message;
  };
  static auto* pending = new Pending;
  *pending = {type, std::move(text)};
  const auto raise = [](void*) {
    PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "msprobe");
    const PyRef error = module == nullptr || *pending->type == 0
                            ? PyRef()
                            : PyRef::Steal(PyObject_GetAttrString(module, pending->type));
    PyErr_SetString(error ? error.get() : PyExc_ValueError, pending->message.c_str());
    return -1;
  };
  if (Py_AddPendingCall(raise, nullptr) != 0)
    Log(LogLevel::kError, "the program cannot be ended now: " + pending->message);
}

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
        "", fmt::format("[overflow {} times]: {}; its values are in {}", count_, what, file));
  recording_->session->Conclude(fmt::format("{} calls that {} are recorded", count_, kind));
}

}  // namespace msprobe::capture
