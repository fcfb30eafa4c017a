#include "capture/stability/held_call.h"

#include "capture/python/torch_api.h"
#include "capture/stability/framework_state.h"
#include "capture/values/tensor_access.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxDepth = 32;

// Calls visit(value) for the values in tuples, lists and dicts that are no containers themselves.
template <typename Visit>
void ForEachValue(PyObject* value, const Visit& visit, int depth = 0) {
  if (value == nullptr || depth > kMaxDepth) return;
  if (PyDict_Check(value)) {
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item);)
      ForEachValue(item, visit, depth + 1);
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      ForEachValue(PySequence_Fast_GET_ITEM(value, i), visit, depth + 1);
  } else {
    visit(value);
  }
}

using Known = std::vector<std::pair<PyObject*, PyRef>>;

PyRef Mapped(PyObject* value, const HeldCall::Change& change, Known* known, int depth = 0);

// A sequence of the same type with mapped elements; the same object when nothing was mapped.
PyRef MappedSequence(PyObject* value, const HeldCall::Change& change, Known* known, int depth) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  PyRef list = PyRef::Steal(PyList_New(count));
  bool is_same = true;
  for (Py_ssize_t i = 0; list && i < count; ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(value, i);
    PyRef mapped = Mapped(item, change, known, depth + 1);
    if (!mapped) return PyRef();
    is_same = is_same && mapped.get() == item;
    PyList_SET_ITEM(list.get(), i, mapped.release());
  }
  if (is_same) return PyRef::Borrow(value);
  if (PyList_CheckExact(value)) return list;
  if (PyTuple_CheckExact(value)) return PyRef::Steal(PyList_AsTuple(list.get()));
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  return PyRef::Steal(PyObject_HasAttrString(type, "_make")
                          ? PyObject_CallMethod(type, "_make", "O", list.get())
                          : PyObject_CallOneArg(type, list.get()));
}

PyRef Mapped(PyObject* value, const HeldCall::Change& change, Known* known, int depth) {
  if (depth > kMaxDepth) return PyRef();
  if (PyTuple_Check(value) || PyList_Check(value))
    return MappedSequence(value, change, known, depth);
  if (PyDict_Check(value)) {
    PyRef copy = PyRef::Steal(PyDict_Copy(value));
    PyObject *key, *item;
    for (Py_ssize_t at = 0; copy && PyDict_Next(value, &at, &key, &item);) {
      const PyRef mapped = Mapped(item, change, known, depth + 1);
      if (!mapped || PyDict_SetItem(copy.get(), key, mapped.get()) != 0) return PyRef();
    }
    return copy;
  }
  if (!TorchApi::Get().IsTensor(value)) return PyRef::Borrow(value);
  for (const auto& [from, to] : *known) {
    if (from == value) return to;
  }
  return known->emplace_back(value, change(value)).second;
}

bool IsCapturing() {
  PyObject* const ask = Named("torch.cuda.is_current_stream_capturing");
  const PyRef answer = ask != nullptr ? PyRef::Steal(PyObject_CallNoArgs(ask)) : PyRef();
  ClearError();
  return answer && answer.get() == Py_True;
}

}  // namespace

std::vector<PyObject*> TensorsIn(PyObject* value) {
  std::vector<PyObject*> tensors;
  ForEachValue(value, [&](PyObject* each) {
    if (TorchApi::Get().IsTensor(each)) tensors.push_back(each);
  });
  return tensors;
}

PyRef Detached(PyObject* tensor) { return CallMethod(tensor, "detach"); }

namespace {

constexpr int64_t kAlignment = 64;  // bytes

int64_t Number(const PyRef& number) {
  const int64_t value = number ? PyLong_AsLongLong(number.get()) : -1;
  ClearError();
  return value;
}

// Number of elements from the first to the last one in memory; -1 after a failure.
int64_t Span(PyObject* sizes, PyObject* strides) {
  int64_t span = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); ++i) {
    const int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
    if (size == 0) return -1;
    span += (size - 1) * PyLong_AsLongLong(PyTuple_GET_ITEM(strides, i));
  }
  return span;
}

}  // namespace

PyRef Copied(PyObject* tensor) {
  const PyRef detached = Detached(tensor);
  if (!detached) return PyRef();
  PyObject* const t = detached.get();
  const PyRef sizes = CallMethod(t, "size"), strides = CallMethod(t, "stride");
  const int64_t width = Number(CallMethod(t, "element_size"));
  const int64_t address = Number(CallMethod(t, "data_ptr"));
  const bool is_plain = sizes && strides && PyTuple_Check(sizes.get()) &&
                        PyTuple_Check(strides.get()) && width > 0 && address > 0 &&
                        !TorchApi::Get().IsNegated(t) && !TorchApi::Get().IsConjugated(t);
  const int64_t span = is_plain ? Span(sizes.get(), strides.get()) : -1;
  ClearError();
  if (span <= 0) return CallMethod(t, "clone");
  const int64_t pad = address % kAlignment / width;
  PyRef flat = PyRef::Steal(PyObject_CallMethod(t, "as_strided", "((L)(i))", span, 1));
  PyRef memory = PyRef::Steal(PyObject_CallMethod(t, "new_empty", "((L))", pad + span));
  PyRef part = memory
                   ? PyRef::Steal(PyObject_CallMethod(memory.get(), "narrow", "iLL", 0, pad, span))
                   : PyRef();
  const bool filled = flat && part && CallMethod(part.get(), "copy_", flat);
  PyRef copy = filled ? PyRef::Steal(PyObject_CallMethod(part.get(), "as_strided", "OOL",
                                                         sizes.get(), strides.get(), pad))
                      : PyRef();
  ClearError();
  return copy;
}

HeldCall::HeldCall(const CallArgs& args) : callable_(PyRef::Borrow(args.callable)) {
  const Py_ssize_t shift = args.self != nullptr ? 1 : 0;
  arguments_ = PyRef::Steal(PyTuple_New(args.count + shift));
  if (args.self != nullptr) PyTuple_SET_ITEM(arguments_.get(), 0, Py_NewRef(args.self));
  for (Py_ssize_t i = 0; i < args.count; ++i)
    PyTuple_SET_ITEM(arguments_.get(), i + shift, Py_NewRef(args.positional[i]));
  if (args.dict != nullptr) {
    keywords_ = PyRef::Steal(PyDict_Copy(args.dict));
  } else if (args.names != nullptr && PyTuple_GET_SIZE(args.names) > 0) {
    keywords_ = PyRef::Steal(PyDict_New());
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.names); ++i)
      PyDict_SetItem(keywords_.get(), PyTuple_GET_ITEM(args.names, i),
                     args.positional[args.count + i]);
  }
  PyObject* const generator = Named("torch.Generator");
  const auto visit = [&](PyObject* value) {
    if (TorchApi::Get().IsTensor(value)) {
      tensors_.push_back(value);
      versions_.push_back(TorchApi::Get().VersionOf(value));
    } else if (generator != nullptr && PyObject_IsInstance(value, generator) == 1) {
      generators_.push_back(PyRef::Borrow(value));
    }
  };
  ForEachValue(arguments_.get(), visit);
  ForEachValue(keywords_.get(), visit);
  ClearError();
}

bool HeldCall::IsTraced() const {
  for (PyObject* tensor : tensors_) {
    if (TorchApi::Get().IsTracing(tensor)) return true;
  }
  return false;
}

Message HeldCall::WhyNot() const {
  if (!callable_) return "cannot be called again"_t;
  if (tensors_.empty()) return "take no tensor"_t;
  if (TransformsAreActive()) return "run inside torch.func"_t;
  bool on_device = false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!TorchApi::Get().IsPlainTensor(tensors_[i])) return "take tensors of a subclass"_t;
    if (versions_[i] < 0) return "take tensors of the inference mode"_t;
    const TensorAccess access(tensors_[i], Fetch::kNever);
    if (!access.readable() && !access.on_device()) return "take tensors that cannot be read"_t;
    on_device |= access.on_device();
  }
  return on_device && IsCapturing() ? "are captured in a graph"_t : Message();
}

PyObject* HeldCall::Keyword(const char* name) const {
  if (!keywords_) return nullptr;
  PyObject* const value = PyDict_GetItemString(keywords_.get(), name);
  ClearError();
  return value;
}

void HeldCall::CopyTensors() {
  copies_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    PyRef copy;
    for (size_t k = 0; k < i; ++k) {
      if (tensors_[k] == tensors_[i]) copy = copies_[k];
    }
    if (!copy) copy = Copied(tensors_[i]);
    copies_.push_back(std::move(copy));
  }
}

bool HeldCall::ChangedArguments() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (versions_[i] >= 0 && TorchApi::Get().VersionOf(tensors_[i]) != versions_[i]) return true;
  }
  return false;
}

PyObject* HeldCall::CopyOf(PyObject* tensor) const {
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (tensors_[i] == tensor) return copies_[i].get();
  }
  return tensor;
}

PyRef HeldCall::Run(const Change& change, std::vector<PyRef>* changed) const {
  Known known;
  const Change of_copies = [&](PyObject* tensor) {
    PyObject* const source = CopyOf(tensor);
    return source == nullptr ? PyRef() : change(source);
  };
  const PyRef arguments = Mapped(arguments_.get(), of_copies, &known);
  const PyRef keywords = keywords_ ? Mapped(keywords_.get(), of_copies, &known) : PyRef();
  PyRef result;
  if (arguments && (keywords || !keywords_))
    result = PyRef::Steal(PyObject_Call(callable_.get(), arguments.get(), keywords.get()));
  ClearError();
  if (result && changed != nullptr) {
    for (PyObject* tensor : tensors_) {
      for (const auto& [from, to] : known) {
        if (from == tensor) {
          changed->push_back(to);
          break;
        }
      }
    }
  }
  return result;
}

}  // namespace msprobe::capture
