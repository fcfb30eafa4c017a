#include "engine/dump/write/deferred_entries.h"

#include <algorithm>
#include <utility>

namespace msprobe::dump {

bool IsDeferred(const Entry& entry) {
  return std::any_of(entry.tensors().begin(), entry.tensors().end(), [](const TensorValue& tensor) {
    return tensor.numbers == TensorValue::Numbers::kDeferred;
  });
}

namespace {

// Whether some result of the call has a NaN or infinity.
bool MakesNonfinite(const Entry& entry) {
  for (const Entry::Slot& slot : entry.slots()) {
    if (entry.text(slot.key) != "output") continue;
    for (size_t i = slot.root; i < entry.values()[slot.root].end; ++i) {
      const Entry::Value& value = entry.values()[i];
      if (value.kind != Entry::Kind::kTensor) continue;
      const kernels::Stats& stats = entry.tensor(value).stats;
      if (stats.nan + stats.pos_inf + stats.neg_inf > 0) return true;
    }
  }
  return false;
}

}  // namespace

DeferredEntry& DeferredEntries::Add() {
  if (spare_.empty()) return entries_.emplace_back();
  entries_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return entries_.back();
}

void DeferredEntries::RemoveFirst() {
  constexpr size_t kMostSpare = 32;  // some more than wait for one transfer
  if (spare_.size() < kMostSpare) spare_.push_back(std::move(entries_.front()));
  entries_.pop_front();
}

bool DeferredEntries::Fill(DeferredEntry* waiting, bool give_up) {
  if (!waiting->has_entry) return true;
  for (TensorValue& tensor : waiting->entry.tensors()) {
    if (tensor.numbers != TensorValue::Numbers::kDeferred) continue;
    const auto known = known_.find(tensor.ticket);
    if (known == known_.end()) {
      if (!give_up) return false;
      continue;
    }
    tensor.Resolve(known->second);
    known_.erase(known);
  }
  // The call could not say it.
  if (waiting->entry.is_nan == false) waiting->entry.is_nan = MakesNonfinite(waiting->entry);
  return true;
}

}  // namespace msprobe::dump
