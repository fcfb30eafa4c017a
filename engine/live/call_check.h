// Whether a call that has just been recorded deserves a closer look: a value of it differs from the
// record of the same name in the baseline. Looks up by name and parses nothing.
//
//   CallCheck check(std::move(golden));
//   if (check.Look(entry, /*bits_decide=*/true) == CallCheck::Answer::kSuspect) CompareAll();
//   check.reach();
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/model/entry.h"

namespace msprobe::live {

class CallCheck {
 public:
  enum class Answer : uint8_t {
    kAgrees,     // bit-equal, or within rounding
    kNoPartner,  // the baseline has no record of this name
    kSuspect,
  };

  // `golden` may have been read without its numbers (ReadOptions::parse_numbers).
  explicit CallCheck(Dump golden);

  // `bits_decide`: other bits are enough; else the judge of the comparison decides (judge_row.h).
  Answer Look(const Entry& entry, bool bits_decide);

  // How many records of the baseline the run has passed: as far as the last partner, and one more
  // for each call without partner since.
  size_t reach() const;
  // Whether the run has made other calls than the baseline, so far.
  bool other_calls() const { return without_partner_ > 0 || passed_ != with_partner_; }
  // Whether some records were not reached.
  bool has_more() const { return with_partner_ < c_.golden.records.size(); }

 private:
  struct Pair {
    uint32_t leaf, value;  // index into the golden's leaves, and into Entry::values
  };

  bool FindOther(const Entry& entry, const Record& record);
  bool IsOther(const Entry& entry, uint32_t index, uint32_t leaf);
  bool Judge(const Entry& entry, int32_t record);
  void FillTarget(const TensorValue& tensor, const Leaf& golden, Leaf* target);

  compare::Comparison c_;  // target: the values of one call that have other bits
  std::unordered_map<std::string_view, int32_t> by_name_;  // -> index of a record
  std::vector<std::pair<Slot, uint32_t>> values_;          // of the entry; reused
  std::vector<Pair> others_;                               // tensors with other bits; reused
  std::string text_;                                       // reused
  ElementType noise_dtype_;  // the coarsest dtype in which noise was seen
  size_t passed_ = 0, with_partner_ = 0, without_partner_ = 0, since_ = 0;
};

}  // namespace msprobe::live
