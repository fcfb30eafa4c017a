#include "capture/values/distributed_tensor.h"

#include <string_view>

#include "capture/python/attributes.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

bool IsCalled(PyObject* object, std::string_view type) { return Py_TYPE(object)->tp_name == type; }

// Whether the tensor's class, or a class that it derives from, is called `name`.
bool Derives(PyObject* object, std::string_view name) {
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    std::string_view type = TypeName(PyTuple_GET_ITEM(mro, i));
    if (const size_t dot = type.rfind('.'); dot != std::string_view::npos)
      type.remove_prefix(dot + 1);
    if (type == name) return true;
  }
  return false;
}

std::string MeshJson(PyObject* mesh) {
  const PyRef tensor = Attribute(mesh, "mesh");
  const PyRef list =
      tensor ? PyRef::Steal(PyObject_CallMethod(tensor.get(), "tolist", nullptr)) : PyRef();
  ClearError();
  return list && PyList_Check(list.get()) ? StrOf(list.get()) : "null";
}

// The JSON of the last mesh is kept, because a program has few meshes, which its tensors share.
const std::string& CachedMeshJson(PyObject* mesh) {
  static PyObject* known = nullptr;
  static std::string& json = *new std::string;
  if (mesh != known) {
    json = MeshJson(mesh);
    PyObject* before = known;
    known = Py_NewRef(mesh);
    Py_XDECREF(before);
  }
  return json;
}

std::string PlacementJson(PyObject* placement) {
  // FSDP shards the parts that tensor parallelism has made: not in the order of the mesh.
  if (Derives(placement, "_StridedShard"))
    return R"({"Shard": {"dim": )" + StrOf(Attribute(placement, "dim").get()) +
           R"(, "split_factor": )" + StrOf(Attribute(placement, "split_factor").get()) + "}}";
  if (Derives(placement, "Shard"))
    return R"({"Shard": {"dim": )" + StrOf(Attribute(placement, "dim").get()) + "}}";
  if (Derives(placement, "Partial")) {
    std::string json = R"({"Partial": {"reduce_op": )";
    AppendJsonString(&json, StrOf(Attribute(placement, "reduce_op").get()));
    return json + "}}";
  }
  if (Derives(placement, "Replicate")) return R"({"Replicate": {}})";
  return "null";
}

std::string ShapeJson(PyObject* dtensor) {
  const PyRef shape = Attribute(dtensor, "shape");
  const PyRef list = shape ? PyRef::Steal(PySequence_List(shape.get())) : PyRef();
  ClearError();
  return list ? StrOf(list.get()) : "";
}

}  // namespace

bool IsDTensor(PyObject* tensor) {
  return IsCalled(tensor, "DTensor") || IsCalled(tensor, "torch.distributed.tensor.DTensor");
}

PyRef LocalShard(PyObject* dtensor) {
  PyRef shard = Attribute(dtensor, "_local_tensor");
  return shard ? std::move(shard) : PyRef::Borrow(Py_None);
}

Layout LayoutOf(PyObject* dtensor) {
  Layout layout;
  const PyRef spec = Attribute(dtensor, "_spec");
  PyRef mesh = Attribute(spec.get(), "mesh"), placements = Attribute(spec.get(), "placements");
  if (!mesh) mesh = Attribute(dtensor, "device_mesh");
  if (!placements) placements = Attribute(dtensor, "placements");
  if (!mesh || !placements || !PyTuple_Check(placements.get())) return layout;
  layout.device_mesh = CachedMeshJson(mesh.get());
  layout.placements = "[";
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(placements.get()); ++i) {
    if (i > 0) layout.placements += ", ";
    layout.placements += PlacementJson(PyTuple_GET_ITEM(placements.get(), i));
  }
  layout.placements += ']';
  layout.global_shape = ShapeJson(dtensor);
  return layout;
}

PyRef AddShards(PyObject* a, PyObject* b) {
  if (!IsDTensor(a) || !IsDTensor(b)) return PyRef();
  const PyRef left = LocalShard(a), right = LocalShard(b);
  const PyRef spec = Attribute(a, "_spec");
  const Layout one = LayoutOf(a), other = LayoutOf(b);
  if (!spec || IsAsyncTensor(left.get()) || IsAsyncTensor(right.get()) ||
      one.device_mesh != other.device_mesh || one.placements != other.placements)
    return PyRef();
  const auto detached = [](const PyRef& tensor) {
    return PyRef::Steal(PyObject_CallMethod(tensor.get(), "detach", nullptr));
  };
  const PyRef x = detached(left), y = x ? detached(right) : PyRef();
  const PyRef sum = y ? PyRef::Steal(PyNumber_Add(x.get(), y.get())) : PyRef();
  const PyRef args = sum ? PyRef::Steal(PyTuple_Pack(2, sum.get(), spec.get())) : PyRef();
  const PyRef names =
      args ? PyRef::Steal(Py_BuildValue("{sO}", "requires_grad", Py_False)) : PyRef();
  PyRef result = names ? PyRef::Steal(PyObject_Call(reinterpret_cast<PyObject*>(Py_TYPE(a)),
                                                    args.get(), names.get()))
                       : PyRef();
  ClearError();
  return result;
}

bool IsAsyncTensor(PyObject* tensor) { return IsCalled(tensor, "AsyncCollectiveTensor"); }

bool IsWaitedFor(PyObject* async_tensor) {
  return Attribute(async_tensor, "completed").get() == Py_True;
}

PyRef AsyncResult(PyObject* async_tensor) { return Attribute(async_tensor, "elem"); }

}  // namespace msprobe::capture
