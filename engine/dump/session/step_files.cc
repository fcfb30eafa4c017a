#include "engine/dump/session/step_files.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/base/version.h"
#include "engine/dump/pkl/pkl_place.h"
#include "engine/dump/read/side_files.h"
#include "engine/dump/write/folder_claim.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr char kTensorFolder[] = "dump_tensor_data";

// Bytes of tensors that wait for the writing thread; 0: the caller writes. With one or two cores
// the writing thread would take from the training as much time as it saves, so it is used only when
// the configuration asks for it (async_dump), or the training runs on a device.
int64_t TensorBudget(bool later) {
  const char* text = std::getenv("MSPROBE_TENSOR_BUDGET_MB");
  char* end = nullptr;
  const int64_t megabytes = text ? std::strtoll(text, &end, 10) : -1;
  if (megabytes >= 0 && megabytes < INT64_MAX >> 20 && end != text && *end == '\0')
    return megabytes << 20;
  return later || ThreadPool::Default().threads() > 2 ? 256 << 20 : 0;
}

}  // namespace

bool StoresTensors(const Config& config) {
  return config.task == Task::kTensor || config.task == Task::kOverflowCheck ||
         (config.task == Task::kStatistics &&
          (!config.tensor_list.empty() || !config.baseline.empty()));
}

Status StepFiles::Open(const Config& config, int64_t step, std::optional<int> rank,
                       const std::string& provenance) {
  if (config.pkl) return OpenPkl(config, rank);
  const std::string step_folder = fmt::format("step{}", step);
  const std::string rank_folder = rank ? fmt::format("rank{}", *rank) : "rank";
  folder_ = JoinPath(JoinPath(config.dump_path, step_folder),
                     ClaimFolder(config.dump_path, step_folder, rank_folder));
  DumpHeader header;
  header.task = TaskName(config.task);
  header.level = LevelName(config.level);
  header.framework = framework_;
  header.tool = fmt::format("msprobe {}", kVersion);
  header.provenance = provenance;
  header.extra_info = config.extra_info;
  if (config.level == Level::kDebug) header.file_name = "debug.json";
  const bool store = StoresTensors(config);
  if (store) header.dump_data_dir = JoinPath(folder_, kTensorFolder);
  if (!stages_.insert(folder_).second) {
    if (!std::exchange(said_stage_, true))
      Log(LogLevel::kWarning,
          "{} holds an earlier stage of this step: it is replaced; to keep it, set "
          "another dump_path for each stage, or call step() between them"_t(folder_));
  } else if (Exists(JoinPath(folder_, header.file_name)) && !std::exchange(said_replaces_, true)) {
    Log(LogLevel::kWarning,
        "{} holds an earlier dump: it is replaced; to keep it, use another dump_path"_t(folder_));
  }
  MSPROBE_ASSIGN_OR_RETURN(writer_, DumpWriter::Create(folder_, header));
  if (store && tensors_ == nullptr)
    tensors_ = std::make_unique<TensorQueue>(
        TensorQueueOptions{.budget = TensorBudget(config.async_dump || later_)});
  if (store)
    tensors_->SetFolder(header.dump_data_dir,
                        {.link_equal = config.link_equal_tensors, .packed = config.packed_tensors});
  return Status::Ok();
}

Status StepFiles::OpenPkl(const Config& config, std::optional<int> rank) {
  MSPROBE_ASSIGN_OR_RETURN(const PklStyle style, PlacePklFiles(*config.pkl, rank));
  folder_ = style.file_for_each ? style.file : DirectoryName(style.file);
  const bool keep = !pkl_files_.insert(style.file).second;
  begins_pkl_ = !keep;
  MSPROBE_ASSIGN_OR_RETURN(std::unique_ptr<PklWriter> writer, PklWriter::Create(style, keep));
  pkl_ = writer.get();
  writer_ = std::move(writer);
  if (style.data != PklData::kNone) {
    tensors_ = std::make_unique<TensorQueue>(
        TensorQueueOptions{.budget = TensorBudget(config.async_dump || later_)});
    tensors_->SetFolder(style.data_folder);
  }
  return Status::Ok();
}

Status StepFiles::Close() {
  if (writer_ == nullptr) return Status::Ok();
  Status first = tensors_ ? tensors_->Drain() : Status::Ok();
  Status closed = writer_->Close();
  return first.ok() ? closed : first;
}

void StepFiles::WriteTensorsLater() {
  later_ = true;
  if (tensors_ != nullptr) tensors_->SetBudget(TensorBudget(later_));
}

Status StepFiles::Finish() { return writer_ == nullptr ? Status::Ok() : writer_->Finish(); }

void StepFiles::Forget() {
  pkl_ = nullptr;
  writer_.reset();
  stack_numbers_.clear();
}

void StepFiles::DrainTensors() {
  if (tensors_ != nullptr) (void)tensors_->Drain();
}

void StepFiles::Abandon() {
  ForgetClaims();
  pkl_ = nullptr;
  // Kept for ever: to destroy them would write into files that are the parent's.
  static auto& abandoned = *new std::vector<std::pair<decltype(writer_), decltype(tensors_)>>;
  abandoned.emplace_back(std::move(writer_), std::move(tensors_));
}

Status StepFiles::WriteBeside(const std::string& file_name, std::string_view text) {
  std::string name = file_name;
  if (pkl_ != nullptr) {
    // A folder of pkl files gets no other files of ours.
    if (file_name != "weights.json" || pkl_->last_file().empty()) return Status::Ok();
    name = WeightsFileOf(BaseName(pkl_->last_file()));
  }
  return WriteFileAtomically(JoinPath(folder_, name), text);
}

Result<int64_t> StepFiles::NoteStack(int64_t stack, std::string_view name,
                                     std::vector<std::string> frames) {
  if (!KnowsStack(stack)) return AddStack(stack, name, std::move(frames));
  const int64_t number = stack_numbers_[static_cast<size_t>(stack)];
  MSPROBE_RETURN_IF_ERROR(writer_->NoteStack(number, name));
  return number;
}

Result<int64_t> StepFiles::AddStack(int64_t stack, std::string_view name,
                                    std::vector<std::string> frames) {
  MSPROBE_ASSIGN_OR_RETURN(const int64_t number, writer_->AddStack(name, std::move(frames)));
  if (static_cast<size_t>(stack) >= stack_numbers_.size())
    stack_numbers_.resize(static_cast<size_t>(stack) + 64, -1);
  return stack_numbers_[static_cast<size_t>(stack)] = number;
}

Status StepFiles::Store(const std::string& file_name, const TensorView& view) {
  return pkl_ != nullptr ? pkl_->Store(file_name, view, tensors_.get())
                         : tensors_->Push(file_name, view);
}

}  // namespace msprobe::dump
