#include "engine/dump/session/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/base/version.h"
#include "engine/dump/pkl/pkl_place.h"
#include "engine/dump/read/side_files.h"
#include "engine/dump/session/dump_place.h"
#include "engine/dump/write/folder_claim.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr char kTensorFolder[] = "dump_tensor_data";

std::string_view LevelName(Level level) {
  if (level == Level::kDebug) return "debug";
  return level == Level::kL0 ? "L0" : level == Level::kMix ? "mix" : "L1";
}

// Host memory for tensors on their way to the disk. With two cores a writer only takes from
// training what it gives, unless the configuration asks for it.
int64_t TensorBudget(bool async_dump) {
  const char* text = std::getenv("MSPROBE_TENSOR_BUDGET_MB");
  char* end = nullptr;
  const int64_t megabytes = text ? std::strtoll(text, &end, 10) : -1;
  if (megabytes >= 0 && megabytes < INT64_MAX >> 20 && end != text && *end == '\0')
    return megabytes << 20;
  return async_dump || ThreadPool::Default().threads() > 2 ? 256 << 20 : 0;
}

bool Stores(const Config& config) {
  return config.task == Task::kTensor || config.task == Task::kOverflowCheck ||
         (config.task == Task::kStatistics && !config.tensor_list.empty());
}

}  // namespace

Session::Session(Config config, std::string framework)
    : config_(std::move(config)),
      filter_(config_),
      enabled_(config_.dump_enable.value_or(true)),
      slicer_(config_.slice),
      framework_(std::move(framework)) {
  disabled_ = IsDisabledByEnvironment();
  if (disabled_) Log(LogLevel::kInfo, "MSPROBE_DISABLE is 1: nothing is recorded");
}

bool Session::StepIsWanted() {
  if (disabled_ || failed_ || concluded_ || !enabled()) return false;
  if (collecting_) return true;
  if (next_ && !std::exchange(said_later_, true)) {
    Log(LogLevel::kInfo, fmt::format("step {} is begun: the changed configuration holds from the "
                                     "next step on, after step()",
                                     step_));
  }
  if (config_.level == Level::kL2) return false;       // said when the configuration was read
  if (config_.task == Task::kGradProbe) return false;  // gradients are read at optimizer steps
  if (!filter_.WantsStep(step_)) {
    if (filter_.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
      Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection");
    }
    return false;
  }
  return true;
}

Result<bool> Session::Start(std::optional<int> rank) {
  if (!StepIsWanted()) return false;
  if (collecting_) return true;
  if (!filter_.WantsRank(rank.value_or(-1))) return false;
  if (request_is_absent_) {
    Log(LogLevel::kWarning, fmt::format("step {} is not collected: request {} has no tokens in it",
                                        step_, Excerpt(config_.request_id)));
    return false;
  }
  if (writer_ != nullptr) {
    if (const Status status = writer_->Reopen(); !status.ok()) {
      Fail(status);
      return status;
    }
  } else if (const Status status = Open(rank); !status.ok()) {
    Fail(status);
    return status;
  }
  ++epoch_;
  collecting_ = true;
  return true;
}

void Session::ScheduleTokens(std::optional<TokenCounts> counts) {
  tokens_ = std::move(counts);
  ApplyTokens();
}

void Session::ApplyTokens() {
  request_is_absent_ = false;
  slicer_.SetRequest(std::nullopt);
  if (!tokens_) return;
  if (config_.request_id.empty()) {
    if (!std::exchange(said_no_request_, true))
      Log(LogLevel::kWarning,
          "scheduled_tokens has no effect: the configuration has no request_id");
    return;
  }
  std::optional<SliceRule> rule = SliceOfRequest(*tokens_, config_.request_id);
  request_is_absent_ = !rule;
  slicer_.SetRequest(std::move(rule));
}

Status Session::OpenPkl(std::optional<int> rank) {
  MSPROBE_ASSIGN_OR_RETURN(const PklStyle style, PlacePklFiles(*config_.pkl, rank));
  folder_ = style.file_for_each ? style.file : DirectoryName(style.file);
  const bool keep = !pkl_files_.insert(style.file).second;
  begins_pkl_ = !keep;
  MSPROBE_ASSIGN_OR_RETURN(std::unique_ptr<PklWriter> writer, PklWriter::Create(style, keep));
  pkl_ = writer.get();
  writer_ = std::move(writer);
  hook_calls_ = 0;
  if (style.data != PklData::kNone) {
    tensors_ = std::make_unique<TensorQueue>(
        TensorQueueOptions{.budget = TensorBudget(config_.async_dump)});
    tensors_->SetFolder(style.data_folder);
  }
  if (rank) SetLogRank(*rank);
  return Status::Ok();
}

Status Session::Open(std::optional<int> rank) {
  if (config_.pkl) return OpenPkl(rank);
  const std::string step = fmt::format("step{}", step_);
  const std::string rank_folder = rank ? fmt::format("rank{}", *rank) : "rank";
  folder_ = JoinPath(JoinPath(config_.dump_path, step),
                     ClaimFolder(config_.dump_path, step, rank_folder));
  DumpHeader header;
  header.task = TaskName(config_.task);
  header.level = LevelName(config_.level);
  header.framework = framework_;
  header.tool = fmt::format("msprobe {}", kVersion);
  header.provenance = provenance_;
  header.extra_info = config_.extra_info;
  if (config_.level == Level::kDebug) header.file_name = "debug.json";
  const bool store = Stores(config_);
  if (store) header.dump_data_dir = JoinPath(folder_, kTensorFolder);
  if (Exists(JoinPath(folder_, header.file_name)) && !std::exchange(said_replaces_, true))
    Log(LogLevel::kWarning,
        fmt::format("{} holds an earlier dump: it is replaced; another dump_path would keep it",
                    folder_));
  MSPROBE_ASSIGN_OR_RETURN(writer_, DumpWriter::Create(folder_, header));
  if (store && tensors_ == nullptr)
    tensors_ = std::make_unique<TensorQueue>(
        TensorQueueOptions{.budget = TensorBudget(config_.async_dump)});
  if (store) tensors_->SetFolder(header.dump_data_dir);
  if (rank) SetLogRank(*rank);
  return Status::Ok();
}

void Session::Adopt(Config config) {
  if (config.dump_path != config_.dump_path) {
    writer_.reset();
    stack_numbers_.clear();
  }
  if (writer_ == nullptr) tensors_.reset();
  config_ = std::move(config);
  filter_ = Filter(config_);
  slicer_ = Slicer(config_.slice);
  ApplyTokens();
  failed_ = concluded_ = said_end_ = said_later_ = false;
  ++configured_;
}

void Session::ReleasePkl() {
  (void)Stop();  // logs what fails
  if (writer_ != nullptr && !failed_) {
    if (const Status status = writer_->Finish(); !status.ok()) Fail(status);
  }
  pkl_ = nullptr;
  writer_.reset();
  stack_numbers_.clear();
}

void Session::Restyle(Config config, bool goes_on) {
  if (abandoned_) return;
  ReleasePkl();
  next_.reset();
  const bool failed = failed_, concluded = concluded_;
  Adopt(std::move(config));
  failed_ = goes_on && failed;
  concluded_ = goes_on && concluded;
}

void Session::Reconfigure(Config config) {
  if (abandoned_) return;
  refused_ = false;
  enabled_ = config.dump_enable.value_or(enabled_);
  // What is on the disk of this step stays, and its header stays true.
  const bool same_header = config.task == config_.task && config.level == config_.level &&
                           config.extra_info == config_.extra_info &&
                           Stores(config) == Stores(config_) && !failed_;
  next_.reset();
  if (writer_ == nullptr || same_header || config.dump_path != config_.dump_path) {
    Adopt(std::move(config));
  } else {
    next_ = std::move(config);
  }
}

void Session::Refuse() { refused_ = true; }

Status Session::Stop() {
  DrainDeferred(/*give_up=*/true);
  if (!std::exchange(collecting_, false)) return Status::Ok();
  ++epoch_;
  Status first = tensors_ ? tensors_->Drain() : Status::Ok();
  Status closed = writer_->Close();
  if (first.ok()) first = std::move(closed);
  if (!first.ok()) Fail(first);
  return first;
}

void Session::BeginAtStep(int64_t step) {
  (void)Stop();  // logs what fails
  if (writer_ != nullptr && !failed_) {
    if (const Status status = writer_->Finish(); !status.ok()) Fail(status);
  }
  writer_.reset();
  step_ = step;
  ++epoch_;
  calls_.assign(calls_.size(), 0);
  stack_numbers_.clear();
  filter_.NewStep();
  // Its buffers serve the next step as well: fresh memory costs more than the copy.
  if (!filter_.WantsStep(step_)) tensors_.reset();
  pkl_ = nullptr;
  if (next_) Adopt(*std::exchange(next_, std::nullopt));
}

int64_t Session::NextCall(uint32_t counter) {
  if (counter >= calls_.size()) calls_.resize(counter + 64, 0);
  return calls_[counter]++;
}

void Session::TakeBack(uint32_t counter) { --calls_[counter]; }

void Session::NameCall(const std::string& stem, int64_t call, bool is_module, std::string* forward,
                       std::string* backward) {
  if (!config_.pkl) {
    *forward = ComposeEntryName(stem, call, "forward", is_module);
    *backward = ComposeEntryName(stem, call, "backward", is_module);
    return;
  }
  std::string base = stem.substr(0, stem.find_last_not_of('.') + 1);
  for (char& c : base) c = c == '.' || c == '/' ? '_' : c;  // files are called as lines are
  *backward = fmt::format("{}_{}_backward", base, call);
  *forward = RenamesGradients() ? fmt::format("{}_{}_forward", hook_calls_++, base)
                                : fmt::format("{}_{}_forward", base, call);
}

bool Session::RenamesGradients() const {
  return config_.pkl && config_.pkl->dialect == PklDialect::kNumbered;
}

std::string Session::NameGradients(const std::string& backward) {
  return fmt::format("{}_{}", hook_calls_++, WithoutCallNumber(backward));
}

void Session::Record(const Item& item) {
  if (!collecting_) return;
  if (!deferred_.waiting() && (item.entry == nullptr || !IsDeferred(*item.entry)))
    return Write(item);
  DeferredEntry waiting{.has_entry = item.entry != nullptr,
                        .name = std::string(item.name),
                        .parent = std::string(item.parent),
                        .construct = item.construct};
  if (item.entry != nullptr) waiting.entry = *item.entry;
  deferred_.Add(std::move(waiting));
}

void Session::ResolveDeferredStats(std::span<const std::pair<int64_t, kernels::Stats>> stats) {
  for (const auto& [ticket, known] : stats) deferred_.Resolve(ticket, known);
  DrainDeferred(/*give_up=*/false);
}

void Session::DrainDeferred(bool give_up) {
  deferred_.Drain(give_up, [&](const DeferredEntry& e) {
    Write({e.has_entry ? &e.entry : nullptr, e.name, e.parent, e.construct});
  });
}

void Session::Write(const Item& item) {
  if (!collecting_) return;
  Status status = item.entry == nullptr ? Status::Ok() : writer_->Write(*item.entry);
  if (status.ok() && item.construct) status = writer_->AppendConstruct(item.name, item.parent);
  if (!status.ok()) Fail(status);
}

void Session::WriteBeside(const std::string& file_name, std::string_view text) {
  if (!collecting_) return;
  std::string name = file_name;
  if (pkl_ != nullptr) {
    // Folders of the older tools have nothing else.
    if (file_name != "weights.json" || pkl_->last_file().empty()) return;
    name = WeightsFileOf(BaseName(pkl_->last_file()));
  }
  if (const Status status = WriteFileAtomically(JoinPath(folder_, name), text); !status.ok())
    Fail(status);
}

int64_t Session::AddStack(int64_t stack, std::string_view name, std::vector<std::string> frames) {
  Result<int64_t> number = writer_->AddStack(name, std::move(frames));
  if (!number.ok()) {
    Fail(number.status());
    return -1;
  }
  if (static_cast<size_t>(stack) >= stack_numbers_.size())
    stack_numbers_.resize(static_cast<size_t>(stack) + 64, -1);
  return stack_numbers_[static_cast<size_t>(stack)] = *number;
}

bool Session::Store(const std::string& file_name, const TensorView& view) {
  if (!collecting_) return false;
  const Status status = pkl_ != nullptr ? pkl_->Store(file_name, view, tensors_.get())
                                          : tensors_->Push(file_name, view);
  if (!status.ok()) Fail(status);
  return status.ok();
}

void Session::Conclude(std::string_view why) {
  if (!Stop().ok()) return;  // logged by Stop
  concluded_ = true;
  const bool ends = config_.pkl && config_.pkl->raises;
  Log(LogLevel::kInfo, fmt::format("{}; {}", why,
                                   ends ? "the program ends, as it was asked to"
                                        : "the run goes on without collection"));
}

void Session::Fail(const Status& status) noexcept {
  collecting_ = false;
  ++epoch_;
  if (std::exchange(failed_, true)) return;
  try {
    std::string line = "collection is off, the run goes on: " + status.message();
    if (!status.hint().empty()) line += "; " + status.hint();
    if (writer_ != nullptr)
      line += fmt::format("; what was recorded until now is in {} (msprobe recover closes it)",
                          folder_);
    Log(LogLevel::kError, line);
    // Entries that are written speak of the tensors that wait.
    if (tensors_ != nullptr) (void)tensors_->Drain();
  } catch (const std::exception&) {
    static constexpr char kLine[] = "msprobe: collection is off, the run goes on: out of memory\n";
    (void)!::write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  }
}

void Session::Abandon() {
  collecting_ = false;
  failed_ = abandoned_ = true;
  ++epoch_;
  ForgetClaims();
  pkl_ = nullptr;
  (void)writer_.release();
  (void)tensors_.release();
}

}  // namespace msprobe::dump
