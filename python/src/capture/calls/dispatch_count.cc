#include "capture/calls/dispatch_count.h"

#include <Python.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include "capture/calls/call_place.h"
#include "capture/python/loaded_library.h"
#include "capture/python/torch_headers.h"

namespace msprobe::capture {
namespace {

// at::RecordFunctionCallback and at::ObserverContext, with the layout of ATen/record_function.h.
// Before they are used, IsKnownLayout checks the header that the running PyTorch ships.
struct Callback {
  void* start;
  void* end;
  double sampling_probability;
  bool scopes[40];  // at least as many as PyTorch has, then its flags; only the first is set
};
struct Region {  // deleted by PyTorch, through the virtual destructor
  explicit Region(int* counter) : depth(counter) { ++*depth; }
  virtual ~Region() { --*depth; }
  int* depth;
};

using Name = const char* (*)(const void* record_function);
Name name_of = nullptr;
bool (*any_modes_set)(bool) = nullptr;
uint64_t (*add_callback)(Callback) = nullptr;
void (*remove_callback)(uint64_t) = nullptr;

thread_local int gradient_depth = 0, compiled_depth = 0;
thread_local int unseen_depth = 0;  // number of running operations that are not observed

struct Shared {
  std::mutex mutex;
  DispatchCount::Tally tally;
};
Shared& shared = *new Shared;
uint64_t handle = 0;
bool inside_modules = false;
void (*told_of_compiled_code)(void*) = nullptr;
void* told_context = nullptr;
std::atomic<bool> is_off{true};

DispatchCount::Outside PlaceOutside() {
  using Outside = DispatchCount::Outside;
  if (compiled_depth > 0) return Outside::kCompiled;
  if (call_place.compilers > 0 ||
      (any_modes_set != nullptr && any_modes_set(/*skip infrastructure modes*/ false)))
    return Outside::kTracing;
  return PyGILState_GetThisThreadState() == nullptr ? Outside::kOtherThread : Outside::kPython;
}

// Operations inside a recorded operation count as nested; those inside one that is not observed are
// not counted.
std::unique_ptr<Region> Count(std::string_view name) {
  const std::lock_guard lock(shared.mutex);
  DispatchCount::Tally& tally = shared.tally;
  if (call_place.place == Place::kRecorded) {
    ++(std::exchange(call_place.fresh, false) ? tally.recorded : tally.nested);
  } else if (gradient_depth > 0 && name.starts_with("c10d::")) {
    ++tally.outside[{std::string(name), DispatchCount::Outside::kBackward}];
  } else if (gradient_depth > 0) {
    ++tally.gradient;
  } else if (call_place.place == Place::kIgnored) {
    ++tally.ignored;
  } else if (inside_modules && call_place.modules > 0) {
    ++tally.nested;
  } else if (unseen_depth == 0) {
    ++tally.outside[{std::string(name), PlaceOutside()}];
    return std::make_unique<Region>(&unseen_depth);
  }
  return nullptr;
}

// Operators have a namespace; the rest are ranges that somebody named, and some of those look alike
// ("torch.distributed.ddp.reducer::copy_bucket_to_grad").
bool IsOperator(std::string_view name) {
  const size_t colons = name.find("::");
  return colons != std::string_view::npos && name.find(' ') == std::string_view::npos &&
         name.substr(0, colons).find('.') == std::string_view::npos &&
         !name.starts_with("autograd::");
}

std::unique_ptr<Region> Start(const void* record_function) {
  if (is_off.load(std::memory_order_relaxed) || call_place.place == Place::kOurs) return nullptr;
  try {
    const std::string_view name = name_of(record_function);
    if (name.starts_with("autograd::engine::evaluate_function"))
      return std::make_unique<Region>(&gradient_depth);
    if (name.starts_with("Torch-Compiled Region")) {
      if (told_of_compiled_code != nullptr && PyGILState_Check() != 0)
        told_of_compiled_code(told_context);
      const std::lock_guard lock(shared.mutex);
      ++shared.tally.compiled_regions;
      return std::make_unique<Region>(&compiled_depth);
    }
    if (IsOperator(name)) return Count(name);
  } catch (const std::bad_alloc&) {
    // No memory: one operation is not counted. The exception must not reach the program.
  }
  return nullptr;
}

bool IsKnownLayout() {
  return TorchHeaderHas(
      "ATen/record_function.h",
      {"StartCallbackstart_;EndCallbackend_;doublesampling_prob_=1.0;std::array<bool,",
       "usingStartCallback=std::unique_ptr<ObserverContext>(*)(constRecordFunction&);",
       "ObserverContext{virtual~ObserverContext()", "FUNCTION=0,"});
}

Message Load() {
  if (!IsKnownLayout())
    return "this PyTorch does not say how its dispatcher is observed (ATen/record_function.h)"_t;
  constexpr char kTorch[] = "libtorch_cpu.so";
  FindLoaded(&name_of, kTorch, "_ZNK2at14RecordFunction4nameEv");
  FindLoaded(&add_callback, kTorch, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
  FindLoaded(&remove_callback, kTorch, "_ZN2at14removeCallbackEm");
  FindLoaded(&any_modes_set, "libc10.so", "_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb");
  return name_of != nullptr && add_callback != nullptr && remove_callback != nullptr
             ? Message()
             : "this PyTorch does not let its dispatcher be observed"_t;
}

}  // namespace

Message DispatchCount::Install(bool modules_only) {
  static const Message problem = Load();
  if (!problem.empty() || handle != 0) return problem;
  inside_modules = modules_only;
  Callback callback = {};
  callback.start = reinterpret_cast<void*>(&Start);
  callback.sampling_probability = 1;
  callback.scopes[0] = true;
  is_off.store(false, std::memory_order_relaxed);
  handle = add_callback(callback);
  return {};
}

void DispatchCount::TellOfCompiledCode(void (*told)(void*), void* context) {
  told_of_compiled_code = told;
  told_context = context;
}

void DispatchCount::Remove() {
  if (handle == 0) return;
  is_off.store(true, std::memory_order_relaxed);
  remove_callback(std::exchange(handle, 0));
}

bool DispatchCount::installed() { return handle != 0; }

DispatchCount::Tally DispatchCount::Take() {
  const std::lock_guard lock(shared.mutex);
  return std::exchange(shared.tally, {});
}

void DispatchCount::Abandon() {
  is_off.store(true, std::memory_order_relaxed);
  new (&shared.mutex) std::mutex;  // another thread of the parent may have held it
}

}  // namespace msprobe::capture
