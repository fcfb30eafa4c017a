#include "engine/dump/write/deferred_entries.h"

#include <algorithm>

namespace msprobe::dump {

bool IsDeferred(const Entry& entry) {
  return std::any_of(entry.tensors().begin(), entry.tensors().end(), [](const TensorValue& tensor) {
    return tensor.numbers == TensorValue::Numbers::kDeferred;
  });
}

bool DeferredEntries::Fill(Entry* entry, bool give_up) {
  for (const TensorValue& tensor : entry->tensors()) {
    if (tensor.numbers != TensorValue::Numbers::kDeferred) continue;
    const auto known = known_.find(tensor.ticket);
    if (known == known_.end()) {
      if (!give_up) return false;
      continue;
    }
    entry->Resolve(known->second);
    known_.erase(known);
  }
  return true;
}

}  // namespace msprobe::dump
