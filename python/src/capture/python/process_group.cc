#include "capture/python/process_group.h"

#include <algorithm>
#include <cstdlib>

#include "capture/python/py_ref.h"
#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"

namespace msprobe::capture {
namespace {

// A module of torch.distributed, which `import torch` has imported. It is not imported here: an
// import may release the GIL, and another thread could then wait for TheTypes while it holds the
// GIL.
PyRef Distributed(const char* name) {
  const PyRef path = PyRef::Steal(PyUnicode_FromString("torch.distributed"));
  const PyRef module = path ? PyRef::Steal(PyImport_GetModule(path.get())) : PyRef();
  PyRef found = module ? PyRef::Steal(PyObject_GetAttrString(module.get(), name)) : PyRef();
  ClearError();
  return found;
}

// Looked up once and never freed.
struct Types {
  PyRef process_group = Distributed("ProcessGroup");
  PyRef reduce_op = Distributed("ReduceOp");
  PyRef reduce_op_type;  // of ReduceOp.SUM
  PyRef point_to_point = Distributed("P2POp");
  PyRef work = Distributed("Work");
  PyRef ranks_of = Distributed("get_process_group_ranks");

  Types() {
    const PyRef sum =
        reduce_op ? PyRef::Steal(PyObject_GetAttrString(reduce_op.get(), "SUM")) : PyRef();
    ClearError();
    if (sum) reduce_op_type = PyRef::Borrow(reinterpret_cast<PyObject*>(Py_TYPE(sum.get())));
  }
};

const Types& TheTypes() {
  static const Types* types = new Types;
  return *types;
}

bool IsA(PyObject* object, const PyRef& type) {
  return type && PyType_Check(type.get()) &&
         PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.get()));
}

}  // namespace

bool IsProcessGroup(PyObject* object) { return IsA(object, TheTypes().process_group); }

bool IsReduceOp(PyObject* object) {
  return IsA(object, TheTypes().reduce_op) || IsA(object, TheTypes().reduce_op_type);
}

bool IsPointToPoint(PyObject* object) { return IsA(object, TheTypes().point_to_point); }

bool IsWork(PyObject* object) { return IsA(object, TheTypes().work); }

GroupNames NamesOfGroup(PyObject* group) {
  GroupNames names;
  const PyRef& ranks_of = TheTypes().ranks_of;
  const PyRef ranks = ranks_of && group != nullptr
                          ? PyRef::Steal(PyObject_CallOneArg(ranks_of.get(), group))
                          : PyRef();
  ClearError();
  if (!ranks || !PyList_Check(ranks.get())) return names;
  names.ranks = StrOf(ranks.get());
  AppendHex(&names.id, formats::Crc32(names.ranks), 8);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ranks.get()); ++i)
    names.members.push_back(PyLong_AsLongLong(PyList_GET_ITEM(ranks.get(), i)));
  ClearError();
  return names;
}

int RanksOfRun(std::optional<int> rank) {
  if (!rank) return 0;
  const auto number = [](const char* name) {
    const PyRef function = Distributed(name);
    const PyRef value = function ? PyRef::Steal(PyObject_CallNoArgs(function.get())) : PyRef();
    const long found = value ? PyLong_AsLong(value.get()) : -1;
    ClearError();
    return static_cast<int>(found);
  };
  if (number("is_initialized") == 1)
    return number("get_rank") == *rank ? std::max(0, number("get_world_size")) : 0;
  constexpr const char* kLaunchers[][2] = {
      {"RANK", "WORLD_SIZE"}, {"RANK_ID", "RANK_SIZE"}, {"MS_NODE_ID", "MS_WORKER_NUM"}};
  for (const auto& [own, all] : kLaunchers) {
    const char *given = std::getenv(own), *size = std::getenv(all);
    if (given != nullptr && size != nullptr && given == std::to_string(*rank))
      return std::max(0, std::atoi(size));
  }
  return 0;
}

std::string NameOfReduceOp(PyObject* op) {
  std::string text = StrOf(op);
  if (text.find(" at 0x") == std::string::npos) return text;
  const PyRef kind = PyRef::Steal(PyObject_GetAttrString(op, "op"));  // PyTorch 1.13
  ClearError();
  return kind ? StrOf(kind.get()) : "ReduceOp";
}

}  // namespace msprobe::capture
