#include "capture/tasks/findings.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {

void RaiseInMainThread(const char* type, const Message& text) {
  struct Pending {
    const char* type;
    std::string message;
  };
  static auto* pending = new Pending;
  *pending = {type, text.Shown()};
  const auto raise = [](void*) {
    PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "msprobe");
    const PyRef error = module == nullptr || *pending->type == 0
                            ? PyRef()
                            : PyRef::Steal(PyObject_GetAttrString(module, pending->type));
    PyErr_SetString(error ? error.get() : PyExc_ValueError, pending->message.c_str());
    return -1;
  };
  if (Py_AddPendingCall(raise, nullptr) != 0)
    Log(LogLevel::kError, "the program cannot be ended now: {}"_t(pending->message));
}

void Findings::Count(const Message& what, int64_t limit, const Message::Format<1>& end,
                     int64_t site) {
  ++count_;
  Log(LogLevel::kWarning, Message::Joined({limit > 0 ? "{} ({} of {})"_t(what, count_, limit)
                                                     : "{} ({})"_t(what, count_),
                                           recording_->WhereIs(site)},
                                          ": "));
  const std::string file = recording_->session->last_file();
  if (count_ != limit) return;
  complete_();
  if (recording_->config().pkl && recording_->config().pkl->raises)
    RaiseInMainThread("", "[overflow {} times]: {}; its values are in {}"_t(count_, what, file));
  recording_->session->Conclude(end(count_));
}

}  // namespace msprobe::capture
