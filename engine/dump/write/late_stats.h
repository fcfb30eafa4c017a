// Statistics that come later: those of tensors on a device, computed there and fetched together.
// An entry is composed with marks in their places, and waits until they are known; entries behind
// it wait as well, so that their order stays.
//
//   AppendTensor(&entry, {.dtype = "torch.float32", .shape = shape, .later = ticket});
//   late.Add(entry, ...);                          // when HasMarks(entry), or late.waiting()
//   late.Know(ticket, stats);
//   late.Drain([&](const LateEntry& e) { Write(e); });
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/dump/write/entry_builder.h"

namespace msprobe::dump {

// What stands for the four values, and for the counts, of one tensor.
void AppendLateStats(std::string* out, const TensorFields& fields);
void AppendLateCounts(std::string* out, const TensorFields& fields);

bool HasMarks(std::string_view entry);

struct LateEntry {
  std::string entry, name, parent;
  bool construct = false;
};

class LateEntries {
 public:
  void Add(LateEntry entry) { entries_.push_back(std::move(entry)); }
  bool waiting() const { return !entries_.empty(); }
  void Know(int64_t ticket, const kernels::Stats& stats) { known_.emplace(ticket, stats); }

  // Fills entries from the front on, as far as their statistics are known, and hands them over.
  // `give_up`: all entries; what is not known becomes null, as for a tensor that cannot be read.
  template <typename Write>
  void Drain(bool give_up, Write&& write) {
    for (std::string filled; !entries_.empty() && Fill(entries_.front().entry, give_up, &filled);
         entries_.pop_front()) {
      entries_.front().entry.swap(filled);
      write(entries_.front());
    }
    if (give_up) known_.clear();
  }

 private:
  bool Fill(std::string_view entry, bool give_up, std::string* out);

  std::deque<LateEntry> entries_;
  std::unordered_map<int64_t, kernels::Stats> known_;  // by ticket; one entry takes each
};

}  // namespace msprobe::dump
