#include "engine/compare/align/call_index.h"

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

uint64_t HashOf(std::string_view api, int64_t call, Direction direction) {
  return HashText(api, static_cast<uint64_t>(call) * 8 + static_cast<uint64_t>(direction));
}

uint32_t PartOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

CallIndex::CallIndex(const Dump& dump) : dump_(dump) {
  size_t size = 16;
  while (size < dump.records.size() * 2) size *= 2;
  slots_.resize(size);
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const Record& r = dump.records[i];
    const uint64_t hash = HashOf(r.api, r.call, r.direction);
    Slot& slot = slots_[Place(r.api, r.call, r.direction, hash)];
    if (slot.record < 0) slot = {static_cast<int32_t>(i), PartOf(hash)};
  }
}

int32_t CallIndex::Find(std::string_view api, int64_t call, Direction direction) const {
  return slots_[Place(api, call, direction, HashOf(api, call, direction))].record;
}

size_t CallIndex::Place(std::string_view api, int64_t call, Direction direction,
                        uint64_t hash) const {
  for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].record < 0) return i;
    if (slots_[i].hash != PartOf(hash)) continue;
    const Record& r = dump_.records[slots_[i].record];
    if (r.call == call && r.direction == direction && r.api == api) return i;
  }
}

}  // namespace msprobe::compare
