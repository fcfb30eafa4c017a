// Decides when a process records: step by step, as its configuration says, until a file cannot be
// written. Knows no framework; a front end hands it names and entries.
//
//   Session session(config);
//   if (*session.Start(rank))
//     session.Record({.entry = &entry, .name = entry.name(), .parent = parent});
//   MSPROBE_RETURN_IF_ERROR(session.Stop());
//   session.Step();
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dump/config/config.h"
#include "engine/dump/config/filter.h"
#include "engine/dump/session/call_names.h"
#include "engine/dump/session/step_files.h"
#include "engine/dump/write/deferred_entries.h"

namespace msprobe::dump {

class Session {
 public:
  explicit Session(Config config, std::string framework = "pytorch");

  // Tokens of each request in the coming step, before Start: only those of the configured request
  // are recorded. nullopt: not known, whole tensors are recorded.
  void ScheduleTokens(std::optional<TokenCounts> counts);
  const Slicer& slicer() const { return slicer_; }

  // Whether Start can begin anything now: the least that is asked of a step without interest.
  bool StepIsWanted();
  // Begins or goes on collecting the current step. False: not wanted (step, rank, past the last
  // step, request). `rank` is nullopt when the run is not distributed. Errors: kIo when the folder
  // or its files cannot be made; collection is off then.
  Result<bool> Start(std::optional<int> rank);
  // Closes the files, waits for stored tensors. Another Start in the same step goes on where this
  // one left.
  Status Stop();
  // The step is over: counters begin at 0 again, the next Start writes to the next step's folder.
  void Step() { BeginAtStep(step_ + 1); }
  void BeginAtStep(int64_t step);  // the same, for a training that goes on from another step

  // The configuration's file has changed; call after Stop. What it says holds from the next Start
  // on, or from the next step on where the files of this step are begun and need another header.
  // Whether it is enabled (dump_enable) holds at once.
  void Reconfigure(Config config);
  // Another configuration holds at once, and files begin anew; call numbers go on. A .pkl file that
  // this session has written before is added to. `goes_on`: the next part of the same recording,
  // which is off after a fault or its end.
  void Restyle(Config config, bool goes_on = false);
  // The .pkl files are complete, and may be moved or removed.
  void ReleasePkl();
  void Refuse();  // the file cannot be used: nothing is recorded until the next Reconfigure
  bool enabled() const { return enabled_ && !refused_; }
  uint64_t configured() const { return configured_; }  // configurations that came to hold

  bool collecting() const { return collecting_; }
  bool disabled() const { return disabled_; }  // MSPROBE_DISABLE=1
  // Of the run, for the header of files opened from now on: a JSON object.
  void SetProvenance(std::string json) { provenance_ = std::move(json); }
  // Writes a file of its own beside dump.json. A failure turns collection off, as in Record.
  void WriteBeside(const std::string& file_name, std::string_view text);
  // The next Start, if the step is wanted, begins new files.
  bool begins_step() const { return !files_.is_open(); }
  // Grows with every Start and Step: tells what was armed for an earlier one.
  uint64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }

  CallNames& calls() { return calls_; }

  // One entry and what belongs to it. A failure to write turns collection off and is logged once.
  struct Item {
    const Entry* entry = nullptr;  // null: not in dump.json (task structure)
    std::string_view name;
    std::string_view parent;  // "": none
    bool construct = false;   // goes into construct.json
  };
  void Record(const Item& item);
  // Statistics that recorded entries wait for, by ticket; writes the entries that are whole then.
  void ResolveDeferredStats(std::span<const std::pair<int64_t, kernels::Stats>> stats);
  // The file-wide number of a stack, -1 when collection is off: `stack` is the front end's own
  // number, `frames` is asked for when this step has not seen it.
  template <typename Frames>
  int64_t NoteStack(int64_t stack, std::string_view name, Frames&& frames);
  // False when it could not be queued (collection is off then).
  bool Store(const std::string& file_name, const TensorView& view);
  bool storing() const { return files_.storing(); }
  // Of .pkl files: whether one was begun since this was asked last; that the last entry went to.
  bool TakeNewPkl() { return files_.TakeNewPkl(); }
  std::string last_file() const { return files_.last_file(); }

  // All that was wanted is recorded: the files are closed as by Stop, a later Start begins nothing.
  void Conclude(std::string_view why);
  // Turns collection off for good, keeps what is on disk, says why, once. The files stay open at
  // their end, so that readers know that they are not whole.
  void Fail(const Status& status) noexcept;
  const Config& config() const { return config_; }
  Filter& filter() { return filter_; }
  // Of the current step and rank; "" before the first Start.
  const std::string& folder() const { return files_.folder(); }
  // In a forked child: forgets the files without touching them.
  void Abandon();

 private:
  void Write(const Item& item);
  void DrainDeferred(bool give_up);
  Status Open(std::optional<int> rank);
  void ApplyTokens();
  void Adopt(Config config);

  Config config_;
  Filter filter_;
  std::optional<Config> next_;  // from the next step on
  bool enabled_ = true, refused_ = false, abandoned_ = false;
  uint64_t configured_ = 0;
  Slicer slicer_;
  std::optional<TokenCounts> tokens_;  // of the coming step
  bool request_is_absent_ = false;
  std::string provenance_;
  int64_t step_ = 0;
  uint64_t epoch_ = 0;
  bool disabled_ = false;
  bool collecting_ = false, failed_ = false, concluded_ = false;
  bool said_end_ = false, said_later_ = false, said_no_request_ = false;
  CallNames calls_;
  StepFiles files_;
  DeferredEntries deferred_;
};

template <typename Frames>
int64_t Session::NoteStack(int64_t stack, std::string_view name, Frames&& frames) {
  if (!collecting_) return -1;
  const Result<int64_t> number = files_.NoteStack(stack, name, frames);
  if (number.ok()) return *number;
  Fail(number.status());
  return -1;
}

}  // namespace msprobe::dump
