#include "engine/compare/align/call_index.h"

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

CallIndex::CallIndex(const Dump& dump) : dump_(dump) {
  size_t size = 16;
  while (size < dump.records.size() * 2) size *= 2;
  slots_.assign(size, -1);
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const Record& r = dump.records[i];
    int32_t& slot = slots_[Slot(r.api, r.call, r.direction)];
    if (slot < 0) slot = static_cast<int32_t>(i);
  }
}

int32_t CallIndex::Find(std::string_view api, int64_t call, Direction direction) const {
  return slots_[Slot(api, call, direction)];
}

size_t CallIndex::Slot(std::string_view api, int64_t call, Direction direction) const {
  const uint64_t hash =
      HashText(api, static_cast<uint64_t>(call) * 8 + static_cast<uint64_t>(direction));
  for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i] < 0) return i;
    const Record& r = dump_.records[slots_[i]];
    if (r.call == call && r.direction == direction && r.api == api) return i;
  }
}

}  // namespace msprobe::compare
