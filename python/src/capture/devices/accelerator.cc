#include "capture/devices/accelerator.h"

#include "capture/devices/torch_calls.h"

namespace msprobe::capture {

Accelerator::Accelerator(std::string type, int64_t index)
    : name_(type + ":" + std::to_string(index)) {
  TorchCalls torch;
  index_ = PyRef::Steal(PyLong_FromLongLong(index));
  device_ = torch.Call(torch.torch(), "device", PyRef::Steal(PyUnicode_FromString(name_.c_str())));
  const PyRef module = torch.Constant(type.c_str());
  current_stream_ = torch.Get(module, "current_stream");
  event_ = torch.Get(module, "Event");
  stream_ = torch.Get(module, "stream");
  usable_ = torch.ok();
  // torch.accelerator.current_stream without its checks in Python; from PyTorch 2.6 on.
  TorchCalls optional;
  stream_mark_ = optional.Get(optional.Constant("_C"), "_accelerator_getStream");
  if (!StreamMark()) stream_mark_ = current_stream_;
}

PyRef Accelerator::CurrentStream() const {
  PyRef stream = PyRef::Steal(PyObject_CallOneArg(current_stream_.get(), index_.get()));
  ClearError();
  return stream;
}

PyRef Accelerator::StreamMark() const {
  PyRef mark =
      PyRef::Steal(stream_mark_ ? PyObject_CallOneArg(stream_mark_.get(), index_.get()) : nullptr);
  ClearError();
  return mark;
}

bool Accelerator::SameStream(const PyRef& a, const PyRef& b) {
  const bool same = a && b && PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1;
  ClearError();
  return same;
}

PyRef Accelerator::Record(const PyRef& stream) const {
  static PyObject* const record = Interned("record");
  TorchCalls torch;
  PyRef event = PyRef::Steal(PyObject_CallNoArgs(event_.get()));
  torch.CallFast(event.get(), record, stream);
  return torch.ok() ? std::move(event) : PyRef();
}

bool Accelerator::HasPassed(const PyRef& event) {
  static PyObject* const query = Interned("query");
  TorchCalls torch;
  return torch.CallFast(event.get(), query).get() == Py_True;
}

bool Accelerator::Wait(const PyRef& event) {
  TorchCalls torch;
  torch.Call(event, "synchronize");
  return torch.ok();
}

Accelerator::OnStream::OnStream(const Accelerator& device, const PyRef& stream) {
  TorchCalls torch;
  manager_ = PyRef::Steal(PyObject_CallOneArg(device.stream_.get(), stream.get()));
  torch.Call(manager_, "__enter__");
  if (!torch.ok()) manager_ = PyRef();
}

Accelerator::OnStream::~OnStream() {
  TorchCalls torch;
  const PyRef none = PyRef::Borrow(Py_None);
  if (manager_) torch.Call(manager_, "__exit__", none, none, none);
}

}  // namespace msprobe::capture
