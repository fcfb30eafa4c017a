// What all parts of a recording use: the session that entries go to, the options for values, the
// stacks and the counts. The Collector owns it and gives the other classes a pointer.
#pragma once

#include <Python.h>

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "capture/calls/stack.h"
#include "capture/devices/device_reader.h"
#include "capture/devices/drain_thread.h"
#include "capture/devices/late_decisions.h"
#include "capture/recording/counter_names.h"
#include "capture/recording/coverage_counter.h"
#include "capture/values/known_contents.h"
#include "capture/values/known_numbers.h"
#include "capture/values/precision_policy.h"
#include "capture/values/unwritten_memory.h"
#include "capture/values/value_writer.h"
#include "capture/values/values_in_flight.h"
#include "capture/values/weights.h"
#include "engine/dump/session/session.h"

namespace msprobe::capture {

// An Entry whose memory is used again and again. Who has it lent is alone with it: the GIL is
// released while a large tensor is measured, and a thread that comes in between gets an Entry of
// its own.
//
//   LentEntry entry(&place);
//   entry->Begin(name);
class LentEntry {
 public:
  using Place = std::unique_ptr<Entry>;
  explicit LentEntry(Place* place)
      : place_(place), entry_(*place ? std::move(*place) : std::make_unique<Entry>()) {}
  ~LentEntry() { *place_ = std::move(entry_); }
  LentEntry(const LentEntry&) = delete;
  LentEntry& operator=(const LentEntry&) = delete;
  Entry* get() { return entry_.get(); }
  Entry* operator->() { return entry_.get(); }

 private:
  Place* place_;
  Place entry_;
};

struct Recording {
  std::unique_ptr<dump::Session> session;  // null before the configuration is known
  ValueOptions options;
  StackTable stacks;
  CounterNames counters;
  CoverageCounter coverage;
  DeviceReader device;
  DrainThread drain;  // while numbers of a device are under way
  UnwrittenMemory unwritten;
  ValuesInFlight in_flight;
  KnownNumbers known;  // of the step
  KnownContents contents;
  WeightsFile weights;  // of this step, while numbers of a device are missing
  LateDecisions late;   // of tasks that record some calls only
  bool apis_wanted = false, modules_wanted = false;  // by the level
  bool optimizers_wanted = false;                    // by level, task and the key "optimizer"
  int64_t stored_calls = 0;  // the tensors of so many more entries are stored (baseline)
  // Whether calls say under which precision policy they began; the policy that the header says, and
  // the one that was written last.
  bool notes_precision = false;
  PrecisionPolicy precision, written_precision;
  std::string written_precision_text;
  bool sees_calls = false;   // from Collector::Start to StopCalls
  LentEntry::Place scratch;  // lent for values that are read (for their tensors), not recorded

  const dump::Config& config() const { return session->config(); }
  bool looks_for_nan() const { return config().task == Task::kNanCheck; }
  bool looks_for_overflow() const { return config().task == Task::kOverflowCheck; }
  // False under tasks structure and free_benchmark: no value is recorded, dump.json has no entries.
  bool records_values() const {
    return config().task != Task::kStructure && config().task != Task::kFreeBenchmark;
  }

  // To be called after an error of our own: ends collection and logs it, once.
  void Fault(const char* what) noexcept;
  // Runs `work`. An exception (std::bad_alloc) becomes a Fault; the result is then Answer().
  template <typename Work, typename Answer = std::invoke_result_t<Work>>
  Answer Guarded(Work&& work) noexcept {
    try {
      return work();
    } catch (const std::exception& error) {
      Fault(error.what());
    }
    return Answer();
  }

  // Notes under which precision policy a call begins, where it is another one than the header says.
  void NotePrecision(Entry* entry);

  // Whether tensors of this entry go to files, and how its values are written.
  bool Stores(const std::string& name) const;
  EntryStyle StyleOf(const std::string& name, bool is_output) const;
  // Whether a decision that needs `needs`, and stores `held` or not, is to be made now: nothing is
  // missing, or was waited for. False: it is to be given to `late`. Then the tensors are held as
  // they are now, whatever the program does next.
  bool DecidesNow(LateTensors* needs, std::vector<HeldTensor>* held);
  // Writes the files of tensors that were held back. A tensor that the program has changed since is
  // not written: StoreHeld answers false, and StoreAll notes it in the entry (changed_in_place).
  bool StoreHeld(const HeldTensor& held);
  void StoreAll(const std::vector<HeldTensor>& all, Entry* entry);
  // Writes the entries whose numbers have arrived from a device or a collective; never waits. To be
  // called after each entry.
  void TakeArrived();
  void FetchDeferred();  // the same at stop: waits for all numbers
  void FetchInStep();    // the same in a step, where there is no room to wait later
  void Take(const std::vector<DeferredNumbers>& arrived);
  // The numbers of a tensor as it is now, when they come.
  std::shared_ptr<LateTensor> AskAgain(PyObject* tensor);
  // For log lines, the place of the stack of this number: ": train.py:12 y = x / 0"; "" when it is
  // not known.
  std::string WhereIs(int64_t site);
};

}  // namespace msprobe::capture
