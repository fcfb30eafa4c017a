#include "capture/calls/optimizer_calls.h"

#include <deque>
#include <utility>

#include "capture/calls/interpose_function.h"
#include "capture/calls/observed_callable.h"

namespace msprobe::capture {
namespace {

// Never destroyed: at exit the interpreter is gone before static destructors run.
std::deque<ObservedFunction>& optimizer_functions = *new std::deque<ObservedFunction>;
OptimizerObserver* optimizer_observer = nullptr;

// A call that runs on this thread.
struct Running {
  const OptimizerApi* api;
  PyObject* self;  // its first argument
  OptimizerObserver* observer;
  void* token;
  Running* around;
};
thread_local Running* innermost = nullptr;
// How many of the listed calls of this thread are calls of optimizers.
thread_local int optimizer_depth = 0;

// super().step(), update() of a base class and a function that clips for another one belong to the
// call around them.
bool IsPartOfRunning(const OptimizerApi& api, PyObject* self) {
  for (const Running* each = innermost; each != nullptr; each = each->around) {
    if (each->api->role == api.role && (api.role == OptimizerApi::kClip || each->self == self))
      return true;
  }
  return false;
}

PyObject* RunClosure(PyObject* (*original)(void*), void* context) {
  Running* const step = innermost;
  if (step == nullptr) return original(context);
  const PlaceScope outside(Place::kOutside);
  const int depth = std::exchange(listed_depth, 0),
            of_optimizers = std::exchange(optimizer_depth, 0);
  innermost = step->around;
  PyObject* result = original(context);
  innermost = step;
  optimizer_depth = of_optimizers;
  listed_depth = depth;
  call_place.place = Place::kOurs;
  if (result != nullptr) step->observer->AfterClosure(step->token);
  return result;
}

}  // namespace

Message OptimizerCalls::Add(PyObject* function, OptimizerApi api, bool decorated) {
  if (!PyFunction_Check(function))
    return "objects of type {} are not observed"_t(std::string(Py_TYPE(function)->tp_name));
  api.kind = Api::kOptimizer;
  for (const ObservedFunction& f : optimizer_functions) {
    if (f.function() == function) return {};
  }
  const auto* kept = new OptimizerApi(std::move(api));  // never destroyed, like the function
  ObservedFunction& added = optimizer_functions.emplace_back();
  Message reason =
      decorated ? added.PrepareDecorated(function, kept) : added.Prepare(function, kept);
  if (!reason.empty()) {
    optimizer_functions.pop_back();
  } else if (optimizer_observer != nullptr) {
    optimizer_functions.back().Install();
  }
  return reason;
}

void OptimizerCalls::Follow(PyTypeObject* type) {
  const PyRef step =
      PyRef::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "step"));
  // PyTorch puts hooks around the step of a class when its first optimizer is constructed. A class
  // without them stands for an optimizer of another class (Accelerate).
  if (!step || !PyObject_HasAttrString(step.get(), "hooked")) return ClearError();
  // The function inside: it runs after the hooks, which may change gradients.
  const PyRef inside = PyRef::Steal(PyObject_GetAttrString(step.get(), "__wrapped__"));
  ClearError();
  if (!inside || !Add(inside.get(), {}, /*decorated=*/true).empty()) (void)Add(step.get(), {});
}

void OptimizerCalls::Install(OptimizerObserver* new_observer) {
  if (std::exchange(optimizer_observer, new_observer) != nullptr) return;
  for (ObservedFunction& f : optimizer_functions) f.Install();
}

void OptimizerCalls::Remove() {
  if (std::exchange(optimizer_observer, nullptr) == nullptr) return;
  for (ObservedFunction& f : optimizer_functions) f.Remove();
}

PyRef OptimizerCalls::StandInFor(PyObject* closure) {
  static const OptimizerApi* const api = [] {
    auto* made = new OptimizerApi;
    made->kind = Api::kOptimizer;
    made->role = OptimizerApi::kClosure;
    return made;
  }();
  return MakeObservedCallable(closure, api);
}

PyObject* OptimizerCalls::Observe(const OptimizerApi& api, const CallArgs& call,
                                  PyObject* (*original)(void*), void* context) {
  if (api.role == OptimizerApi::kClosure) return RunClosure(original, context);
  PyObject* const self = call.count > 0 ? call.positional[0] : nullptr;
  if (api.role == OptimizerApi::kMade) {
    PyObject* result = original(context);
    if (result != nullptr && self != nullptr) Follow(Py_TYPE(self));
    return result;
  }
  if (optimizer_observer == nullptr || call_place.compilers > 0 ||
      listed_depth != optimizer_depth || IsPartOfRunning(api, self))
    return original(context);
  const PlaceScope ours(Place::kOurs);
  const Place before = ours.before();
  Running running{&api, self, optimizer_observer, nullptr, innermost};
  Replacement replaced;
  running.token = running.observer->EnterOptimizer(api, call, &replaced);
  if (running.token == nullptr) {
    call_place.place = before;
    return original(context);
  }
  innermost = &running;
  ++listed_depth;
  ++optimizer_depth;
  if (replaced.argument != nullptr) next_replacement = &replaced;
  PyObject* result = original(context);
  next_replacement = nullptr;
  --optimizer_depth;
  --listed_depth;
  innermost = running.around;
  call_place.place = Place::kOurs;
  running.observer->LeaveOptimizer(running.token, result);
  return result;
}

}  // namespace msprobe::capture
