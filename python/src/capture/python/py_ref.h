// An owned Python reference. All functions of this folder need the GIL unless they say otherwise.
#pragma once

#include <Python.h>

#include <string>
#include <string_view>
#include <utility>

namespace msprobe::capture {

// Clears a Python error of our own work. A KeyboardInterrupt (Ctrl-C) belongs to the program, also
// when it was raised in our code: it is raised again as soon as the program runs. No signal is sent
// for that, because SIGINT may be ignored and the program's handler has been called already.
inline void ClearError() {
  if (PyErr_Occurred() == nullptr) return;
  const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
  PyErr_Clear();
  if (!interrupted) return;
  const auto raise = [](void*) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return -1;
  };
  if (Py_AddPendingCall(raise, nullptr) != 0)
    PyErr_SetInterrupt();  // the queue of 32 calls is full
}

class PyRef {
 public:
  PyRef() = default;
  static PyRef Steal(PyObject* object) { return PyRef(object); }
  static PyRef Borrow(PyObject* object) {
    Py_XINCREF(object);
    return PyRef(object);
  }
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef&& other) noexcept {
    PyObject* old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  PyRef(const PyRef& other) : PyRef(Borrow(other.object_)) {}
  PyRef& operator=(const PyRef& other) { return *this = PyRef(other); }
  ~PyRef() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit PyRef(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// UTF-8 text of a str, or "" (no error set) for anything else; lives as long as the object.
inline std::string_view Utf8(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {};
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) {
    ClearError();
    return "?";
  }
  return {data, static_cast<size_t>(size)};
}

// str(object), "" when that raises.
inline std::string StrOf(PyObject* object) {
  PyRef text = PyRef::Steal(PyObject_Str(object));
  if (!text) {
    ClearError();
    return {};
  }
  return std::string(Utf8(text.get()));
}

// The name of a type; "unknown" when the object is not a type.
inline std::string_view TypeName(PyObject* type) {
  return type != nullptr && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type)->tp_name
                                               : "unknown";
}

// Releases the GIL for as long as an object of this class lives, so that other threads run Python.
class ReleasedGil {
 public:
  ReleasedGil() = default;
  ~ReleasedGil() { PyEval_RestoreThread(state_); }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_ = PyEval_SaveThread();
};

// Saves the pending Python exception, and restores it in the destructor. Code of ours that may
// raise and clear errors stands in between.
class KeepError {
 public:
  KeepError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~KeepError() {
    ClearError();
    PyErr_Restore(type_, value_, traceback_);
  }
  std::string text() const { return value_ == nullptr ? std::string() : StrOf(value_); }
  KeepError(const KeepError&) = delete;
  KeepError& operator=(const KeepError&) = delete;

 private:
  PyObject *type_, *value_, *traceback_;
};

}  // namespace msprobe::capture
