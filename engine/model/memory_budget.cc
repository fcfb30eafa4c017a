#include "engine/model/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/memory_size.h"
#include "engine/base/pages.h"
#include "engine/base/threads.h"

namespace msprobe {

uint64_t FixedMemory() {
  constexpr uint64_t kProgram = uint64_t{40} << 20, kOfThread = uint64_t{4} << 20;
  return kProgram + kOfThread * ThreadPool::Default().threads();
}

uint64_t MemoryForComparing(size_t records, size_t leaves) {
  constexpr uint64_t kHalfRow = 28, kHalfPair = 32;  // measured
  return leaves * kHalfRow + records * kHalfPair;
}

uint64_t MemoryOf(size_t records, size_t leaves, uint64_t text) {
  return leaves * sizeof(Leaf) + records * sizeof(Record) + text +
         MemoryForComparing(records, leaves);
}

uint64_t MemoryOf(const Dump& dump) {
  uint64_t text = 0;
  for (const std::string& chunk : dump.arena) text += chunk.size();
  for (const auto& frames : dump.stacks)
    text += sizeof(std::vector<std::string_view>) + frames.capacity() * sizeof(std::string_view);
  for (const MappedFile& file : dump.files) {
    if (file.path() == dump.path && file.bytes().size() < kLargeFile) text += file.bytes().size();
  }
  text += dump.shapes.bytes() + dump.counts.size() * (sizeof(ElementCounts) + 2 * sizeof(void*));
  return MemoryOf(dump.records.size(), dump.leaves.size(), text);
}

uint64_t MemoryBudget::left() const {
  const std::lock_guard lock(mutex_);
  return options_.bytes - std::min(options_.bytes, FixedMemory() + held_);
}

bool MemoryBudget::exceeded() const {
  const std::lock_guard lock(mutex_);
  return exceeded_;
}

Status MemoryBudget::Take(std::string_view what, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (FixedMemory() + held_ + bytes > options_.bytes)
    return TooMuch(what, FixedMemory() + held_ + bytes);
  held_ += bytes;
  return Status::Ok();
}

Status MemoryBudget::TooMuch(std::string_view path, uint64_t needed) {
  exceeded_ = true;
  const std::string flag = "--memory " + MemorySizeFlag(needed);
  const std::string need = MemorySizeText(needed), may = MemorySizeText(options_.bytes);
  if (options_.asked_for) {
    return Unsupported(
               "{}: comparing it needs about {} of memory, but may use {}"_t(path, need, may))
        .Hint(flag);
  }
  return Unsupported(
             "{}: comparing it needs about {} of memory, but there are {}"_t(path, need, may))
      .Hint("{} tries it anyway; the system may kill the process"_t(flag));
}

Status MemoryShare::Beside(uint64_t bytes) {
  const uint64_t held = held_ - beside_;
  Status status = Holds(held + bytes, read_);
  beside_ = bytes;
  return status;
}

Status MemoryShare::Holds(uint64_t bytes, uint64_t read) {
  if (budget_ == nullptr) return Status::Ok();
  MemoryBudget& budget = *budget_;
  const std::lock_guard lock(budget.mutex_);
  budget.held_ += bytes - held_;
  budget.read_ += read - read_;
  held_ = bytes, beside_ = 0, read_ = read;
  if (budget.options_.on_read) budget.options_.on_read(budget.read_);
  if (FixedMemory() + budget.held_ <= budget.options_.bytes) return Status::Ok();
  // An estimate for the message: the rest of the files needs as much memory for each byte as the
  // part that was read; and 5 % more.
  const auto all = static_cast<double>(std::max(budget.options_.file_bytes, budget.read_));
  const double times = 1.05 * all / static_cast<double>(std::max<uint64_t>(budget.read_, 1));
  return budget.TooMuch(
      path_, FixedMemory() + static_cast<uint64_t>(times * static_cast<double>(budget.held_)));
}

}  // namespace msprobe
