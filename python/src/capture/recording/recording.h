// What all subjects of a recording share: where entries go, how values are written, what is
// counted. The Collector owns it; the others are given a pointer.
#pragma once

#include <Python.h>

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "capture/calls/stack.h"
#include "capture/recording/counter_names.h"
#include "capture/recording/coverage_counter.h"
#include "capture/values/device_stats.h"
#include "capture/values/value_writer.h"
#include "engine/dump/session/session.h"

namespace msprobe::capture {

struct Recording {
  std::unique_ptr<dump::Session> session;  // null before the configuration is known
  ValueOptions options;
  StackTable stacks;
  CounterNames counters;
  CoverageCounter coverage;
  DeviceStats device;
  bool apis_wanted = false, modules_wanted = false;  // by the level
  bool sees_calls = false;                           // from Collector::Start to StopCalls
  Entry scratch;                                     // what is walked but not recorded

  const dump::Config& config() const { return session->config(); }
  bool looks_for_nan() const { return config().task == Task::kNanCheck; }
  bool looks_for_overflow() const { return config().task == Task::kOverflowCheck; }
  // False under task structure: tensors are only met, dump.json stays empty.
  bool records_values() const { return config().task != Task::kStructure; }

  // An error of our own: collection ends, and one line says so. The program goes on.
  void Fault(const char* what) noexcept;
  // Runs a piece of our own work. An exception of it (no memory) is a fault and goes no further.
  template <typename Work, typename Answer = std::invoke_result_t<Work>>
  Answer Guarded(Work&& work) noexcept {
    try {
      return work();
    } catch (const std::exception& error) {
      Fault(error.what());
    }
    return Answer();
  }

  // Whether tensors of this entry go to files, and how its values are written.
  bool Stores(const std::string& name) const;
  EntryStyle StyleOf(const std::string& name, bool is_output) const;
  // Stores what was kept; the entry says which tensors the program has changed meanwhile.
  bool StoreHeld(const Held& held);
  void StoreAll(const std::vector<Held>& all, Entry* entry);
  void FetchDeferred() { session->ResolveDeferredStats(device.Fetch()); }  // from devices
  // ": train.py:12 y = x / 0" of a stack, "" when it is not known.
  std::string WhereIs(int64_t site);
};

}  // namespace msprobe::capture
