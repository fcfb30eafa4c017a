// Entries with statistics that a device has not given yet. They are written in the order in which
// they were recorded, each as soon as the statistics of its tensors, and of all entries before it,
// are there.
//
//   DeferredEntries deferred;
//   deferred.Add({.entry = entry, .parent = parent});         // some tensor is kDeferred
//   deferred.Resolve(ticket, stats);                          // as they come
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
  bool has_entry = true;  // false: only construct.json speaks of the call
  std::string name, parent;
  bool construct = false;
};

class DeferredEntries {
 public:
  void Add(DeferredEntry entry) { entries_.push_back(std::move(entry)); }
  bool waiting() const { return !entries_.empty(); }
  void Resolve(int64_t ticket, const kernels::Stats& stats) { known_.emplace(ticket, stats); }

  // Hands over entries from the front on, as far as their statistics are known. `give_up`: all of
  // them; a tensor whose statistics did not come is one that cannot be read.
  template <typename Write>
  void Drain(bool give_up, Write&& write) {
    for (; !entries_.empty() && Fill(&entries_.front().entry, give_up); entries_.pop_front())
      write(entries_.front());
    if (give_up) known_.clear();
  }

 private:
  bool Fill(Entry* entry, bool give_up);

  std::deque<DeferredEntry> entries_;
  std::unordered_map<int64_t, kernels::Stats> known_;  // by ticket; one tensor takes each
};

}  // namespace msprobe::dump
