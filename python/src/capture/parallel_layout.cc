#include "capture/parallel_layout.h"

#include <array>
#include <set>
#include <string_view>

#include "capture/python/attributes.h"
#include "capture/python/named_tensors.h"
#include "capture/python/process_group.h"
#include "capture/python/py_ref.h"
#include "capture/values/distributed_tensor.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

std::string Quoted(std::string_view text) {
  std::string json;
  AppendJsonString(&json, text);
  return json;
}

void Append(std::string* list, const std::string& item) {
  if (!list->empty()) *list += ", ";
  *list += item;
}

// What a group is for, as its maker said ("mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP"); "": not said.
std::string DescriptionOf(PyObject* group) {
  const PyRef said = Attribute(group, "group_desc");  // since PyTorch 2.3
  std::string text = said && PyUnicode_Check(said.get()) ? StrOf(said.get()) : "";
  return text == "undefined" ? "" : text;
}

std::string Groups() {
  const PyRef c10d = Loaded("torch.distributed.distributed_c10d");
  if (Call(c10d.get(), "is_initialized").get() != Py_True) return "";
  const PyRef world = Attribute(c10d.get(), "_world");
  const PyRef groups = Attribute(world.get(), "pg_map"), names = Attribute(world.get(), "pg_names");
  std::string list;
  if (!groups || !PyDict_Check(groups.get())) return list;
  const PyRef items = PyRef::Steal(PyDict_Items(groups.get()));
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* const item = PyList_GET_ITEM(items.get(), i);
    PyObject* const group = PyTuple_GET_ITEM(item, 0);
    PyObject* const made = PyTuple_GET_ITEM(item, 1);  // (backend, store)
    const GroupNames known = NamesOfGroup(group);
    if (known.members.empty()) continue;  // this process is not in it
    const bool has_backend = PyTuple_Check(made) && PyTuple_GET_SIZE(made) > 0;
    PyObject* const name =
        names && PyDict_Check(names.get()) ? PyDict_GetItemWithError(names.get(), group) : nullptr;
    ClearError();
    std::string json = "{\"ranks\": " + known.ranks + ", \"backend\": " +
                       Quoted(has_backend ? StrOf(PyTuple_GET_ITEM(made, 0)) : "") +
                       ", \"name\": " + Quoted(name ? StrOf(name) : "");
    if (const std::string description = DescriptionOf(group); !description.empty())
      json += ", \"description\": " + Quoted(description);
    Append(&list, json + "}");
  }
  ClearError();
  return list;
}

// The meshes of the parameters that are DTensors.
void AddMeshes(PyObject* model, std::set<std::string>* known, std::string* list) {
  for (const auto& [name, parameter] : NamedTensors(model, "named_parameters")) {
    if (!IsDTensor(parameter.get())) continue;
    const Layout layout = LayoutOf(parameter.get());
    if (layout.device_mesh.empty()) continue;
    const PyRef mesh = Attribute(parameter.get(), "device_mesh");
    const PyRef names = Attribute(mesh.get(), "mesh_dim_names");
    std::string of_dims;
    for (Py_ssize_t i = 0; names && PyTuple_Check(names.get()) && i < PyTuple_GET_SIZE(names.get());
         ++i)
      Append(&of_dims, Quoted(StrOf(PyTuple_GET_ITEM(names.get(), i))));
    const std::string json =
        "{\"ranks\": " + layout.device_mesh + ", \"names\": [" + of_dims + "]}";
    if (known->insert(json).second) Append(list, json);
  }
}

// "DistributedDataParallel" of a module that is one; "" of any other.
std::string_view WrapperOf(PyObject* module) {
  constexpr std::array<std::string_view, 3> kWrappers = {"DistributedDataParallel",
                                                         "FullyShardedDataParallel", "FSDPModule"};
  PyObject* const mro = Py_TYPE(module)->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    std::string_view name = TypeName(PyTuple_GET_ITEM(mro, i));
    if (const size_t dot = name.rfind('.'); dot != name.npos) name.remove_prefix(dot + 1);
    for (const std::string_view wrapper : kWrappers) {
      if (name == wrapper) return wrapper;
    }
  }
  return "";
}

void AddWrappers(const std::string& prefix, PyObject* model, std::string* list) {
  const PyRef modules = Call(model, "named_modules");
  const PyRef all = modules ? PyRef::Steal(PySequence_List(modules.get())) : PyRef();
  ClearError();
  for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all.get()); ++i) {
    PyObject* const pair = PyList_GET_ITEM(all.get(), i);
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) continue;
    const std::string_view kind = WrapperOf(PyTuple_GET_ITEM(pair, 1));
    if (kind.empty()) continue;
    Append(list, "{\"module\": " + Quoted(prefix + StrOf(PyTuple_GET_ITEM(pair, 0))) +
                     ", \"kind\": " + Quoted(kind) + "}");
  }
}

std::string Megatron() {
  const PyRef state = Loaded("megatron.core.parallel_state");
  if (Call(state.get(), "model_parallel_is_initialized").get() != Py_True) return "";
  std::string members;
  for (const char* name :
       {"tensor_model_parallel", "pipeline_model_parallel", "data_parallel", "context_parallel",
        "expert_model_parallel", "expert_tensor_parallel", "virtual_pipeline_model_parallel"}) {
    const std::string function = std::string("get_") + name + "_world_size";
    const PyRef size = Call(state.get(), function.c_str());
    if (size && PyLong_Check(size.get())) Append(&members, Quoted(name) + ": " + StrOf(size.get()));
  }
  return members;
}

}  // namespace

std::string ParallelJson(const std::vector<std::pair<std::string, PyObject*>>& models) {
  const std::string groups = Groups();
  if (groups.empty()) return "";
  std::string meshes, wrappers;
  std::set<std::string> known;
  for (const auto& [prefix, model] : models) {
    AddMeshes(model, &known, &meshes);
    AddWrappers(prefix, model, &wrappers);
  }
  std::string json = "{\"groups\": [" + groups + "], \"meshes\": [" + meshes +
                     "], \"wrappers\": [" + wrappers + "]";
  if (const std::string sizes = Megatron(); !sizes.empty())
    json += ", \"megatron\": {" + sizes + "}";
  return json + "}";
}

}  // namespace msprobe::capture
