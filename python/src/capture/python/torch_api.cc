#include "capture/python/torch_api.h"

#include "capture/python/cpp_tensor.h"
#include "capture/python/loaded_library.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {
namespace {

TorchApi api;
bool loaded = false;

// "torch._C.TensorBase": the object of a dotted name, or null with no error set.
PyRef Find(const char* module, std::initializer_list<const char*> attributes) {
  PyRef object = PyRef::Steal(PyImport_ImportModule(module));
  for (const char* name : attributes) {
    if (!object) break;
    object = PyRef::Steal(PyObject_GetAttrString(object.get(), name));
  }
  if (!object) ClearError();
  return object;
}

// The reference is never released, as types live as long as PyTorch does.
PyTypeObject* FindType(const char* module, std::initializer_list<const char*> attributes) {
  PyRef object = Find(module, attributes);
  if (!object || !PyType_Check(object.get())) return nullptr;
  return reinterpret_cast<PyTypeObject*>(object.release());
}

TorchApi::Transforms FindTransforms() {
  const auto function = [](const char* name) { return Find("torch._C", {"_functorch", name}); };
  PyRef found[] = {function("is_batchedtensor"),
                   function("is_gradtrackingtensor"),
                   function("is_functionaltensor"),
                   function("get_unwrapped"),
                   function("maybe_get_bdim"),
                   Find("torch._C", {"_are_functorch_transforms_active"}),
                   Find("torch._C", {"_DisableFuncTorch"})};
  for (const PyRef& each : found) {
    if (!each) return {};
  }
  return {.is_batched = found[0].release(),
          .is_tracked = found[1].release(),
          .is_functional = found[2].release(),
          .unwrapped = found[3].release(),
          .batch_dim = found[4].release(),
          .active = found[5].release(),
          .disable = found[6].release()};
}

// What tells which memory a tensor shows. Versions before 2.0 lack some of it: then nothing is
// told.
void LoadStorages() {
  PyTypeObject* storage = FindType("torch._C", {"StorageBase"});
  if (storage != nullptr && api.counts_versions &&
      api.untyped_storage.Load(api.tensor_base, "untyped_storage") &&
      api.storage_address.Load(storage, "_cdata") && api.storage_weak.Load(storage, "_weak_ref") &&
      api.storage_resizable.Load(storage, "resizable"))
    api.free_storage_weak = Find("torch._C", {"StorageBase", "_free_weak_ref"}).release();
}

}  // namespace

bool FastGetter::Load(PyTypeObject* type, const char* name) {
  PyRef descriptor = PyRef::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor || Py_TYPE(descriptor.get()) != &PyGetSetDescr_Type) {
    ClearError();
    return false;
  }
  const PyGetSetDef* def = reinterpret_cast<PyGetSetDescrObject*>(descriptor.get())->d_getset;
  get_ = def->get;
  closure_ = def->closure;
  descriptor.release();
  return true;
}

bool FastMethod::Load(PyTypeObject* type, const char* name) {
  PyRef descriptor = PyRef::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!descriptor || Py_TYPE(descriptor.get()) != &PyMethodDescr_Type) {
    ClearError();
    return false;
  }
  const PyMethodDef* def = reinterpret_cast<PyMethodDescrObject*>(descriptor.get())->d_method;
  if ((def->ml_flags & (METH_NOARGS | METH_O | METH_VARARGS | METH_FASTCALL)) != METH_NOARGS)
    return false;
  call_ = def->ml_meth;
  descriptor.release();
  return true;
}

Status TorchApi::Load() {
  if (loaded) return Status::Ok();
  api.tensor_base = FindType("torch._C", {"TensorBase"});
  if (api.tensor_base == nullptr)
    api.tensor_base = FindType("torch._C", {"_TensorBase"});  // before 2.1
  api.tensor = FindType("torch", {"Tensor"});
  api.parameter = FindType("torch.nn", {"Parameter"});
  if (api.tensor_base == nullptr || api.tensor == nullptr || api.parameter == nullptr) {
    return Unsupported("this Python has no PyTorch that we know: torch.Tensor was not found"_t)
        .Hint("pip install torch, and import torch before msprobe.pytorch"_t);
  }
  api.fake_tensor = FindType("torch._subclasses.fake_tensor", {"FakeTensor"});
  api.functional_tensor = FindType("torch._subclasses.functional_tensor", {"FunctionalTensor"});
  api.python_node = FindType("torch._C", {"_FunctionBase"});
  api.size = FindType("torch", {"Size"});
  api.dtype = FindType("torch", {"dtype"});
  api.device = FindType("torch", {"device"});
  api.memory_format = FindType("torch", {"memory_format"});
  api.function_mode_enabled = Find("torch._C", {"_is_torch_function_mode_enabled"}).release();
  FindLoaded(&api.asks_function_mode, "libtorch_cpu.so",
             "_ZN2at4impl27torch_function_mode_enabledEv");
  api.disable_function = Find("torch._C", {"DisableTorchFunction"}).release();
  api.sequence_number = Find("torch._C", {"_autograd", "_get_sequence_nr"}).release();
  api.transforms = FindTransforms();
  if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(api.tensor), "untyped_storage"))
    api.storage_weak_ref = Find("torch.multiprocessing.reductions", {"StorageWeakRef"}).release();
  if (!api.requires_grad.Load(api.tensor_base, "requires_grad") ||
      !api.grad_fn.Load(api.tensor_base, "grad_fn") ||
      !api.output_number.Load(api.tensor_base, "output_nr") ||
      !api.grad.Load(api.tensor_base, "grad") || !api.is_neg.Load(api.tensor_base, "is_neg") ||
      !api.is_conj.Load(api.tensor_base, "is_conj") ||
      !api.storage_offset.Load(api.tensor_base, "storage_offset")) {
    return Unsupported(
               "this PyTorch keeps requires_grad, grad_fn, output_nr, grad, is_neg, is_conj or "
               "storage_offset in a way we do not know"_t)
        .Hint("use a PyTorch release from 1.13 on"_t);
  }
  api.counts_versions = api.version.Load(api.tensor_base, "_version") &&
                        api.is_inference.Load(api.tensor_base, "is_inference");
  LoadStorages();
  if (PyRef capsule = Find("torch", {"Tensor", "__dlpack_c_exchange_api__"});
      capsule && PyCapsule_CheckExact(capsule.get())) {
    auto* table = static_cast<dlpack::ExchangeApi*>(
        PyCapsule_GetPointer(capsule.get(), PyCapsule_GetName(capsule.get())));
    if (table != nullptr && table->major == 1 && table->dltensor_from_py_object != nullptr)
      api.exchange = table;
    ClearError();
  }
  loaded = true;
  return Status::Ok();
}

const TorchApi& TorchApi::Get() { return api; }

namespace {

// The truth value of a getter's result; false after an error.
bool IsTrue(PyObject* flag) {
  if (flag == nullptr) ClearError();
  Py_XDECREF(flag);
  return flag == Py_True;
}

// Enters a context manager of PyTorch: the object to leave, null when that failed.
PyObject* Enter(PyObject* type) {
  static PyObject* const enter = PyUnicode_InternFromString("__enter__");
  PyObject* guard = PyObject_CallNoArgs(type);
  const PyRef entered = guard ? PyRef::Steal(PyObject_CallMethodNoArgs(guard, enter)) : PyRef();
  if (!entered) Py_CLEAR(guard);
  ClearError();
  return guard;
}

void Leave(PyObject* guard) {
  if (guard == nullptr) return;
  const KeepError keep;
  const PyRef left =
      PyRef::Steal(PyObject_CallMethod(guard, "__exit__", "OOO", Py_None, Py_None, Py_None));
  ClearError();
  Py_DECREF(guard);
}

}  // namespace

QuietTorch::QuietTorch() {
  if (api.function_mode_enabled == nullptr) return;
  if (api.asks_function_mode != nullptr) {
    if (api.asks_function_mode()) Begin();
    return;
  }
  PyObject* active = PyObject_CallNoArgs(api.function_mode_enabled);
  if (IsTrue(active)) Begin();
}

QuietTorch::QuietTorch(PyObject* tensor) {
  if (!api.IsPlainTensor(tensor)) Begin();
}

void QuietTorch::Begin() {
  if (api.disable_function != nullptr) guard_ = Enter(api.disable_function);
}

QuietTorch::~QuietTorch() { Leave(guard_); }

bool TransformsAreActive() {
  return api.transforms.active != nullptr && IsTrue(PyObject_CallNoArgs(api.transforms.active));
}

QuietTransforms::QuietTransforms() {
  if (TransformsAreActive()) guard_ = Enter(api.transforms.disable);
}

QuietTransforms::~QuietTransforms() { Leave(guard_); }

int64_t TorchApi::VersionOf(PyObject* tensor_object) const {
  if (!counts_versions) return -1;
  const QuietTorch quiet(tensor_object);
  // Asking a tensor of inference mode for its version raises, which takes microseconds.
  const PyRef inference = PyRef::Steal(is_inference(tensor_object));
  const PyRef number = inference.get() == Py_False ? PyRef::Steal(version(tensor_object)) : PyRef();
  const int64_t count = number ? PyLong_AsLongLong(number.get()) : -1;
  ClearError();
  return count;
}

bool TorchApi::RequiresGrad(PyObject* tensor_object) const {
  const CppTensor& cpp = CppTensor::Get();
  if (cpp.is_known()) return cpp.RequiresGrad(tensor_object);
  const QuietTorch quiet(tensor_object);
  return IsTrue(requires_grad(tensor_object));
}
bool TorchApi::IsNegated(PyObject* tensor_object) const {
  const CppTensor& cpp = CppTensor::Get();
  return cpp.is_known() ? cpp.IsNegated(tensor_object) : IsTrue(is_neg(tensor_object));
}
bool TorchApi::IsConjugated(PyObject* tensor_object) const {
  return IsTrue(is_conj(tensor_object));
}

}  // namespace msprobe::capture
