// Memory of the host that a collective still writes: the results of calls with async_op=True, of
// functional collectives and of coalescing managers, until the program has waited for them. Reading
// it would race with the collective, so a value that shows it is recorded without numbers; they
// come when the program has waited.
//
//   in_flight.Begin(&call, results, is_done);     // the collective has been called
//   const int64_t ticket = in_flight.Ask(access, options, style, file);  // -1: read it now
//   in_flight.End(&call, options);                // the program has waited
//   session.ResolveDeferred(in_flight.Take());
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capture/python/py_ref.h"
#include "capture/values/value_writer.h"
#include "engine/model/deferred_numbers.h"

namespace msprobe::capture {

class TensorAccess;

// Whether the storage of a weak reference (torch.multiprocessing's StorageWeakRef) is freed.
bool IsFreed(const PyRef& storage);

// Whether two tensors of the host lie in common memory.
bool Overlap(PyObject* a, PyObject* b);

// Forgets the numbers of all tensors among the arguments of a collective, lists of them included.
// Other processes write their memory, and PyTorch's version counter does not move.
void ForgetNumbersOf(const std::vector<PyRef>& arguments, KnownNumbers* known);

// Needs the GIL. Never leaves a Python error set.
class ValuesInFlight {
 public:
  // Whether the collective is complete already, though the program has not waited. Null: not known.
  using IsDone = std::function<bool()>;

  bool empty() const { return memory_.empty(); }
  // From now on `collective` writes the tensors among these values (also in lists, and in the
  // P2POps of receives).
  void Begin(const void* collective, const std::vector<PyRef>& values, IsDone is_done);
  // The program has waited: measures the values that were asked for and that nothing else writes.
  void End(const void* collective, const ValueOptions& options);
  // The ticket under which the numbers of a value come; -1: nobody writes it. A value that cannot
  // wait for its numbers (`style.held`) gets ticket -1 and is made unreadable.
  int64_t Ask(TensorAccess* access, const ValueOptions& options, const EntryStyle& style,
              const std::string& file);
  std::vector<DeferredNumbers> Take();
  // At the end of a step. Values that nobody has waited for stay without numbers.
  void Forget();

 private:
  struct Memory {
    const void* collective;
    PyRef tensor;  // keeps the memory alive, so that no other tensor gets its address
    uintptr_t begin, end;
    IsDone is_done;
  };
  struct Waiting {
    int64_t ticket;
    PyRef tensor;
    KnownNumbers::Asked asked;
    bool locate;
    std::string file;
  };
  struct Ended {
    uintptr_t begin, end;
    PyRef storage;  // a StorageWeakRef: tells when the memory is freed
  };
  // Whether a collective still writes bytes in [begin, end).
  bool Covers(uintptr_t begin, uintptr_t end);
  void Add(const void* collective, PyObject* value, const IsDone& is_done);
  DeferredNumbers Measure(const Waiting& waiting, const ValueOptions& options) const;

  std::vector<Memory> memory_;
  // What the program has waited for, though an AsyncCollectiveTensor of a part may not know it.
  std::vector<Ended> ended_;
  std::vector<Waiting> waiting_;
  std::vector<DeferredNumbers> arrived_;
  // Far from the tickets of devices, which count from 0.
  int64_t next_ticket_ = int64_t{1} << 62;
};

}  // namespace msprobe::capture
