#include "engine/dump/pkl/pkl_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/pkl/pkl_names.h"
#include "engine/dump/pkl/pkl_values.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

constexpr int64_t kMostSampleStep = 100;

class PklReader {
 public:
  PklReader(std::string_view path, std::string_view text, Dump* dump,
            std::vector<int32_t>* segments, MemoryShare* memory)
      : path_(path), text_(text), dump_(*dump), segments_(segments), memory_(memory) {}

  Status Read() {
    PklWalker walker(text_, &arena_);
    while (walker.Next()) {
      if (!walker.bad()) {
        Add(walker.values());
        MSPROBE_RETURN_IF_ERROR(CheckMemory(walker.end()));
      } else if (walker.unfinished()) {
        dump_.complete = false;
        dump_.AddNote(
            "the run was killed or could not write: {} bytes of an "
            "unfinished line ignored"_t(text_.size() - walker.begin()));
      } else if (bad_lines_++ == 0) {
        first_bad_ = walker.Error(path_);
        first_bad_line_ = walker.LineNumber();
      }
    }
    if (dump_.records.empty() && bad_lines_ > 0) return first_bad_;
    if (dump_.records.empty()) {
      return InvalidDump(path_)
          .Expected(
              "lines of torch_npu.hooks or ptdbg_ascend, [\"Tensor_add_0_forward_input.0\", "
              "...]"_t)
          .Found(unknown_ > 0 ? "other names, the first {}"_t(Excerpt(first_unknown_)) : "none"_t);
    }
    Finish();
    return Status::Ok();
  }

 private:
  void Add(const PklValues& line) {
    const std::optional<PklName> name = ParsePklName(line.name);
    if (!name) {
      if (unknown_++ == 0) first_unknown_ = line.name;
      return;
    }
    if (name->part == PklPart::kStack) {
      AddStack(*name, line);
      return;
    }
    numbered_ |= name->number >= 0;
    dotted_ |= name->separator == '.';
    hooks_ |= line.is_listed;
    has_norm_ |= line.statistics.size() == 4;
    dump_.has_checksums |= !line.digest.empty();
    if (BeginsRecord(*name)) NewRecord(*name);
    Record& record = dump_.records.back();
    Leaf leaf{.record = static_cast<uint32_t>(dump_.records.size() - 1),
              .slot = name->part == PklPart::kInput ? Slot::kInput : Slot::kOutput};
    leaf.name = line.name;
    FillLeaf(line, &dump_.shapes, &leaf);
    ++record.leaf_count;
    dump_.leaves.push_back(leaf);
    // The first files of ptdbg_ascend 0.1 hold every step-th element of a large tensor.
    if (numbered_ && !line.is_listed && line.step >= 1 && line.step <= kMostSampleStep) {
      if (step_ >= 0 && step_ != line.step) dump_.sample_step = 0;
      step_ = line.step;
      dump_.sampled |= step_ > 1;
    }
    last_part_ = name->part;
    last_rest_ = name->rest;
  }

  // Checks the memory of all lines up to offset `at`, and of the leaves made from them.
  Status CheckMemory(size_t at) {
    constexpr size_t kBetweenChecks = 4096;  // leaves
    const size_t leaves = dump_.leaves.size();
    if (memory_ == nullptr || leaves < next_check_) return Status::Ok();
    next_check_ = leaves + kBetweenChecks;
    const size_t moved = next_check_ > dump_.leaves.capacity() ? leaves : 0;
    return memory_->Holds(
        MemoryOf(dump_.records.size(), leaves,
                 arena_.bytes() + dump_.shapes.bytes() + moved * sizeof(Leaf) + at),
        at);
  }

  // Whether a line begins a new call. torch_npu.hooks numbers lines and not calls: there a new call
  // begins where an input follows an output, or where the places do not increase. Example: input.0,
  // input.1, output, input.0 are two calls; so are input.0 and input.0.
  bool BeginsRecord(const PklName& name) const {
    if (dump_.records.empty()) return true;
    const std::string_view last = dump_.records.back().name;
    if (WithoutLineNumber(name.stem) != WithoutLineNumber(last)) return true;
    if (name.number < 0) return false;
    if (!hooks_) return name.stem != last;
    if (name.part != last_part_) return name.part == PklPart::kInput;
    return !NaturalLess(last_rest_, name.rest);
  }

  void NewRecord(const PklName& name) {
    if (name.number >= 0) {
      if (name.number < last_number_) ++segment_;
      last_number_ = name.number;
    }
    Record record{.name = name.stem};
    record.api = arena_.Copy(name.Api());
    record.call = name.call;
    record.direction = name.direction;
    record.is_module = name.type == "Module";
    record.first_leaf = static_cast<uint32_t>(dump_.leaves.size());
    dump_.records.push_back(record);
    segments_->push_back(segment_);
  }

  // ptdbg_ascend writes a stack as one list, stack_info. By a defect 0.1 also writes each frame
  // (stack_info.0) and each part of a frame (stack_info.0.0); these lines are ignored.
  // torch_npu.hooks writes one line for each frame, stack_info.0, which is a text.
  void AddStack(const PklName& name, const PklValues& line) {
    if (name.rest.empty()) {
      // Most calls of a program come from few places.
      const auto [known, is_new] =
          stacks_.emplace(line.stack, static_cast<int32_t>(dump_.stacks.size()));
      if (is_new) dump_.stacks.push_back(line.frames);
      stack_of_[name.stem] = known->second;
    } else if (line.is_text && name.rest.rfind('.') == 0) {
      const auto [own, is_new] =
          text_stack_of_.emplace(name.stem, static_cast<int32_t>(dump_.stacks.size()));
      if (is_new) dump_.stacks.emplace_back();
      std::vector<std::string_view>& frames = dump_.stacks[own->second];
      frames.insert(frames.end(), line.frames.begin(), line.frames.end());
      stack_of_.emplace(name.stem, own->second);
    }
  }

  void Finish() {
    for (Record& record : dump_.records) {
      if (const auto found = stack_of_.find(record.name); found != stack_of_.end())
        record.stack = found->second;
    }
    if (numbered_) NumberCalls();
    if (numbered_ && !dotted_) SwapBackward();
    if (dump_.sampled && dump_.sample_step != 0) dump_.sample_step = step_;
    if (hooks_) FindSamples();
    dump_.task = hooks_ ? Task::kTensor : Task::kStatistics;
    dump_.level = Level::kL1;
    dump_.dialect = hooks_                             ? Dialect::kHooks
                    : numbered_                        ? Dialect::kPtdbgFirst
                    : dotted_                          ? Dialect::kPtdbg6
                    : has_norm_ || dump_.has_checksums ? Dialect::kPtdbg5
                    : AllBare()                        ? Dialect::kPtdbgFirst
                                                       : Dialect::kPtdbg1To4;
    if (bad_lines_ > 0) {
      const Message why = first_bad_.AsMessage();
      dump_.AddNote(bad_lines_ == 1 ? "1 line could not be read, the first is line {}: {}"_t(
                                          first_bad_line_, why)
                                    : "{} lines could not be read, the first is line {}: {}"_t(
                                          bad_lines_, first_bad_line_, why));
    }
    if (unknown_ > 0) {
      const std::string first = Excerpt(first_unknown_);
      dump_.AddNote(unknown_ == 1
                        ? "1 name of another form left out, the first {}"_t(first)
                        : "{} names of another form left out, the first {}"_t(unknown_, first));
    }
    arena_.Release(&dump_.arena);
  }

  bool AllBare() const {
    return std::all_of(dump_.records.begin(), dump_.records.end(),
                       [](const Record& r) { return r.call < 0; });
  }

  // Numbers the calls of one API in the order in which they appear. If there are as many backward
  // calls as forward calls, the backward calls are numbered from the last to the first, because
  // autograd runs them in reverse order: forward 0 1 2, backward 2 1 0.
  void NumberCalls() {
    std::unordered_map<std::string_view, int64_t> forward, backward, seen;
    for (const Record& r : dump_.records)
      ++(r.direction == Direction::kForward ? forward : backward)[r.api];
    std::unordered_map<std::string_view, int64_t> done;
    for (Record& r : dump_.records) {
      if (r.direction == Direction::kForward) {
        r.call = seen[r.api]++;
      } else {
        const int64_t n = done[r.api]++, all = backward[r.api];
        r.call = forward[r.api] == all ? all - 1 - n : n;
      }
    }
  }

  void SwapBackward() {
    for (const Record& r : dump_.records) {
      if (r.direction != Direction::kBackward) continue;
      const auto first = dump_.leaves.begin() + r.first_leaf, end = first + r.leaf_count;
      for (auto leaf = first; leaf != end; ++leaf)
        leaf->slot = leaf->slot == Slot::kInput ? Slot::kOutput : Slot::kInput;
      std::stable_sort(first, end, [](const Leaf& a, const Leaf& b) { return a.slot < b.slot; });
    }
  }

  // Finds out whether the lists of torch_npu.hooks are samples (the first ten elements, then max,
  // min and mean) or have all elements. A list of 13 numbers can be either: the other lists of the
  // file decide.
  void FindSamples() {
    bool full = false, sampled = false;
    for (const Leaf& leaf : dump_.leaves) {
      const ListForm form = FormOfList(leaf);
      full |= form == ListForm::kAll;
      sampled |= form == ListForm::kSample;
    }
    for (Leaf& leaf : dump_.leaves) {
      const ListForm form = FormOfList(leaf);
      if (form == ListForm::kSample || (form == ListForm::kEither && (sampled || !full)))
        TakeStatisticsFromList(&leaf);
    }
    dump_.sampled = sampled || !full;
    if (dump_.sampled) dump_.sample_step = 0;
  }

  std::string_view path_, text_;
  Dump& dump_;
  TextArena arena_;
  std::unordered_map<std::string_view, int32_t> stack_of_, text_stack_of_;  // by stem
  std::unordered_map<std::string_view, int32_t> stacks_;                    // by text
  std::vector<int32_t>* segments_;
  MemoryShare* memory_;
  size_t next_check_ = 0;
  bool numbered_ = false, dotted_ = false, hooks_ = false, has_norm_ = false;
  int32_t segment_ = 0;
  int64_t last_number_ = -1, step_ = -1;
  PklPart last_part_ = PklPart::kInput;
  std::string_view last_rest_, first_unknown_;
  size_t bad_lines_ = 0, unknown_ = 0;
  int64_t first_bad_line_ = 0;
  Status first_bad_;
};

}  // namespace

Status ReadPklLines(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<int32_t>* segments, MemoryShare* memory) {
  segments->clear();
  return PklReader(path, text, dump, segments, memory).Read();
}

}  // namespace msprobe::dump
