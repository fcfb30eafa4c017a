// A run that records is compared with a recorded run, its baseline, while it trains. The answer is
// that of `msprobe compare` on both dumps, as far as the run has come.
//
//   LiveComparison live("runs/golden");
//   live.BeginStep({step, rank, world_size}, "runs/now/step0/rank0/dump.json");
//   if (live.Look(entry)) KeepTensors();   // before the entry is written
//   if (live.Settle()) Print(live.answer());
//   if (live.EndStep(/*is_over=*/true) == News::kDiffers) Print(live.answer());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/read/reader.h"
#include "engine/live/call_check.h"

namespace msprobe::live {

// Where the run differs from its baseline first.
struct Answer {
  int64_t step = 0;
  int64_t call = 0;  // number of entries of the step before it
  std::string name;  // of the call
  std::string module, source_line, golden_line;
  Message why;
  std::vector<std::string> lines;  // as `msprobe compare` shows it
};

// What the end of a step says.
enum class News : uint8_t {
  kNone,
  kDiffers,      // the run differs from its baseline: answer()
  kOtherAnswer,  // answer() has changed: the whole step names another call than the moment did
  kTakenBack,    // the whole step agrees: other calls that compute the same
};

// Which part of a training a process records.
struct Part {
  int64_t step = 0;
  std::optional<int> rank;  // nullopt: not distributed
  int world_size = 0;       // 0: not known
};

class LiveComparison {
 public:
  // `path`: a path for FindDumps.
  explicit LiveComparison(std::string path) : path_(std::move(path)) {}

  // Begins, or goes on with, the step whose entries are written to `own_file`. What makes the
  // baseline useless for the step (no dump of it, a damaged one, another model) is logged in one
  // line, and the step is not compared. After the third such step one line speaks for all others.
  void BeginStep(const Part& part, const std::string& own_file);
  // Whether entries are compared: a baseline was found, and no difference so far.
  bool on() const { return check_ != nullptr && !found_; }

  // Whether the entry deserves a closer look, and its tensors should be kept. Takes no more time
  // than to compare what both recorded of it.
  bool Look(const Entry& entry);
  // Takes the closer look after the entry was written. True: the run differs from its baseline, and
  // answer() says where. After looks that found nothing, more of them are left for the end of the
  // step, so that they cost little.
  bool Settle();
  // The files of the step are complete, and hold all its calls if it `is_over`. Takes the looks
  // that are left, and looks again at a step that is over in which Settle has answered: what the
  // whole step says is what `msprobe compare` says. An answer that is taken back is forgotten, and
  // the next step is compared.
  News EndStep(bool is_over);

  const Answer& answer() const { return answer_; }

 private:
  enum class Extent : uint8_t { kSoFar, kRecorded, kWhole };
  News Compare(Extent extent);
  News CompareAgain(const compare::Comparison& c, const std::string& first);
  void GiveUp(Message why);
  Message WhyNotOfThisPart(const dump::DumpLocation& location) const;

  const std::string path_;
  std::string own_file_, file_;  // file_: the dump of the baseline
  Part part_{.step = -1};
  int64_t entries_ = 0;
  std::unique_ptr<CallCheck> check_;  // null: the step is not compared
  bool found_ = false, useless_ = false, told_ = false;
  bool suspects_left_ = false;  // some suspect had no closer look
  bool wants_look_ = false;     // the last entry
  // Calls of other shapes may be a rewrite: this step, or each step, is judged as a whole.
  bool waits_ = false, waits_always_ = false;
  bool bits_decide_ = true;
  int64_t suspects_ = 0, next_look_ = 1;
  int64_t given_up_ = 0;  // steps that were not compared
  Answer answer_;
};

}  // namespace msprobe::live
