// Entries that wait for deferred statistics. They are written in the order in which they were
// recorded, each as soon as the statistics of its tensors and of all entries before it have come.
//
//   DeferredEntries deferred;
//   deferred.Add().entry = entry;                             // some tensor is kDeferred
//   deferred.Resolve(numbers);                                // when the device has delivered them
//   deferred.Drain(/*give_up=*/false, [&](const DeferredEntry& e) { Write(e); });
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

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
  // The last entry from now on, to be filled. It may have what another entry had: its memory is
  // used again.
  DeferredEntry& Add();
  bool waiting() const { return !entries_.empty(); }
  void Resolve(const DeferredNumbers& numbers) { known_.emplace(numbers.ticket, numbers); }

  // Calls the function for the first entries, up to the first one that still waits. `give_up`: for
  // all entries; tensors whose statistics have not come become unreadable.
  template <typename Write>
  void Drain(bool give_up, Write&& write) {
    for (; !entries_.empty() && Fill(&entries_.front(), give_up); RemoveFirst())
      write(entries_.front());
    if (give_up) known_.clear();
  }

 private:
  bool Fill(DeferredEntry* waiting, bool give_up);
  void RemoveFirst();

  std::deque<DeferredEntry> entries_;
  std::vector<DeferredEntry> spare_;                    // written; their memory is used again
  std::unordered_map<int64_t, DeferredNumbers> known_;  // by ticket, which belongs to one tensor
};

}  // namespace msprobe::dump
