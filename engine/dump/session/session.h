// Decides when a process records: step by step, as its configuration says, until a file cannot be
// written. Knows no framework: the caller (the Collector) gives it names and entries.
//
//   Session session(config);
//   if (*session.Start(rank))
//     session.Record({.entry = &entry, .name = entry.name(), .parent = parent});
//   MSPROBE_RETURN_IF_ERROR(session.Stop());
//   session.Step();
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config.h"
#include "engine/dump/config/filter.h"
#include "engine/dump/session/call_names.h"
#include "engine/dump/session/step_files.h"
#include "engine/dump/session/unmet.h"
#include "engine/dump/write/deferred_entries.h"

namespace msprobe::dump {

// Sees the entries of a session in the order in which they are written.
class EntryWatcher {
 public:
  virtual ~EntryWatcher() = default;
  virtual void BeforeWrite(const Entry& entry) = 0;
  virtual void AfterWrite() = 0;  // the entry is in the file
  // After a Record or ResolveDeferred: the session may be ended here.
  virtual void AfterRecord() = 0;
};

class Session {
 public:
  explicit Session(Config config, std::string framework = "pytorch");

  // To be called before Start: the number of tokens of each request in the coming step. Only the
  // tokens of the configured request are recorded. nullopt: not known, whole tensors are recorded.
  void ScheduleTokens(std::optional<TokenCounts> counts);
  const Slicer& slicer() const { return slicer_; }

  // Whether Start would record anything now. Cheap, so that steps that are not recorded cost
  // little.
  bool StepIsWanted();
  // start() of the front ended with an error, "UsageError: ...", which the program may have caught.
  void NoteFailedStart(std::string error) { failed_start_ = std::move(error); }
  // At the end of the run: logs what the configuration asked for and the run did not have. Once.
  void SayUnmet();
  // Begins to collect the current step, or goes on with it. False: the step, the rank or the
  // request is not wanted, or the last wanted step is over. `rank` is nullopt when the run is not
  // distributed. The folder and its files are made when the first entry comes: a step without
  // entries has none. (A .pkl file is made at once.) Errors: kIo when a file cannot be made or gone
  // on with; collection is off then.
  Result<bool> Start(std::optional<int> rank);
  // Number of ranks of the run, for SayUnmet; 0: not known.
  void SetRanks(int ranks) { extent_.ranks = ranks; }
  // Makes the folder and its files now. False: they cannot be made, and collection is off.
  bool OpenFiles();
  // Closes the files and waits for stored tensors. Another Start in the same step continues the
  // same files.
  Status Stop();
  // Begins the next step: counters begin at 0 again, the next Start writes to a new folder.
  void Step();
  // After the Step() of a step in which no start was asked for: that step is the current one
  // again, so that a block of code that begins with Step() has no empty step before it.
  void TakeBackEmptyStep();
  void RepeatStep();               // this step does not count: the next Start has its number
  void BeginAtStep(int64_t step);  // the next Start records this step

  // A step may have several stages, as a training with several models has, and writes a dump for
  // each. SetDumpPath says where the next one goes; after EndStage its call numbers begin at 0.
  // Both hold from BeginStage on, which the caller calls before Start while begins_stage(). The
  // path stays until it is set again, also when the configuration file changes. A stage whose
  // folder is that of an earlier stage of the step replaces it, with a warning.
  void SetDumpPath(std::string path) { next_path_ = std::move(path); }
  void SetConfiguredPath(std::string path);  // the same, and it is the one that was configured
  void EndStage() { stage_ended_ = true; }
  bool begins_stage() const;
  void BeginStage();
  const std::string& next_dump_path() const { return next_path_ ? *next_path_ : config_.dump_path; }
  const std::string& configured_path() const { return configured_path_; }  // without SetDumpPath

  // Takes a configuration whose file has changed; to be called after Stop. It holds from the next
  // Start on; or from the next step on, if the files of this step are begun and need another
  // header. Its dump_enable holds at once.
  void Reconfigure(Config config);
  // For the fronts of the older tools: another configuration holds at once. Files begin anew,
  // except pkl files that this session has written before, which are appended to; call numbers go
  // on. `goes_on`: it is the next part of the same recording, so that a recording that has failed
  // or has ended stays off.
  void ReconfigureNow(Config config, bool goes_on = false);
  // Forgets the pkl files that were written: they are complete, and may be moved or removed.
  void ReleasePkl();
  // The configuration file cannot be used: nothing is recorded until the next Reconfigure.
  void RejectConfig();
  bool enabled() const { return enabled_ && !refused_; }
  // Number of configurations that have held so far; grows when another one holds.
  uint64_t configured() const { return configured_; }

  bool collecting() const { return collecting_; }
  bool disabled() const { return disabled_; }  // MSPROBE_DISABLE=1
  // Sets the provenance of the run, a JSON object, for the headers of files opened from now on.
  void SetProvenance(std::string json) { provenance_ = std::move(json); }
  // Writes another file into the folder of dump.json, as soon as there is one. A failure turns
  // collection off, as in Record.
  void WriteBeside(const std::string& file_name, std::string_view text);
  // Whether the step has no files yet.
  bool begins_step() const { return !files_.is_open(); }
  // Whether some step of the run has entries.
  bool recorded() const { return extent_.recorded; }
  // Grows with every Start and Step, so that a hook can tell that it belongs to an earlier one.
  uint64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }
  // The step of the last call of StepIsWanted or BeginAtStep: Step alone does not change it.
  int64_t current_step() const { return current_step_; }
  int64_t first_step() const { return first_step_; }  // 0, or that of the last BeginAtStep
  // Number of the dump, from 0; grows with every step and stage, so that a gradient can tell that
  // its call is in an earlier dump.
  int64_t dump() const { return dump_; }
  // Nothing more will be recorded: the last wanted step is over, or recording was ended.
  bool is_over() const;
  // true: records nothing more; false: goes on, unless it has failed or the steps are over.
  void SetOver(bool over);
  // Whether no Start has begun to record, since the beginning or since SetFirstStart(true).
  bool first_start() const { return first_start_; }
  void SetFirstStart(bool first) { first_start_ = first; }

  CallNames& calls() { return calls_; }

  // An entry, with its place in construct.json.
  struct Item {
    const Entry* entry = nullptr;  // null: not in dump.json (task structure)
    std::string_view name;
    std::string_view parent;  // "": none
    bool construct = false;   // goes into construct.json
  };
  void SetWatcher(EntryWatcher* watcher) { watcher_ = watcher; }  // null: none
  // Writes the entry. A failure turns collection off and is logged once.
  void Record(const Item& item);
  // Fills numbers that have arrived into the entries that wait for them, and writes the entries
  // that are complete.
  void ResolveDeferred(std::span<const DeferredNumbers> arrived);
  // The number of a stack in this step's stack.json; -1 when collection is off. `stack`: the
  // caller's own number of the stack. `frames()` is called when this step has not seen the stack.
  template <typename Frames>
  int64_t NoteStack(int64_t stack, std::string_view name, Frames&& frames);
  // Writes a tensor file. False when it could not be queued; collection is off then.
  bool Store(const std::string& file_name, const TensorView& view);
  void WriteTensorsLater() { files_.WriteTensorsLater(); }  // from now on, by a thread
  bool storing() const { return files_.is_open() ? files_.storing() : StoresTensors(config_); }
  // Whether a pkl file was begun since the last call of TakeNewPkl, and the pkl file that the last
  // entry went to.
  bool TakeNewPkl() { return files_.TakeNewPkl(); }
  std::string last_file() const { return files_.last_file(); }

  // Everything wanted is recorded: closes the files as Stop does, logs `why`, and records nothing
  // more.
  void Conclude(Message why);
  // Turns collection off for good and logs why, once. The files on disk stay as they are, without
  // their closing lines, so that readers know that they are incomplete.
  void Fail(const Status& status) noexcept;
  const Config& config() const { return config_; }
  Filter& filter() { return filter_; }
  // The folder of the current step and rank, or of an earlier step when this one has no files yet;
  // "" before the first files.
  const std::string& folder() const { return files_.folder(); }
  // The folder of the step that Start began to collect last, of all ranks; "" before.
  std::string step_folder() const;
  // In a forked child: forgets the files without a change to them.
  void Abandon();

 private:
  void Write(const Item& item);
  void DrainDeferred(bool give_up);
  Status Open();
  void ApplyTokens();
  void ApplyConfig(Config config);
  void BeginDump();
  void GoToStep(int64_t step);

  Config config_;
  Filter filter_;
  std::optional<Config> next_;  // from the next step on
  bool enabled_ = true, refused_ = false, abandoned_ = false;
  uint64_t configured_ = 0;
  Slicer slicer_;
  std::optional<TokenCounts> tokens_;  // of the coming step
  bool request_is_absent_ = false;
  std::string provenance_;
  int64_t step_ = 0, current_step_ = 0, first_step_ = 0, dump_ = 0;
  uint64_t epoch_ = 0;
  std::optional<std::string> next_path_;  // set by SetDumpPath, also after it holds
  std::string configured_path_;
  bool stage_ended_ = false, first_start_ = true;
  bool disabled_ = false;
  bool collecting_ = false, failed_ = false, concluded_ = false;
  RunExtent extent_;
  std::string failed_start_;                          // the last error; "": none
  std::map<std::string, std::string> waiting_files_;  // for WriteBeside: name -> text
  bool started_ = false;                              // a start was asked for the current step
  bool after_empty_step_ = false;
  bool said_end_ = false, said_unmet_ = false, said_later_ = false, said_no_request_ = false;
  CallNames calls_;
  StepFiles files_;
  DeferredEntries deferred_;
  EntryWatcher* watcher_ = nullptr;
};

template <typename Frames>
int64_t Session::NoteStack(int64_t stack, std::string_view name, Frames&& frames) {
  if (!collecting_ || !OpenFiles()) return -1;
  std::vector<std::string> lines;
  if (!files_.KnowsStack(stack)) {
    lines = frames();
    // Reading source lines runs Python, and another thread may have stopped the collection there.
    if (!collecting_ || !OpenFiles()) return -1;
  }
  const Result<int64_t> number = files_.NoteStack(stack, name, std::move(lines));
  if (number.ok()) return *number;
  Fail(number.status());
  return -1;
}

}  // namespace msprobe::dump
