#include "capture/gradients/backward.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <list>
#include <map>
#include <string_view>
#include <unordered_set>

#include "capture/calls/interpose.h"
#include "capture/calls/module_calls.h"
#include "capture/devices/idle_threads.h"
#include "capture/gradients/node_hooks.h"
#include "capture/python/callable_type.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"  // QuietTorch
#include "capture/values/distributed_tensor.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMaxNodes = 1 << 20;

struct Names {
  PyObject* next_functions = PyUnicode_InternFromString("next_functions");
};
const Names& names() {
  static const Names instance;
  return instance;
}

struct Pending;
using PendingList = std::list<std::shared_ptr<Pending>>;

// The gradient of one input, which is the sum of the shares of several edges.
struct Share {
  int edges_left = 0;  // number of edges whose share has not come yet
  PyRef sum;           // of the shares that have come
};

// One armed call. Its hooks own it, so that it is freed with the graph if backward() never runs.
// Once a gradient has arrived, the list of waiting calls owns it too.
//
// While a gradient is measured or added, the GIL is released, and another thread may finish the
// call (stop() does). From then on the vectors are that thread's: nothing is put into them.
struct Pending {
  GradientSink* sink;
  int64_t dump;
  std::string name, parent;
  std::vector<Gradient> inputs, outputs;
  std::vector<Share> shares;      // by output
  int hooks = 0, hooks_left = 0;  // on nodes that have an input's edge: all, and not yet called
  int prehooks_left = 0;
  bool listed = false, done = false;
  PendingList::iterator place;  // in the list of waiting calls, when listed

  void PutInput(size_t slot, PyObject* gradient);
  void PutOutput(size_t slot, PyObject* gradient);
  void Arrived();
  void Finish();
};

PendingList& Waiting() {
  static auto* list = new PendingList;  // never destroyed: hooks may outlive static destructors
  return *list;
}

void Pending::PutInput(size_t slot, PyObject* gradient) {
  Gradient made = sink->Compose(name, true, slot, gradient);
  if (!done) inputs[slot] = std::move(made);
}

void Pending::PutOutput(size_t slot, PyObject* gradient) {
  Gradient made = sink->Compose(name, false, slot, gradient);
  if (!done) outputs[slot] = std::move(made);
}

void Pending::Finish() {
  if (std::exchange(done, true)) return;
  // Before anything is measured: who finishes all calls of the list must not meet this one again.
  if (std::exchange(listed, false)) Waiting().erase(place);  // the caller holds a reference
  for (size_t i = 0; i < shares.size(); ++i) {
    if (const PyRef sum = std::move(shares[i].sum))
      outputs[i] = sink->Compose(name, false, i, sum.get());
  }
  sink->Complete(name, parent, std::move(inputs), std::move(outputs));
}

using Positions =
    std::vector<std::pair<Py_ssize_t, size_t>>;  // position in a node's gradients -> slot

// What one call takes from one node. A node of the backward graph gets the gradients of its results
// (incoming) and computes gradients for the nodes below it (outgoing).
struct HookTask {
  std::shared_ptr<Pending> pending;
  Positions results;  // incoming gradients of outputs of the call
  Positions passed;   // incoming gradients of inputs that the call returned unchanged (identity)
  Positions edges;    // outgoing gradients: shares of inputs of the call
  NodeHooks::When when;
  bool fired = false;
};

// A node, and whether the hook is called before or after it.
using HookPlace = std::pair<uintptr_t, NodeHooks::When>;

// What the hooks of all calls on one node take from it, in the order in which they were armed.
struct Tasks {
  HookTask first;
  std::list<HookTask> more;             // a call may be armed while one of them runs
  std::optional<HookPlace> place = {};  // in SharedHooks()
};

// The hook as a Python callable. Arguments before the node runs: (incoming gradients); after it:
// (outgoing gradients, incoming gradients); of a tensor: its gradient.
struct Hook {
  PyObject_HEAD vectorcallfunc call;
  Tasks* all;
};

// The hooks that later calls may share, by their places. A hook lives as long as its node, and
// leaves the map when it is freed: no place is that of a later node.
std::map<HookPlace, Hook*>& SharedHooks() {
  static auto* hooks = new std::map<HookPlace, Hook*>;  // hooks may outlive static destructors
  return *hooks;
}

// Of hooks on tensors: what removes them. Each costs the framework some memory until then.
std::vector<PyRef>& TensorHooks() {
  static auto* handles = new std::vector<PyRef>;
  return *handles;
}

void AddShare(Pending& p, size_t slot, PyObject* gradient) {
  if (p.done || p.shares[slot].edges_left <= 0) return;
  int& left = p.shares[slot].edges_left;
  --left;
  const bool last = left == 0;
  PyRef sum = std::move(p.shares[slot].sum);
  p.shares[slot].sum = PyRef();
  if (gradient != Py_None) {
    if (!sum) {
      sum = PyRef::Borrow(gradient);
    } else if (IsDTensor(sum.get()) || IsDTensor(gradient)) {
      sum = AddShards(sum.get(), gradient);
      if (!sum) left = 0;  // the sum would need communication: the gradient is recorded as null
    } else {
      sum = Framework::Get().Sum(sum.get(), gradient);
      if (!sum) left = 0;  // the gradient is recorded as null
    }
  }
  if (!sum || p.done) return;
  if (last) {
    p.PutOutput(slot, sum.get());
  } else {
    p.shares[slot].sum = std::move(sum);
  }
}

void Take(Pending& p, const HookTask& task, PyObject* incoming, PyObject* outgoing) {
  const auto each = [](const Positions& positions, PyObject* gradients, const auto& take) {
    for (const auto& [position, slot] : positions) {
      if (position < PyTuple_GET_SIZE(gradients)) take(slot, PyTuple_GET_ITEM(gradients, position));
    }
  };
  const auto add = [&](size_t slot, PyObject* gradient) { AddShare(p, slot, gradient); };
  each(task.results, incoming, [&](size_t slot, PyObject* gradient) {
    if (gradient != Py_None) p.PutInput(slot, gradient);
  });
  each(task.passed, incoming, add);
  if (outgoing != nullptr) each(task.edges, outgoing, add);
}

// `incoming`: a tuple, or the one gradient of a hook on a tensor.
void RunTask(HookTask& task, PyObject* incoming, PyObject* outgoing) {
  const std::shared_ptr<Pending> keep = task.pending;
  Pending& p = *keep;
  // Only the first backward pass through a call is recorded.
  if (task.fired || p.done || !p.sink->Accepts(p.dump)) return;
  task.fired = true;
  ModuleCalls::Repair();
  const QuietTorch quiet;
  const Interposer::Pause pause;  // the additions of shares are not calls of the program
  try {
    if (!p.listed) {
      p.place = Waiting().insert(Waiting().end(), keep);
      p.listed = true;
    }
    p.sink->OnArrival();
    {
      // Autograd may add to them in place later, but not before the hook has returned.
      const DeviceReader::Together together(p.sink->reader());
      Take(p, task, incoming, outgoing);
    }
    p.sink->OnNodeDone(p.name);
    --(task.when == NodeHooks::kAfter ? p.hooks_left : p.prehooks_left);
    p.Arrived();
  } catch (const std::exception& error) {
    p.sink->Fault(error.what());
  }
  ClearError();
}

PyObject* CallHook(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  const PyRef keep = PyRef::Borrow(self);  // the graph may be freed meanwhile
  Tasks& all = *reinterpret_cast<Hook*>(self)->all;
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count < 1) Py_RETURN_NONE;
  const bool after = all.first.when == NodeHooks::kAfter;
  PyRef incoming = PyRef::Borrow(args[after && count > 1 ? 1 : 0]);
  if (!after && Framework::Get().IsTensor(incoming.get()))
    incoming = PyRef::Steal(PyTuple_Pack(1, incoming.get()));
  PyObject* const outgoing = after ? args[0] : nullptr;
  if (!incoming || !PyTuple_Check(incoming.get()) || (after && count < 2) ||
      (outgoing != nullptr && !PyTuple_Check(outgoing)))
    Py_RETURN_NONE;
  RunTask(all.first, incoming.get(), outgoing);
  for (HookTask& task : all.more) RunTask(task, incoming.get(), outgoing);
  Py_RETURN_NONE;
}

void Pending::Arrived() {
  // Nodes of outputs run before the nodes below them. So after the last node with an input's edge
  // has run, no gradient of an output follows.
  if (hooks_left == 0 && (hooks > 0 || prehooks_left == 0)) Finish();
}

void DeallocHook(PyObject* self) {
  Tasks* const all = reinterpret_cast<Hook*>(self)->all;
  if (all != nullptr && all->place) SharedHooks().erase(*all->place);
  delete all;
  PyObject_Free(self);
}

PyTypeObject hook_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyRef NewHook(HookTask task) {
  Hook* hook = PyObject_New(Hook, &hook_type);
  if (hook == nullptr) return ClearError(), PyRef();
  hook->call = CallHook, hook->all = nullptr;
  PyRef owned = PyRef::Steal(reinterpret_cast<PyObject*>(hook));
  hook->all = new Tasks{std::move(task), {}};
  return owned;
}

void Count(NodeHooks::When when, Pending* pending) {
  if (when == NodeHooks::kBefore) {
    ++pending->prehooks_left;
  } else {
    ++pending->hooks;
    ++pending->hooks_left;
  }
}

// `key`: of the node.
void AddHook(PyObject* node, uintptr_t key, HookTask task) {
  const NodeHooks::When when = task.when;
  Pending* const pending = task.pending.get();  // the caller holds a reference
  const bool shares = Framework::Get().cheap_tensor_hooks && key != 0;
  if (shares) {
    if (const auto known = SharedHooks().find({key, when}); known != SharedHooks().end()) {
      known->second->all->more.push_back(std::move(task));
      return Count(when, pending);
    }
  }
  const PyRef hook = NewHook(std::move(task));
  if (!hook || !NodeHooks::Add(node, hook.get(), when)) return;
  if (shares) {
    auto* ours = reinterpret_cast<Hook*>(hook.get());
    ours->all->place = HookPlace{key, when};
    SharedHooks().emplace(*ours->all->place, ours);
  }
  Count(when, pending);
}

// The hook before the node of an output, as a hook on that tensor. False: it is to be on the node.
bool AddTensorHook(PyObject* tensor, HookTask* task) {
  const Framework& framework = Framework::Get();
  if (!framework.cheap_tensor_hooks || task->results.size() != 1 || !task->passed.empty())
    return false;
  const Py_ssize_t position = std::exchange(task->results.front().first, 0);
  const std::shared_ptr<Pending> pending = task->pending;
  const PyRef hook = NewHook(*task);
  PyRef handle = hook ? framework.HookGradient(tensor, hook.get()) : PyRef();
  if (!handle) {
    task->results.front().first = position;
    return false;
  }
  TensorHooks().push_back(std::move(handle));
  Count(NodeHooks::kBefore, pending.get());
  return true;
}

}  // namespace

InputEdges::InputEdges(const std::vector<PyObject*>& tensors) : slots_(tensors.size()) {
  const Framework& framework = Framework::Get();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!framework.RequiresGrad(tensors[i])) continue;
    const QuietTorch quiet(tensors[i]);
    PyRef node = framework.GradNode(tensors[i]);
    if (!node) {
      edges_.push_back({PyRef(), 0, tensors[i], 0, i});
      continue;
    }
    const uintptr_t key = framework.NodeKey(node.get());
    edges_.push_back({std::move(node), key, nullptr, framework.OutputNumber(tensors[i]), i});
  }
  first_sequence_ = framework.NextSequence();
  if (first_sequence_ > 0 || framework.is_torch()) return;
  // Not known. But the call's nodes are younger than those that made its inputs.
  for (const Edge& edge : edges_) {
    if (edge.node && !framework.IsLeafNode(edge.node.get()))
      first_sequence_ = std::max(first_sequence_, framework.SequenceOf(edge.node.get()) + 1);
  }
}

// Nodes by Framework::NodeKey. The first ones need no memory of their own: most calls have few.
class SeenNodes {
 public:
  bool Has(uintptr_t key) const {
    return std::find(few_.begin(), few_.begin() + count_, key) != few_.begin() + count_ ||
           (!more_.empty() && more_.contains(key));
  }
  bool Insert(uintptr_t key) {  // false: it was there
    if (Has(key)) return false;
    if (count_ < static_cast<std::ptrdiff_t>(few_.size())) {
      few_[static_cast<size_t>(count_++)] = key;
      return true;
    }
    return more_.insert(key).second;
  }
  size_t size() const { return static_cast<size_t>(count_) + more_.size(); }

 private:
  std::array<uintptr_t, 8> few_;
  std::ptrdiff_t count_ = 0;
  std::unordered_set<uintptr_t> more_;
};

// The nodes between a call's outputs and its inputs.
class GraphWalk {
 public:
  GraphWalk(const InputEdges& edges, std::shared_ptr<Pending> pending)
      : edges_(edges), pending_(std::move(pending)) {}

  // `node` made an output; the caller holds it as long as this object lives. Returns the edges to
  // inputs that it has itself; the nodes below it are left for Run.
  Positions Start(const PyRef& node, uintptr_t key) {
    Positions edges;
    if (!IsInput(key) && seen_.Insert(key)) edges = Edges(node);
    return edges;
  }

  void Run() {
    while (!todo_.empty() && seen_.size() < kMaxNodes) {
      const auto [node, key] = std::move(todo_.back());
      todo_.pop_back();
      Positions edges = Edges(node);
      if (!edges.empty())
        AddHook(node.get(), key,
                {.pending = pending_, .edges = std::move(edges), .when = NodeHooks::kAfter});
    }
  }

  bool IsInput(uintptr_t key) const {
    return std::any_of(edges_.edges_.begin(), edges_.edges_.end(),
                       [&](const auto& e) { return e.node && e.key == key; });
  }

 private:
  bool See(const PyRef& node, uintptr_t key) {
    if (!seen_.Insert(key)) return false;
    keep_.push_back(node);  // keeps the node's address from being reused while we compare addresses
    return true;
  }

  // Returns the edges to inputs that `node` has. Its other parents are left for Run, if the call
  // made them.
  Positions Edges(const PyRef& node) {
    Positions hits;
    PyRef next = PyRef::Steal(PyObject_GetAttr(node.get(), names().next_functions));
    if (!next || !PyTuple_Check(next.get())) {
      ClearError();
      return hits;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(next.get()); ++i) {
      PyObject* edge = PyTuple_GET_ITEM(next.get(), i);
      if (!PyTuple_Check(edge) || PyTuple_GET_SIZE(edge) != 2) continue;
      PyObject* parent = PyTuple_GET_ITEM(edge, 0);
      if (parent == Py_None) continue;
      const uintptr_t key = framework_.NodeKey(parent);
      if (Match(parent, key, PyLong_AsLongLong(PyTuple_GET_ITEM(edge, 1)), i, &hits)) continue;
      if (IsInput(key) || seen_.Has(key) || framework_.IsLeafNode(parent)) continue;
      PyRef below = PyRef::Borrow(parent);
      if (framework_.SequenceOf(parent) >= edges_.first_sequence_ && See(below, key))
        todo_.emplace_back(std::move(below), key);
    }
    for (const auto& hit : hits) ++pending_->shares[hit.second].edges_left;
    return hits;
  }

  bool Match(PyObject* parent, uintptr_t key, int64_t number, Py_ssize_t position,
             Positions* hits) const {
    bool matched = false;
    PyRef leaf;
    for (const auto& edge : edges_.edges_) {
      if (edge.node) {
        if (edge.key != key || edge.number != number) continue;
      } else {
        if (!leaf) {
          if (!framework_.IsLeafNode(parent)) continue;
          leaf = framework_.TensorOfLeafNode(parent);
          if (!leaf) continue;
        }
        if (leaf.get() != edge.leaf) continue;
      }
      hits->emplace_back(position, edge.slot);
      matched = true;
    }
    return matched;
  }

  const Framework& framework_ = Framework::Get();
  const InputEdges& edges_;
  std::shared_ptr<Pending> pending_;
  SeenNodes seen_;
  std::vector<std::pair<PyRef, uintptr_t>> todo_;  // and their keys
  std::vector<PyRef> keep_;
};

bool ArmBackward(const InputEdges& edges, const std::vector<PyObject*>& outputs, GradientSink* sink,
                 int64_t dump, std::string name, std::string parent) {
  const Framework& framework = Framework::Get();
  struct Start {
    PyRef node;
    uintptr_t key;
    Positions results;
  };
  std::vector<Start> starts;
  for (size_t j = 0; j < outputs.size(); ++j) {
    if (!framework.RequiresGrad(outputs[j])) continue;
    const QuietTorch quiet(outputs[j]);
    PyRef node = framework.GradNode(outputs[j]);
    if (!node || framework.IsLeafNode(node.get())) continue;
    const Py_ssize_t position = framework.OutputNumber(outputs[j]);
    if (position < 0) continue;
    const uintptr_t key = framework.NodeKey(node.get());
    auto known =
        std::find_if(starts.begin(), starts.end(), [&](const Start& s) { return s.key == key; });
    if (known == starts.end()) known = starts.insert(starts.end(), Start{std::move(node), key, {}});
    known->results.emplace_back(position, j);
  }
  if (starts.empty()) return false;

  auto pending = std::make_shared<Pending>();
  pending->sink = sink;
  pending->dump = dump;
  pending->name = std::move(name);
  pending->parent = std::move(parent);
  pending->inputs.resize(outputs.size());
  pending->outputs.resize(edges.slots_);
  pending->shares.resize(edges.slots_);

  GraphWalk walk(edges, pending);
  for (Start& start : starts) {
    HookTask task{.pending = pending, .when = NodeHooks::kBefore};
    for (const auto& edge : edges.edges_) {
      for (const auto& [position, j] : start.results) {
        if (edge.node && edge.key == start.key && edge.number == position) {
          task.passed.emplace_back(position, edge.slot);
          ++pending->shares[edge.slot].edges_left;
          break;
        }
      }
    }
    task.results = std::move(start.results);
    Positions own = walk.Start(start.node, start.key);
    if (own.empty()) {
      if (!AddTensorHook(outputs[task.results.front().second], &task))
        AddHook(start.node.get(), start.key, std::move(task));
      continue;
    }
    // One hook sees both sides. Except on the user's own autograd.Function, whose backward may
    // change the incoming gradients: there, a hook before the node sees them as they came.
    HookTask after{.pending = pending, .edges = std::move(own), .when = NodeHooks::kAfter};
    if (framework.IsPythonNode(start.node.get())) {
      AddHook(start.node.get(), start.key, std::move(task));
    } else {
      after.results = std::move(task.results);
      after.passed = std::move(task.passed);
    }
    AddHook(start.node.get(), start.key, std::move(after));
  }
  walk.Run();
  return true;
}

void FlushBackward() {
  while (!Waiting().empty()) {
    const std::shared_ptr<Pending> pending = Waiting().front();
    pending->Finish();
  }
  for (const PyRef& handle : std::exchange(TensorHooks(), {}))
    Framework::Get().Unhook(handle.get());
}

void AwaitBackwardThreads() {
  constexpr std::string_view kNamedByPyTorch = "pt_autograd";
  const ReleasedGil released;
  (void)AwaitIdleThreads(kNamedByPyTorch, std::chrono::seconds(2));
}

void WatchBackward(bool on) {
  on&& Framework::Get().is_torch() ? NodeHooks::Install(&hook_type) : NodeHooks::Remove();
}

bool InitBackward() {
  return ReadyCallableType<Hook>(&hook_type, "msprobe._engine.GradientHook", DeallocHook);
}

}  // namespace msprobe::capture
