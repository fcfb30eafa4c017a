#include "capture/tasks/baseline_check.h"

#include <fmt/format.h>

#include "capture/python/framework.h"
#include "capture/python/process_group.h"
#include "capture/tasks/findings.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/live/first_rank.h"

namespace msprobe::capture {
namespace {

constexpr int64_t kNeighbours = 10;  // entries after the first difference whose tensors are stored

}  // namespace

void BaselineCheck::Configure() {
  const std::string& path = recording_->config().baseline;
  live_ = path.empty() ? nullptr : std::make_unique<live::LiveComparison>(path);
  recording_->session->SetWatcher(live_ == nullptr ? nullptr : this);
  recording_->stored_calls = 0;
  begun_ = begins_ = has_step_ = raises_ = stops_ = cut_ = false;
}

void BaselineCheck::Begin(std::optional<int> rank) {
  const dump::Session& session = *recording_->session;
  rank_ = rank;
  if (!std::exchange(begun_, true)) live::ForgetDivergence(session.config().dump_path, rank);
  ranks_ = RanksOfRun(rank);
  begins_ = true;
}

void BaselineCheck::BeforeWrite(const Entry& entry) {
  if (std::exchange(begins_, false)) {  // only now the step has a folder
    const dump::Session& session = *recording_->session;
    live_->BeginStep({session.step(), rank_, ranks_}, JoinPath(session.folder(), "dump.json"));
    has_step_ = true;
  }
  if (recording_->stored_calls > 0) --recording_->stored_calls;
  if (live_->Look(entry) && offered_ == &entry) Store();
}

// Stores the tensors of the call that is offered, before its entry is written.
void BaselineCheck::Store() {
  if (tensors_->size() != offered_->tensors().size() || !recording_->session->storing()) return;
  for (size_t i = 0; i < tensors_->size(); ++i) {
    const TensorValue& tensor = offered_->tensors()[i];
    if (!tensor.file.empty() || tensor.numbers != TensorValue::Numbers::kHere) continue;
    const std::string file = offered_->FileNameOf(i, Framework::Get().tensor_suffix);
    const HeldTensor held{(*tensors_)[i], file, tensor.stats.fingerprint, 0};
    offered_->SetFile(i, recording_->StoreHeld(held) ? file : "-1");
  }
}

void BaselineCheck::AfterWrite() {
  if (live_->Settle()) Tell();
}

void BaselineCheck::TellOthers() {
  const Status told = live::TellOthers(recording_->config().dump_path, rank_, live_->answer());
  if (!told.ok()) Log(LogLevel::kWarning, told.AsMessage());
}

void BaselineCheck::Tell() {
  const dump::Config& config = recording_->config();
  const live::Answer& answer = live_->answer();
  Log(LogLevel::kWarning,
      rank_
          ? "step {}, rank {} differs from the baseline {}"_t(answer.step, *rank_, config.baseline)
          : "step {} differs from the baseline {}"_t(answer.step, config.baseline));
  for (const std::string& line : answer.lines) {
    if (!line.empty()) Log(LogLevel::kWarning, line);
  }
  TellOthers();
  if (const Message first = live::WhoWasFirst(config.dump_path, rank_, answer); !first.empty())
    Log(LogLevel::kWarning, first);
  recording_->stored_calls = kNeighbours;
  raises_ = config.baseline_action == dump::BaselineAction::kRaise;
  stops_ = config.baseline_action == dump::BaselineAction::kStop;
  cut_ = raises_ || stops_;
}

void BaselineCheck::AfterRecord() {
  if (std::exchange(raises_, false)) {
    const live::Answer& answer = live_->answer();
    RaiseInMainThread("DivergenceError",
                      "step {} differs from the baseline at {}: {}"_t(
                          answer.step,
                          Message::Joined({answer.name, answer.source_line,
                                           answer.golden_line.empty()
                                               ? Message()
                                               : "in the golden: {}"_t(answer.golden_line)},
                                          ", "),
                          answer.why));
  }
  if (!stops_ || recording_->stored_calls > 0 || !recording_->session->collecting()) return;
  stops_ = false;
  complete_();
  recording_->session->Conclude("the run differs from its baseline"_t);
}

void BaselineCheck::EndStep(bool is_over) {
  if (live_ == nullptr || !has_step_) return;
  if (is_over) has_step_ = begins_ = false;
  switch (live_->EndStep(is_over && !cut_)) {
    case live::News::kNone:
      break;
    case live::News::kDiffers:
      Tell();
      break;
    case live::News::kOtherAnswer:
      TellOthers();
      break;
    case live::News::kTakenBack:
      live::ForgetDivergence(recording_->config().dump_path, rank_);
      break;
  }
  if (stops_) recording_->stored_calls = 0;
  AfterRecord();
  if (std::exchange(stops_, false))
    recording_->session->Conclude("the run differs from its baseline"_t);
}

}  // namespace msprobe::capture
