#include "engine/dump/pkl/pkl_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "engine/base/log.h"
#include "engine/dump/pkl/pkl_elements.h"
#include "engine/dump/pkl/pkl_names.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr int64_t kListedSample = 10;

// Creates the file; false: it exists already, because several processes choose a name in the same
// second. If it cannot be created for another reason, opening it later says why.
bool Claim(const std::string& path) {
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return errno != EEXIST;
  ::close(fd);
  return true;
}

std::string Joined(std::span<const int64_t> numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace

std::string PklNameOfFile(std::string_view file_name, bool swapped) {
  if (file_name.ends_with(".pt")) file_name.remove_suffix(3);
  const size_t dot = file_name.find('.');
  if (dot == file_name.npos) return std::string(file_name);
  const std::string_view call = file_name.substr(0, dot), value = file_name.substr(dot + 1);
  std::string_view part = value.substr(0, value.find('.'));
  const std::string_view rest = value.substr(part.size());
  if (part == "kwargs") part = "input";
  if (part != "input" && part != "output") return "";
  if (swapped && call.ends_with("_backward")) part = part == "input" ? "output" : "input";
  return fmt::format("{}_{}{}", call, part, rest);
}

PklWriter::PklWriter(const PklStyle& style)
    : style_(style),
      composer_(style_, [this](std::string_view file) { return TakeListed(file); }) {}

void PklWriter::List(const std::string& file_name, const TensorView& view) {
  if (waiting_ == listed_.size()) listed_.emplace_back();
  Listed& listed = listed_[waiting_++];
  listed.file = file_name;
  listed.elements.clear();
  ListElements(view, style_.sampled ? kListedSample : view.numel(), &listed.elements);
}

std::string_view PklWriter::TakeListed(std::string_view file_name) {
  for (size_t i = waiting_; i-- > 0;) {  // the entry's tensors are the last in the list
    if (listed_[i].file != file_name) continue;
    std::swap(listed_[i], listed_[--waiting_]);
    return listed_[waiting_].elements;
  }
  return {};
}

Result<std::unique_ptr<PklWriter>> PklWriter::Create(const PklStyle& style, bool keep) {
  std::unique_ptr<PklWriter> writer(new PklWriter(style));
  if (style.file_for_each || style.data == PklData::kStorages) return writer;
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(style.file)));
  MSPROBE_ASSIGN_OR_RETURN(writer->file_, AppendFile::Open(style.file, keep));
  writer->last_file_ = style.file;
  writer->is_empty_ = !keep;
  return writer;
}

// Creates "Overflow_info_20230104_134530.pkl", and chooses a folder with the same stem. If one of
// them exists, "_1" is added, or "_2".
Status PklWriter::BeginFile() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char time[32];
  std::strftime(time, sizeof(time), "%Y%m%d_%H%M%S", &utc);
  const std::string stem = JoinPath(style_.file, fmt::format("Overflow_info_{}", time));
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(style_.file));
  std::string free = stem;
  for (int i = 1; Exists(free) || !Claim(free + ".pkl"); ++i) free = fmt::format("{}_{}", stem, i);
  MSPROBE_ASSIGN_OR_RETURN(file_, AppendFile::Open(free + ".pkl", /*keep=*/true));
  last_file_ = free + ".pkl";
  last_folder_ = free;
  return Status::Ok();
}

Status PklWriter::Store(const std::string& file_name, const TensorView& view, TensorQueue* queue) {
  const bool plain =
      !DTypeTorchName(view.dtype).starts_with("torch.float") && view.dtype != DType::kBFloat16;
  if (!style_.plain_values && (plain || view.ndim == 0 || view.numel() == 0)) return Status::Ok();
  if (style_.data == PklData::kInLines) {
    List(file_name, view);
    return Status::Ok();
  }
  std::string name = PklNameOfFile(file_name, style_.swaps_backward());
  if (name.empty()) return Status::Ok();
  if (style_.data == PklData::kStorages) return StoreStorage(name, view, queue);
  if (style_.file_for_each) {
    if (!file_.is_open()) MSPROBE_RETURN_IF_ERROR(BeginFile());
    queue->SetFolder(last_folder_);
    name = WithoutLineNumber(name);
  }
  name += ".npy";
  if (style_.dialect == PklDialect::kNumbered)
    return queue->Push(name, SampleElements(view, style_.sample_step).view());
  OwnedElements owned;
  return queue->Push(name, NumpyElements(view, &owned));
}

// "16_Functional_relu_backward_input0_shape[2,1]_stride[1,1]_offset[0]_format[2].npy"
Status PklWriter::StoreStorage(std::string_view name, const TensorView& view, TensorQueue* queue) {
  const PklName parsed = ParsePklName(name).value_or(PklName{});
  const std::string side =
      fmt::format("{}_{}", parsed.stem, parsed.part == PklPart::kInput ? "input" : "output");
  if (side != last_side_) {
    last_side_ = side;
    ++next_side_;
    next_value_ = 0;
  }
  const std::vector<int64_t> contiguous = ContiguousStrides(view.dims());
  const std::span<const int64_t> strides =
      view.strides == nullptr ? std::span<const int64_t>(contiguous)
                              : std::span(view.strides, static_cast<size_t>(view.ndim));
  OwnedElements elements;
  int64_t offset = 0;
  TensorView stored = view;
  if (!view.IsContiguous()) {
    elements = StorageElements(view, &offset);
    stored = elements.view();
  }
  OwnedElements converted;
  stored = NumpyElements(stored, &converted);
  const std::string call = WithoutCallNumber(parsed.stem);
  // Gradients arrive in the order of the autograd graph: their place is in the name of the file.
  const int64_t place = parsed.direction == Direction::kBackward && !parsed.rest.empty()
                            ? NumberAfter(parsed.rest.substr(1), "")
                            : next_value_++;
  return queue->Push(
      fmt::format("{}_{}_{}{}_shape[{}]_stride[{}]_offset[{}]_format[2].npy", next_side_ - 1, call,
                  parsed.part == PklPart::kInput ? "input" : "output", place, Joined(view.dims()),
                  Joined(strides), offset),
      stored);
}

Result<int64_t> PklWriter::AddStack(std::string_view, std::vector<std::string> frames) {
  stacks_.push_back(PklFrames(frames));
  return static_cast<int64_t>(stacks_.size()) - 1;
}

Status PklWriter::Write(const Entry& entry) {
  if (style_.data == PklData::kStorages) return Status::Ok();
  composer_.Compose(entry);
  std::string_view text = composer_.lines();
  if (entry.stack >= 0 && static_cast<size_t>(entry.stack) < stacks_.size()) {
    const bool stack_first = style_.swaps_backward();  // torch_npu.hooks and ptdbg_ascend 0.1
    with_stack_.clear();
    if (!stack_first) with_stack_ += composer_.lines();
    AppendStackLine(&with_stack_, composer_.name(), stacks_[static_cast<size_t>(entry.stack)]);
    if (stack_first) with_stack_ += composer_.lines();
    text = with_stack_;
  }
  if (text.empty()) return Status::Ok();
  is_empty_ = false;
  if (!style_.file_for_each) return file_.Append(text);
  if (!file_.is_open()) MSPROBE_RETURN_IF_ERROR(BeginFile());
  MSPROBE_RETURN_IF_ERROR(file_.Append(text));
  return file_.Close();
}

Status PklWriter::Close() {
  const std::vector<std::string>& wanted = style_.scope.empty() ? style_.api_list : style_.scope;
  if (!wanted.empty() && file_.is_open() && std::exchange(is_empty_, false)) {
    Log(LogLevel::kWarning,
        "{} has no lines: no call fits {}; use the names "
        "in a dump of all calls"_t(file_.path(), fmt::format("{}", fmt::join(wanted, ", "))));
  }
  return Status::Ok();
}

Status PklWriter::Finish() {
  if (!file_.is_open()) return Status::Ok();
  if (file_.IsRemoved()) {
    return Status(ErrorCode::kIo)
        .At(file_.path())
        .Says("somebody removed this file while it was being written"_t);
  }
  return file_.Close();
}

}  // namespace msprobe::dump
