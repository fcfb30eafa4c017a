// "baseline": each entry is compared with a recorded run while the program runs. At the first
// difference the tensors of the call and of the next ones are kept, the answer is logged, and the
// recording goes on, stops, or the program gets an exception.
//
//   check.Configure();                                  // by the session's configuration
//   check.Begin(rank);                                  // after each start of the session
//   const BaselineCheck::Offer offer(&check, &entry, &tensors);   // around Session::Record
//   check.EndStep(/*is_over=*/true);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "capture/recording/recording.h"
#include "engine/live/live_comparison.h"

namespace msprobe::capture {

class BaselineCheck final : public dump::EntryWatcher {
 public:
  // `complete` is called before collection ends, to write the last files of the step.
  BaselineCheck(Recording* recording, std::function<void()> complete)
      : recording_(recording), complete_(std::move(complete)) {}

  void Configure();
  bool on() const { return live_ != nullptr; }
  void Begin(std::optional<int> rank);
  // The files of the step are complete, and hold all its calls if it `is_over`.
  void EndStep(bool is_over);

  // While it lives, the tensors of this entry can be stored.
  class Offer {
   public:
    Offer(BaselineCheck* check, Entry* entry, std::vector<PyRef>* tensors) : check_(check) {
      check_->offered_ = entry;
      check_->tensors_ = tensors;
    }
    ~Offer() { check_->offered_ = nullptr; }
    Offer(const Offer&) = delete;
    Offer& operator=(const Offer&) = delete;

   private:
    BaselineCheck* check_;
  };

  void BeforeWrite(const Entry& entry) override;
  void AfterWrite() override;
  void AfterRecord() override;

 private:
  void Store();
  void Tell();
  void TellOthers();

  Recording* recording_;
  std::function<void()> complete_;
  std::unique_ptr<live::LiveComparison> live_;
  std::optional<int> rank_;
  Entry* offered_ = nullptr;
  std::vector<PyRef>* tensors_ = nullptr;  // of the entry that is offered
  int ranks_ = 0;                          // of the run; 0: not known
  bool begun_ = false, raises_ = false, stops_ = false;
  bool begins_ = false;    // live_ does not know yet that entries of this step come
  bool has_step_ = false;  // live_ has entries of this step
  bool cut_ = false;       // the step may lack calls, because the first difference ended it
};

}  // namespace msprobe::capture
