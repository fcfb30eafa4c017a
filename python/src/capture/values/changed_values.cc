#include "capture/values/changed_values.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "capture/python/framework.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

bool HasChanged(PyObject* tensor, const SeenVersions& seen) {
  const auto before = std::find_if(seen.begin(), seen.end(),
                                   [&](const SeenVersion& one) { return one.tensor == tensor; });
  return before == seen.end() || before->version != TorchApi::Get().VersionOf(tensor);
}

bool IsTensor(PyObject* value) { return TorchApi::Get().IsTensor(value); }

// Calls work(value, place or null, name or null) for each argument.
template <typename Work>
void ForEachArgument(const CallArgs& args, Work&& work) {
  Py_ssize_t place = 0;
  if (args.self != nullptr) work(args.self, place++, nullptr);
  for (Py_ssize_t i = 0; i < args.count; ++i) work(args.positional[i], place++, nullptr);
  if (args.names != nullptr) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.names); ++i)
      work(args.positional[args.count + i], place, PyTuple_GET_ITEM(args.names, i));
  } else if (args.dict != nullptr) {
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(args.dict, &at, &name, &value);) work(value, place, name);
  }
}

// Whether the call returns this object, or a tuple that has it.
bool Returns(PyObject* result, PyObject* value) {
  if (result == value) return true;
  if (!PyTuple_Check(result)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i) {
    if (PyTuple_GET_ITEM(result, i) == value) return true;
  }
  return false;
}

bool IsTrue(PyObject* value) {
  const int truth = value == nullptr ? 0 : PyObject_IsTrue(value);
  ClearError();
  return truth == 1;
}

// The running statistics of a normalisation, whose changes PyTorch does not count.
struct RunningStatistics {
  Py_ssize_t first = -1;  // place of running_mean, before that of running_var; -1: not changed

  RunningStatistics(const Api& api, const CallArgs& args) {
    const bool batch = api.stem.ends_with(".batch_norm.");
    if (!batch && !api.stem.ends_with(".instance_norm.")) return;
    constexpr Py_ssize_t kFlag = 5;
    bool updates = !batch;  // the default
    ForEachArgument(args, [&](PyObject* value, Py_ssize_t place, PyObject* name) {
      const std::string_view keyword = name == nullptr ? "" : Utf8(name);
      if (name == nullptr ? place == kFlag : keyword == "training" || keyword == "use_input_stats")
        updates = IsTrue(value);
    });
    if (updates) first = api.prefix == "Torch" ? 3 : 1;
  }
  bool Has(Py_ssize_t place, PyObject* name) const {
    if (first < 0) return false;
    if (name == nullptr) return place == first || place == first + 1;
    return Utf8(name) == "running_mean" || Utf8(name) == "running_var";
  }
};

PyRef BuffersOf(PyObject* module) {
  PyRef buffers;
  if (!Framework::Get().is_torch()) return buffers;
  static PyObject* const name = PyUnicode_InternFromString("_buffers");
  buffers = PyRef::Steal(PyObject_GetAttr(module, name));
  ClearError();
  if (buffers && !PyDict_Check(buffers.get())) buffers = PyRef();
  return buffers;
}

}  // namespace

void SeeArguments(const Api& api, const CallArgs& args, SeenVersions* seen) {
  seen->clear();
  if (!api.may_change || !Framework::Get().is_torch()) return;
  const auto see = [&](PyObject* value) {
    if (IsTensor(value)) seen->push_back({value, TorchApi::Get().VersionOf(value)});
  };
  ForEachArgument(args, [&](PyObject* value, Py_ssize_t, PyObject*) {
    see(value);
    if (!PyList_Check(value) && !PyTuple_Check(value)) return;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      see(PySequence_Fast_GET_ITEM(value, i));
  });
}

void SeeBuffers(PyObject* module, SeenVersions* seen) {
  seen->clear();
  const PyRef buffers = BuffersOf(module);
  PyObject *name, *value;
  for (Py_ssize_t at = 0; buffers && PyDict_Next(buffers.get(), &at, &name, &value);) {
    if (IsTensor(value)) seen->push_back({value, TorchApi::Get().VersionOf(value)});
  }
}

void WriteChangedArguments(const Api& api, const CallArgs& args, const SeenVersions& seen,
                           PyObject* result, ValueWriter* writer) {
  const bool writes_first = api.memory != Api::Memory::kOther;
  if (!Framework::Get().is_torch() || (!writes_first && seen.empty())) return;
  const RunningStatistics statistics(api, args);
  std::vector<std::pair<std::string, PyObject*>> changed;
  ForEachArgument(args, [&](PyObject* value, Py_ssize_t place, PyObject* name) {
    const auto has_changed = [&](PyObject* one) {
      if (!IsTensor(one) || Returns(result, one)) return false;
      return seen.empty() ? place == 0 && name == nullptr : HasChanged(one, seen);
    };
    bool any = has_changed(value) || (IsTensor(value) && statistics.Has(place, name));
    if (!seen.empty() && (PyList_Check(value) || PyTuple_Check(value))) {
      for (Py_ssize_t i = 0; !any && i < PySequence_Fast_GET_SIZE(value); ++i)
        any = has_changed(PySequence_Fast_GET_ITEM(value, i));
    }
    if (any)
      changed.emplace_back(
          "input." + (name != nullptr ? std::string(Utf8(name)) : std::to_string(place)), value);
  });
  if (!changed.empty()) writer->Members("changed", changed);
}

void WriteChangedBuffers(PyObject* module, const SeenVersions& seen, ValueWriter* writer) {
  const PyRef buffers = BuffersOf(module);
  if (!buffers || PyDict_Size(buffers.get()) == 0) return;
  const PyRef training = PyRef::Steal(PyObject_GetAttrString(module, "training"));
  const bool trains = IsTrue(training.get());
  std::vector<std::pair<std::string, PyObject*>> changed;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(buffers.get(), &at, &name, &value);) {
    const std::string_view key = Utf8(name);
    const bool running = trains && (key == "running_mean" || key == "running_var");
    if (IsTensor(value) && (running || HasChanged(value, seen)))
      changed.emplace_back("buffers." + std::string(key), value);
  }
  if (!changed.empty()) writer->Members("changed", changed);
}

}  // namespace msprobe::capture
