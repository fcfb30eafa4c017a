// Which steps, ranks, entries and values a configuration wants. Cheap enough for every call.
//
//   Filter filter(config);
//   if (filter.WantsStep(7) && filter.data_mode.forward() && filter.WantsEntry(name)) Record();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/dump/config/config.h"
#include "engine/dump/config/pkl_scope.h"

namespace msprobe::dump {

// Texts of which one must occur in a name, and which of them have occurred so far.
class NameParts {
 public:
  NameParts() = default;
  explicit NameParts(std::vector<std::string> parts)
      : parts_(std::move(parts)), occurred_(parts_.size()) {}

  bool empty() const { return parts_.empty(); }
  bool OccurIn(std::string_view name);
  std::vector<std::string> Missing() const;  // those that occurred in no name

 private:
  std::vector<std::string> parts_;
  std::vector<uint8_t> occurred_;
};

class Filter {
 public:
  Filter() = default;  // wants everything
  explicit Filter(const Config& config);

  bool WantsStep(int64_t step) const;
  // rank < 0: the run is not distributed, and `rank` of the configuration has no effect.
  bool WantsRank(int64_t rank) const;
  // The wanted steps after `step`, ascending; empty when the configuration names no steps.
  std::vector<int64_t> StepsAfter(int64_t step) const;
  std::vector<int64_t> StepsUpTo(int64_t step) const;  // the others
  // Whether no later step is wanted.
  bool IsPastLastStep(int64_t step) const { return !steps_.empty() && step > steps_.back(); }

  // To be called once for each call of an API (WantsEntry) and of a module (EnterModule before it,
  // LeaveModule after it), in execution order. The scope is an inclusive range: it is open from the
  // entry with the first name to the end of the entry with the second name. `list` has substrings,
  // of which one must occur in the name; under level mix, everything inside a matching module is
  // wanted as well.
  bool WantsEntry(std::string_view name);
  bool EnterModule(std::string_view name);  // true: record this module's call
  void LeaveModule(std::string_view name);
  void NewStep();  // forgets an open range

  // Whether `tensor_list` names the entry: its tensors are saved although the task is statistics.
  bool WantsTensor(std::string_view name) { return tensor_list_.OccurIn(name); }

  // What `scope`, `list` and `tensor_list` have met since the construction, over all steps.
  struct Met {
    int64_t calls = 0;  // calls that were asked about, when there is a scope or a list
    int64_t in_scope = 0;
    bool began = false, ended = false;  // a call had the first name of the scope, then the second
  };
  const Met& met() const { return met_; }
  const NameParts& list() const { return list_; }
  const NameParts& tensor_list() const { return tensor_list_; }

  DataMode data_mode;
  // There is neither scope nor list: every entry is wanted, and WantsEntry need not be called.
  bool wants_all_entries() const {
    return scope_begin_.empty() && list_.empty() && pkl_.wants_all();
  }

 private:
  bool InList(std::string_view name) { return list_.empty() || list_.OccurIn(name); }
  bool InScope(std::string_view name, bool closes_at_once);
  void CloseScope();

  std::vector<int64_t> steps_, ranks_;   // sorted; empty: all
  std::string scope_begin_, scope_end_;  // empty: no scope
  NameParts list_, tensor_list_;
  Met met_;
  PklScope pkl_;                 // of the fronts of the older tools, which have none of those above
  bool expand_modules_ = false;  // level mix
  bool open_ = false;            // inside the scope
  int matching_modules_ = 0;     // running modules that the list matches
};

}  // namespace msprobe::dump
