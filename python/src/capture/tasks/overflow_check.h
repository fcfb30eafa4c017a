// Task overflow_check: only calls that make NaN or infinity of what they are given are recorded,
// with their tensors. Those are kept until the call has returned, or its gradients have come; one
// that was changed in place meanwhile is not stored. Task nan_check asks what gradients hold.
//
//   check.HoldGradient(name, /*is_input=*/true, held, nonfinite);     // as each comes
//   SeenGradients seen = check.Take(name);                            // when all have come
//   if (!check.SettleBackward(name, &seen, &entry).empty()) Record();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/modules/module_tree.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/finding_count.h"

namespace msprobe::capture {

// What the gradients of a call hold, until all have come.
struct SeenGradients {
  Nonfinite given, made;
  int64_t site = -1;                     // of the forward call
  std::vector<Held> incoming, outgoing;  // waiting
  std::vector<std::string> lost;         // files that will not be
};

class OverflowCheck {
 public:
  OverflowCheck(Recording* recording, FoundCalls* found) : recording_(recording), found_(found) {}

  // A callable that answers whether the device has overflowed, and forgets it: asked after each
  // call in place of what the values say. Null: they say it.
  void SetFlag(PyRef flag) { flag_ = std::move(flag); }

  // Kinds ("NaN") that a call made, "": it is not recorded. What only passes on is said once a
  // step.
  std::string_view Judge(const std::string& name, const Nonfinite& given, const Nonfinite& made,
                         int64_t site);
  void Count(const std::string& name, std::string_view kinds, int64_t site);

  // Gradients of this call, whose place is `site`, will come.
  void Expect(const std::string& name, int64_t site) { seen_[name].site = site; }
  void HoldGradient(const std::string& name, bool is_input, std::vector<Held> held,
                    const Nonfinite& nonfinite);
  // Outgoing gradients go on to be added to: nobody else may hold them then.
  void Settle(const std::string& name);
  SeenGradients Take(const std::string& name);
  std::string_view SettleBackward(const std::string& name, SeenGradients* seen, Entry* entry);
  // Of a parameter: an entry of its own.
  void CheckParameter(const NamedModule& module, const std::string& parameter, PyObject* gradient);
  void Forget();  // gradients that are waited for

 private:
  void SettleOutgoing(SeenGradients* seen);
  bool FlagIsSet();

  PyRef flag_;
  Recording* recording_;
  FoundCalls* found_;
  std::unordered_map<std::string, SeenGradients> seen_;  // by entry
  int64_t held_bytes_ = 0, passed_on_step_ = -1;
  bool nonfinite_gradients_ = false;  // some gradient of this step was not finite
};

}  // namespace msprobe::capture
