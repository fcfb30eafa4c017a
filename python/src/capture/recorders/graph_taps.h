// The taps that graphs call as a function of the engine (python/src/graph_tap.cc): by number, on
// threads of MindSpore, without the GIL.
//
//   const int64_t number = GraphTaps::Get().Add({"Cell.fc1.Dense", "Cell.block.Block", false});
//   GraphTaps::Get().Want(AskedBy(options));             // from now on values are measured
//   if (const auto asked = GraphTaps::Get().wanted()) ...
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "capture/values/known_numbers.h"

namespace msprobe::capture {

struct GraphTap {
  std::string cell, around;  // the Cell, and the one that contains it, "" for none
  bool backward = false;     // it gets the gradients of the Cell's outputs
  std::string parameter;     // or the gradient of this parameter of the Cell, if it is not ""
};

// All functions may be called on any thread.
class GraphTaps {
 public:
  static GraphTaps& Get();

  // Graphs that were compiled with a number may run for ever, so a tap is never removed.
  int64_t Add(GraphTap tap);
  const GraphTap* Find(int64_t number) const;  // null: there is none

  // What is measured of a tensor; nullopt: nothing is recorded, and graphs only pass by.
  void Want(std::optional<KnownNumbers::Asked> asked);
  std::optional<KnownNumbers::Asked> wanted() const;

 private:
  GraphTaps() = default;

  mutable std::mutex mutex_;
  std::deque<GraphTap> taps_;
  std::optional<KnownNumbers::Asked> asked_;
};

}  // namespace msprobe::capture
