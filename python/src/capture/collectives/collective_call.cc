#include "capture/collectives/collective_call.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/python/attributes.h"
#include "capture/python/process_group.h"
#include "capture/python/py_ref.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

using S = CollectiveSignature;

constexpr std::pair<const char*, S::Parameter> kNames[] = {{"group", S::kGroup},
                                                           {"src", S::kSource},
                                                           {"dst", S::kDestination},
                                                           {"group_src", S::kGroupSource},
                                                           {"group_dst", S::kGroupDestination}};
// Functional collectives count the source in the group.
constexpr std::pair<const char*, S::Parameter> kFunctionalNames[] = {{"group_name", S::kGroup},
                                                                     {"src", S::kGroupSource}};

// A module, if the program has imported it; it is never imported here.
PyRef Module(const char* name) {
  const PyRef path = PyRef::Steal(PyUnicode_FromString(name));
  PyRef module = path ? PyRef::Steal(PyImport_GetModule(path.get())) : PyRef();
  ClearError();
  return module;
}

PyRef C10d() { return Module("torch.distributed.distributed_c10d"); }

int64_t IntOr(PyObject* object, int64_t otherwise) {
  if (object == nullptr || !PyLong_Check(object)) return otherwise;
  const int64_t value = PyLong_AsLongLong(object);
  return PyErr_Occurred() ? (ClearError(), otherwise) : value;
}

// The group of an argument of a functional collective: a group, its name, a device mesh, or a mesh
// and its dimension.
PyRef Resolve(PyObject* group) {
  if (IsProcessGroup(group)) return PyRef::Borrow(group);
  if (PyUnicode_Check(group)) return Call(C10d().get(), "_resolve_process_group", group);
  if (PyTuple_Check(group) && PyTuple_GET_SIZE(group) == 2)
    return Call(PyTuple_GET_ITEM(group, 0), "get_group", PyTuple_GET_ITEM(group, 1));
  return Call(group, "get_group");
}

// The partner's rank, counted over all processes; -1 when the call does not name one.
int64_t Partner(const CollectiveSignature& signature, const CallArgs& args,
                CollectiveSignature::Parameter global, CollectiveSignature::Parameter in_group,
                const std::vector<int64_t>& ranks) {
  const int64_t rank = IntOr(signature.Argument(global, args), -1);
  const int64_t place = IntOr(signature.Argument(in_group, args), -1);
  if (rank >= 0 || place < 0 || place >= static_cast<int64_t>(ranks.size())) return rank;
  return ranks[static_cast<size_t>(place)];
}

}  // namespace

CollectiveSignature::CollectiveSignature(std::string name, PyObject* function)
    : name_(std::move(name)) {
  places_.fill(-1);
  if (const PyRef schema = Attribute(function, "_schema")) {
    is_functional_ = true;
    std::vector<std::string> names;
    const PyRef all = Attribute(schema.get(), "arguments");
    for (Py_ssize_t i = 0; all && PyList_Check(all.get()) && i < PyList_GET_SIZE(all.get()); ++i)
      names.push_back(StrOf(Attribute(PyList_GET_ITEM(all.get(), i), "name").get()));
    Take(std::move(names));
    return;
  }
  PyRef inner = PyRef::Borrow(function);
  while (PyRef wrapped = Attribute(inner.get(), "__wrapped__")) inner = std::move(wrapped);
  const PyRef code = Attribute(inner.get(), "__code__");
  const PyRef names = Attribute(code.get(), "co_varnames");
  const PyRef positional = Attribute(code.get(), "co_argcount");
  const PyRef by_name = Attribute(code.get(), "co_kwonlyargcount");
  if (!names || !PyTuple_Check(names.get())) return;
  const Py_ssize_t count =
      std::min(PyTuple_GET_SIZE(names.get()),
               static_cast<Py_ssize_t>(IntOr(positional.get(), 0) + IntOr(by_name.get(), 0)));
  std::vector<std::string> all;
  for (Py_ssize_t i = 0; i < count; ++i) all.emplace_back(Utf8(PyTuple_GET_ITEM(names.get(), i)));
  Take(std::move(all));
}

void CollectiveSignature::Take(std::vector<std::string> names) {
  const auto take = [&](Parameter parameter, size_t place) {
    places_[parameter] = static_cast<Py_ssize_t>(place);
    names_[parameter] = names[place];
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const std::span<const std::pair<const char*, Parameter>> known =
        is_functional_ ? std::span<const std::pair<const char*, Parameter>>(kFunctionalNames)
                       : kNames;
    for (const auto& [name, parameter] : known) {
      if (names[i] == name) take(parameter, i);
    }
  }
  // Only of gather(tensor, gather_list) and its relatives do the results not come first.
  const size_t place = name_.starts_with("gather") ? 1 : 0;
  const bool takes = !is_functional_ && name_ != "send" && name_ != "isend";
  if (takes && place < names.size()) take(kResult, place);
}

PyObject* CollectiveSignature::Results(const CallArgs& args) const {
  return Argument(kResult, args);
}

PyObject* CollectiveSignature::Argument(Parameter parameter, const CallArgs& args) const {
  const Py_ssize_t place = places_[parameter];
  if (place < 0) return nullptr;
  PyObject* found = nullptr;
  if (place < args.count) {
    found = args.positional[place];
  } else if (args.dict != nullptr) {
    found = PyDict_GetItemString(args.dict, names_[parameter].c_str());
    ClearError();
  }
  return found == Py_None ? nullptr : found;
}

PyRef GroupOf(const CollectiveSignature& signature, const CallArgs& args) {
  PyObject* given = signature.Argument(CollectiveSignature::kGroup, args);
  if (given == nullptr && !signature.Has(CollectiveSignature::kGroup) && args.count > 0 &&
      PyList_Check(args.positional[0]) && PyList_GET_SIZE(args.positional[0]) > 0) {
    // batch_isend_irecv has no group argument; its parts have one.
    const PyRef group = Attribute(PyList_GET_ITEM(args.positional[0], 0), "group");
    if (group && group.get() != Py_None) return Resolve(group.get());
  }
  PyRef group = given ? Resolve(given) : Call(C10d().get(), "_get_default_group");
  return group && IsProcessGroup(group.get()) ? group : PyRef();
}

CollectiveGroup DescribeGroup(const CollectiveSignature& signature, const CallArgs& args,
                              PyObject* result) {
  using Role = CollectiveGroup::Role;
  const std::string& name = signature.name();
  const PyRef group = GroupOf(signature, args);
  if (!group) return {};
  GroupNames names = NamesOfGroup(group.get());
  if (names.members.empty()) return {};
  CollectiveGroup found;
  found.place = IntOr(Call(group.get(), "rank").get(), -1);
  const bool inside = found.place >= 0 && found.place < static_cast<int64_t>(names.members.size());
  found.from = Partner(signature, args, S::kSource, S::kGroupSource, names.members);
  found.to = Partner(signature, args, S::kDestination, S::kGroupDestination, names.members);
  if (found.from < 0 && name == "recv") found.from = IntOr(result, -1);
  if (found.from < 0 && name == "scatter") found.from = 0;  // their defaults
  if (found.to < 0 && name == "gather") found.to = 0;
  const int64_t me = inside ? names.members[static_cast<size_t>(found.place)] : -1;
  if (name == "send" || name == "isend") {
    found.role = Role::kSource;
  } else if (name == "recv" || name == "irecv") {
    found.role = Role::kReceiver;
  } else if (signature.Has(S::kSource) || signature.Has(S::kGroupSource)) {
    found.role = found.from == me ? Role::kSource : Role::kReceiver;
  } else if (signature.Has(S::kDestination)) {
    found.role = found.to == me ? Role::kReceiver : Role::kSource;
  }
  found.ranks = std::move(names.members);
  found.id = std::move(names.id);
  return found;
}

void HintAtFailure(std::string_view error) {
  static bool said = false;
  // HCCL's code for: not all processes have connected in time.
  if (error.find("EI0006") == error.npos || std::exchange(said, true)) return;
  Log(LogLevel::kWarning,
      "EI0006: not all processes reached this exchange in time. Recording exchanges nothing, but "
      "ranks of which only some record are slower than others; type: export "
      "HCCL_CONNECT_TIMEOUT=1200 HCCL_EXEC_TIMEOUT=1800, record on all ranks, or use a newer "
      "CANN"_t);
}

bool IsCoalescing(PyObject* group) {
  const PyRef world = Attribute(C10d().get(), "_world");
  const PyRef state = Attribute(world.get(), "pg_coalesce_state");
  if (group == nullptr || !state || !PyDict_Check(state.get()) || PyDict_GET_SIZE(state.get()) == 0)
    return false;
  const int contains = PyDict_Contains(state.get(), group);
  ClearError();
  return contains == 1;
}

}  // namespace msprobe::capture
