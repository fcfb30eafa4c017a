#include "capture/mindspore/mindspore_framework.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/python/attributes.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

struct Names {
  PyObject* sequence = PyUnicode_InternFromString("_sequence_nr");
  PyObject* unique = PyUnicode_InternFromString("_unique_id");
  PyObject* is_leaf = PyUnicode_InternFromString("is_leaf");
  PyObject* asnumpy = PyUnicode_InternFromString("asnumpy");
  PyObject* interface = PyUnicode_InternFromString("__array_interface__");
};
const Names& names() {
  static const Names instance;
  return instance;
}

struct KnownDType {
  DType dtype;
  std::string_view name;  // as MindSpore spells it
};
constexpr std::pair<const char*, KnownDType> kDTypes[] = {
    {"float64", {DType::kFloat64, "Float64"}},
    {"float32", {DType::kFloat32, "Float32"}},
    {"float16", {DType::kFloat16, "Float16"}},
    {"bfloat16", {DType::kBFloat16, "BFloat16"}},
    {"float8_e4m3fn", {DType::kFloat8E4M3FN, "Float8E4M3FN"}},
    {"float8_e5m2", {DType::kFloat8E5M2, "Float8E5M2"}},
    {"int64", {DType::kInt64, "Int64"}},
    {"int32", {DType::kInt32, "Int32"}},
    {"int16", {DType::kInt16, "Int16"}},
    {"int8", {DType::kInt8, "Int8"}},
    {"uint64", {DType::kUInt64, "UInt64"}},
    {"uint32", {DType::kUInt32, "UInt32"}},
    {"uint16", {DType::kUInt16, "UInt16"}},
    {"uint8", {DType::kUInt8, "UInt8"}},
    {"bool_", {DType::kBool, "Bool"}},
    {"complex64", {DType::kComplex64, "Complex64"}},
    {"complex128", {DType::kComplex128, "Complex128"}},
};

// Copies a tuple or list of ints; -1 when it is neither or too long.
int ReadInts(PyObject* numbers, int64_t* out) {
  if (numbers == nullptr || !(PyTuple_Check(numbers) || PyList_Check(numbers)) ||
      PySequence_Fast_GET_SIZE(numbers) > HostArray::kMaxDims)
    return -1;
  const int count = static_cast<int>(PySequence_Fast_GET_SIZE(numbers));
  for (int i = 0; i < count; ++i) {
    out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(numbers, i));
    if (out[i] == -1 && PyErr_Occurred()) return ClearError(), -1;
  }
  return count;
}

// A method that is implemented in C and takes a tuple of arguments: called with none, without a
// look-up, and not observed by our own swapped pointers.
class EmptyCall {
 public:
  bool Load(PyTypeObject* type, const char* name) {
    const PyRef method = Attribute(reinterpret_cast<PyObject*>(type), name);
    if (!method || Py_TYPE(method.get()) != &PyMethodDescr_Type) return false;
    const PyMethodDef* def = reinterpret_cast<PyMethodDescrObject*>(method.get())->d_method;
    if ((def->ml_flags & ~METH_COEXIST) != METH_VARARGS) return false;
    call_ = def->ml_meth;
    no_arguments_ = PyTuple_New(0);
    Py_INCREF(method.get());  // types live as long as MindSpore does
    return true;
  }
  PyObject* operator()(PyObject* object) const { return call_(object, no_arguments_); }

 private:
  PyCFunction call_ = nullptr;
  PyObject* no_arguments_ = nullptr;
};

// Whether this MindSpore can have tensors on a device. The wheel for the CPU cannot.
bool SupportsDevices(PyObject* binding) {
  const PyRef type = Attribute(binding, "MSContext");
  const PyRef context =
      type ? PyRef::Steal(PyObject_CallMethod(type.get(), "get_instance", nullptr)) : PyRef();
  ClearError();
  bool supports = false;
  for (const char* device : {"Ascend", "GPU"}) {
    const PyRef answer =
        context
            ? PyRef::Steal(PyObject_CallMethod(context.get(), "is_pkg_support_device", "s", device))
            : PyRef();
    ClearError();
    supports = supports || answer.get() != Py_False;  // also when it does not say
  }
  return supports;
}

class MindSporeFramework final : public Framework {
 public:
  MindSporeFramework() : Framework(/*is_torch=*/false) {
    name = "mindspore";
    title = "MindSpore";
    module_prefix = "Cell.";
    tensor_suffix = ".npy";
    children = "_cells";
    parameters = "_params";
    callables = "_primitives";
    made_with = "init_attrs";
    named_parameters = "parameters_and_names";
    cheap_tensor_hooks = true;  // each hook on a node takes 28 us, on a tensor 13 us
  }

  Status Load();
  void Read(PyObject* tensor, HostArray* array) const override;
  std::optional<std::pair<std::string_view, std::string>> Describe(PyObject* value) const override {
    if (dtype_type_ == nullptr || !PyObject_TypeCheck(value, dtype_type_)) return std::nullopt;
    return std::pair("mindspore.dtype", StrOf(value));
  }

  std::string_view NameOf(DType dtype) const override {
    for (const auto& [attribute, known] : kDTypes) {
      if (known.dtype == dtype) return known.name;
    }
    return "";
  }

  bool RequiresGrad(PyObject* tensor) const override { return IsTrue(requires_grad_(tensor)); }
  // What the graph of gradients goes by, and hooks: Parameter.requires_grad is code in Python,
  // which sets this flag with its own.
  bool ParameterRequiresGrad(PyObject* parameter) const override { return RequiresGrad(parameter); }
  PyRef GradNode(PyObject* tensor) const override {
    PyRef node = PyRef::Steal(grad_node_(tensor));
    if (!node) ClearError();
    return node && node.get() != Py_None ? std::move(node) : PyRef();
  }
  int64_t OutputNumber(PyObject* tensor) const override {
    return static_cast<int64_t>(Number(output_index_(tensor), UINT64_MAX));
  }
  uintptr_t NodeKey(PyObject* node) const override {
    return Number(PyObject_CallMethodNoArgs(node, names().unique), 0);
  }
  bool IsLeafNode(PyObject* node) const override {
    return IsTrue(PyObject_CallMethodNoArgs(node, names().is_leaf));
  }
  // A tensor has its leaf node as its GradNode already.
  PyRef TensorOfLeafNode(PyObject*) const override { return PyRef(); }
  bool IsPythonNode(PyObject*) const override { return false; }  // Cells with bprop: not told apart
  uint64_t SequenceOf(PyObject* node) const override {
    return Number(PyObject_CallMethodNoArgs(node, names().sequence), UINT64_MAX);
  }
  uint64_t NextSequence() const override { return 0; }
  PyRef Sum(PyObject* a, PyObject* b) const override;
  PyRef HookGradient(PyObject* tensor, PyObject* hook) const override {
    PyRef id = PyRef::Steal(PyObject_CallFunctionObjArgs(register_hook_, tensor, hook, nullptr));
    ClearError();
    return id;
  }
  void Unhook(PyObject* id) const override {
    const PyRef done = PyRef::Steal(PyObject_CallOneArg(remove_hook_, id));
    ClearError();
  }

 private:
  static bool IsTrue(PyObject* flag) {
    if (flag == nullptr) ClearError();
    Py_XDECREF(flag);
    return flag == Py_True;
  }
  static uint64_t Number(PyObject* number, uint64_t otherwise) {
    const PyRef owned = PyRef::Steal(number);
    const uint64_t value = owned ? PyLong_AsUnsignedLongLongMask(owned.get()) : otherwise;
    ClearError();
    return value;
  }
  PyRef SumOfElements(PyObject* a, PyObject* b) const;
  // The address of the elements; null when there are none. Waits for the operator that computes
  // them.
  void* Address(PyObject* tensor, HostArray* array) const;

  FastMethod strides_;  // in elements; the attribute "strides" is not true of views
  FastGetter shape_, dtype_, grad_node_, output_index_, requires_grad_, device_;
  EmptyCall data_ptr_;
  PyTypeObject* dtype_type_ = nullptr;
  bool supports_devices_ = true;
  PyObject *register_hook_ = nullptr, *remove_hook_ = nullptr, *from_numpy_ = nullptr;
  std::unordered_map<PyObject*, KnownDType> dtypes_;  // by MindSpore's objects, which live for ever
};

Status MindSporeFramework::Load() {
  if (tensor_type != nullptr) return Status::Ok();
  const PyRef mindspore = PyRef::Steal(PyImport_ImportModule("mindspore"));
  ClearError();
  PyRef tensor = Attribute(mindspore.get(), "Tensor");
  if (!tensor || !PyType_Check(tensor.get())) {
    return Unsupported(
               "this Python has no MindSpore that we know: mindspore.Tensor was not found"_t)
        .Hint(std::string("pip install mindspore==2.10.0 'numpy<2'"));
  }
  auto* type = reinterpret_cast<PyTypeObject*>(tensor.get());
  const PyRef binding = PyRef::Steal(PyImport_ImportModule("mindspore._c_expression"));
  ClearError();
  const PyRef base = Attribute(binding.get(), "TensorPy");
  PyRef add = Attribute(base.get(), "register_hook");
  PyRef remove = Attribute(base.get(), "remove_hook");
  PyRef from_numpy = Attribute(tensor.get(), "from_numpy");
  auto* base_type = reinterpret_cast<PyTypeObject*>(base.get());
  if (!base || !PyType_Check(base.get()) || !add || !remove || !from_numpy ||
      !shape_.Load(base_type, "_shape") || !strides_.Load(base_type, "stride") ||
      !dtype_.Load(base_type, "_dtype") || !grad_node_.Load(base_type, "_grad_node") ||
      !output_index_.Load(base_type, "_output_index") ||
      !requires_grad_.Load(base_type, "_requires_grad") || !device_.Load(base_type, "device") ||
      !data_ptr_.Load(base_type, "_data_ptr")) {
    return Unsupported("this MindSpore keeps tensors and gradients in a way that we do not know"_t)
        .Hint("use MindSpore 2.8 or later: pip install mindspore==2.10.0 'numpy<2'"_t);
  }
  for (const auto& [attribute, known] : kDTypes) {
    PyRef dtype = Attribute(mindspore.get(), attribute);
    if (dtype) dtypes_.emplace(dtype.release(), known);
  }
  const PyRef types = Attribute(binding.get(), "typing");
  PyRef any = Attribute(types.get(), "Type");
  if (any && PyType_Check(any.get())) dtype_type_ = reinterpret_cast<PyTypeObject*>(any.release());
  supports_devices_ = SupportsDevices(binding.get());
  register_hook_ = add.release();
  remove_hook_ = remove.release();
  from_numpy_ = from_numpy.release();
  (void)tensor.release();  // types live as long as MindSpore does
  tensor_type = type;
  return Status::Ok();
}

void* MindSporeFramework::Address(PyObject* tensor, HostArray* array) const {
  const auto is_on_host = [&] {
    const PyRef device = PyRef::Steal(device_(tensor));
    ClearError();
    return device && Utf8(device.get()).starts_with("CPU");
  };
  if (!supports_devices_ || is_on_host()) {
    const PyRef address = PyRef::Steal(data_ptr_(tensor));
    void* data = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
    ClearError();
    return data;
  }
  // The elements are on a device: NumPy's array is a copy on the host, without gaps.
  array->keep = PyRef::Steal(PyObject_CallMethodNoArgs(tensor, names().asnumpy));
  const PyRef description =
      array->keep ? PyRef::Steal(PyObject_GetAttr(array->keep.get(), names().interface)) : PyRef();
  ClearError();
  PyObject* data = description && PyDict_Check(description.get())
                       ? PyDict_GetItemString(description.get(), "data")
                       : nullptr;
  if (data == nullptr || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) < 1) return nullptr;
  array->view.strides = nullptr;
  void* address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(data, 0));
  ClearError();
  return address;
}

void MindSporeFramework::Read(PyObject* tensor, HostArray* array) const {
  const PyRef shape = PyRef::Steal(shape_(tensor)), dtype = PyRef::Steal(dtype_(tensor));
  ClearError();
  array->ndim = std::max(0, ReadInts(shape.get(), array->shape.data()));
  const auto known = dtypes_.find(dtype.get());
  if (known == dtypes_.end()) {
    array->dtype_text = dtype ? StrOf(dtype.get()) : "unknown";
    array->dtype = array->dtype_text;
    array->unreadable = "elements of this dtype are not read";
    return;
  }
  array->dtype = known->second.name;
  array->view = {.data = nullptr,
                 .dtype = known->second.dtype,
                 .ndim = array->ndim,
                 .shape = array->shape.data(),
                 .strides = array->strides.data()};
  if (array->view.numel() == 0) {
    array->view.strides = nullptr;
    array->readable = true;
    return;
  }
  const PyRef strides = PyRef::Steal(strides_(tensor));
  ClearError();
  const bool fits = ReadInts(strides.get(), array->strides.data()) == array->ndim;
  array->view.data = fits ? Address(tensor, array) : nullptr;
  array->readable = array->view.data != nullptr;
  if (!array->readable) array->unreadable = fits ? "no memory" : "its strides are not known";
}

template <typename T>
void AddElements(void* sum, const void* other, int64_t count) {
  auto* to = static_cast<T*>(sum);
  const auto* from = static_cast<const T*>(other);
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

PyObject* NumPy() {
  static PyObject* const numpy = PyImport_ImportModule("numpy");
  ClearError();
  return numpy;
}

// An array of NumPy, and its memory.
class NewArray {
 public:
  NewArray(DType dtype, std::span<const int64_t> shape) {
    static PyObject* const empty = Attribute(NumPy(), "empty").release();
    static PyObject* const f32 = Attribute(NumPy(), "float32").release();
    static PyObject* const f64 = Attribute(NumPy(), "float64").release();
    PyObject* const type = dtype == DType::kFloat32 ? f32 : f64;
    const PyRef dims = PyRef::Steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
    for (size_t i = 0; dims && i < shape.size(); ++i)
      PyTuple_SET_ITEM(dims.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
    if (dims && empty != nullptr && type != nullptr)
      array_ = PyRef::Steal(PyObject_CallFunctionObjArgs(empty, dims.get(), type, nullptr));
    has_memory_ = array_ && PyObject_GetBuffer(array_.get(), &memory_, PyBUF_CONTIG) == 0;
    ClearError();
  }
  ~NewArray() {
    if (has_memory_) PyBuffer_Release(&memory_);
  }
  NewArray(const NewArray&) = delete;
  NewArray& operator=(const NewArray&) = delete;

  PyObject* array() const { return array_.get(); }
  void* data() const { return has_memory_ ? memory_.buf : nullptr; }  // null: there is none

 private:
  PyRef array_;
  Py_buffer memory_;
  bool has_memory_ = false;
};

// In the tensors' own memory: an operator of MindSpore inside a hook of a gradient could become
// part of a graph, and asnumpy() takes ten times as long. Null when it is done by NumPy.
PyRef MindSporeFramework::SumOfElements(PyObject* a, PyObject* b) const {
  HostArray first, second;
  Read(a, &first);
  Read(b, &second);
  const TensorView &x = first.view, &y = second.view;
  if (!first.readable || !second.readable || x.dtype != y.dtype ||
      (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat64) ||
      !std::equal(x.dims().begin(), x.dims().end(), y.dims().begin(), y.dims().end()))
    return PyRef();
  const NewArray sum(x.dtype, x.dims());
  if (sum.data() == nullptr) return PyRef();
  const bool is_float = x.dtype == DType::kFloat32;
  const int64_t count = x.numel();
  std::vector<char> copy;
  const void* added = y.data;
  if (!y.IsContiguous()) {
    copy.resize(static_cast<size_t>(count) * (is_float ? sizeof(float) : sizeof(double)));
    CopyContiguous(y, copy.data());
    added = copy.data();
  }
  if (count > 0) {
    CopyContiguous(x, sum.data());
    (is_float ? AddElements<float> : AddElements<double>)(sum.data(), added, count);
  }
  PyRef tensor = PyRef::Steal(PyObject_CallOneArg(from_numpy_, sum.array()));
  ClearError();
  return tensor;
}

PyRef MindSporeFramework::Sum(PyObject* a, PyObject* b) const {
  if (PyRef sum = SumOfElements(a, b)) return sum;
  const PyRef first = PyRef::Steal(PyObject_CallMethodNoArgs(a, names().asnumpy));
  const PyRef second =
      first ? PyRef::Steal(PyObject_CallMethodNoArgs(b, names().asnumpy)) : PyRef();
  const PyRef sum = second ? PyRef::Steal(PyNumber_Add(first.get(), second.get())) : PyRef();
  // The sum of two arrays without dimensions is a scalar of NumPy.
  static PyObject* const as_array = Attribute(NumPy(), "asarray").release();
  const PyRef array =
      sum && as_array != nullptr ? PyRef::Steal(PyObject_CallOneArg(as_array, sum.get())) : PyRef();
  PyRef tensor = array ? PyRef::Steal(PyObject_CallOneArg(from_numpy_, array.get())) : PyRef();
  ClearError();
  return tensor;
}

MindSporeFramework& MindSpore() {
  static auto* mindspore = new MindSporeFramework;
  return *mindspore;
}

}  // namespace

Status LoadMindSpore() {
  MSPROBE_RETURN_IF_ERROR(MindSpore().Load());
  Framework::Use(&MindSpore());
  return Status::Ok();
}

}  // namespace msprobe::capture
