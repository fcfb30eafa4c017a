// Entries that wait for deferred statistics. They are written in the order in which they were
// recorded, each as soon as the statistics of its tensors and of all entries before it have come.
//
//   DeferredEntries deferred;
//   deferred.Add({.entry = entry, .parent = parent});         // some tensor is kDeferred
//   deferred.Resolve(numbers);                                // when the device has delivered them
//   deferred.Drain(/*give_up=*/false, [&](const DeferredEntry& e) { Write(e); });
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/model/entry.h"

namespace msprobe::dump {

// Whether some tensor of `entry` has no statistics yet.
bool IsDeferred(const Entry& entry);

struct DeferredEntry {
  Entry entry;
  bool has_entry = true;  // false: the call is in construct.json only
  std::string name, parent;
  bool construct = false;
};

class DeferredEntries {
 public:
  void Add(DeferredEntry entry) { entries_.push_back(std::move(entry)); }
  bool waiting() const { return !entries_.empty(); }
  void Resolve(const DeferredNumbers& numbers) { known_.emplace(numbers.ticket, numbers); }

  // Calls the function for the first entries, up to the first one that still waits. `give_up`: for
  // all entries; tensors whose statistics have not come become unreadable.
  template <typename Write>
  void Drain(bool give_up, Write&& write) {
    for (; !entries_.empty() && Fill(&entries_.front().entry, give_up); entries_.pop_front())
      write(entries_.front());
    if (give_up) known_.clear();
  }

 private:
  bool Fill(Entry* entry, bool give_up);

  std::deque<DeferredEntry> entries_;
  std::unordered_map<int64_t, DeferredNumbers> known_;  // by ticket, which belongs to one tensor
};

}  // namespace msprobe::dump
