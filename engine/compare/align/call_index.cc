#include "engine/compare/align/call_index.h"

#include <algorithm>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

uint64_t HashOf(std::string_view api, Direction direction) {
  return HashText(api, static_cast<uint64_t>(direction));
}

}  // namespace

CallIndex::CallIndex(const Dump& dump) : slots_(64, -1) {
  std::vector<int32_t> group_of(dump.records.size());
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const int64_t call = dump.records[i].call;
    group_of[i] = GroupOf(dump.records[i]);
    Group& group = groups_[group_of[i]];
    group.least = group.count == 0 ? call : std::min(group.least, call);
    group.most = group.count == 0 ? call : std::max(group.most, call);
    ++group.count;
  }
  PlaceLists();
  std::vector<size_t> next(groups_.size());  // of a sorted list: where the next record is put
  for (size_t g = 0; g < groups_.size(); ++g) next[g] = groups_[g].first;
  for (size_t i = 0; i < dump.records.size(); ++i) {
    const Group& group = groups_[group_of[i]];
    const int64_t call = dump.records[i].call;
    const auto record = static_cast<int32_t>(i);
    if (group.by_number) {
      int32_t& found = by_number_[group.first + static_cast<size_t>(call - group.least)];
      if (found < 0) found = record;
    } else {
      sorted_[next[group_of[i]]++] = {call, record};
    }
  }
  for (const Group& group : groups_) {
    if (group.by_number) continue;
    const auto begin = sorted_.begin() + static_cast<ptrdiff_t>(group.first);
    std::sort(begin, begin + group.count);
  }
}

void CallIndex::PlaceLists() {
  size_t numbers = 0, others = 0;
  for (Group& group : groups_) {
    // Unsigned: the difference of two hostile numbers may not fit.
    const uint64_t span = static_cast<uint64_t>(group.most) - static_cast<uint64_t>(group.least);
    group.by_number = span < uint64_t{4} * group.count;
    size_t& end = group.by_number ? numbers : others;
    group.first = end;
    end += group.size();
  }
  by_number_.assign(numbers, -1);
  sorted_.resize(others);
}

int32_t CallIndex::GroupOf(const Record& record) {
  const std::string_view api = record.api;
  const uint64_t hash = HashOf(api, record.direction);
  const size_t place = Place(api, record.direction, hash);
  if (slots_[place] >= 0) return slots_[place];
  const auto group = static_cast<int32_t>(groups_.size());
  groups_.push_back({.api = api, .direction = record.direction, .hash = hash});
  slots_[place] = group;
  if (2 * groups_.size() > slots_.size()) Grow();
  return group;
}

void CallIndex::Grow() {
  slots_.assign(2 * slots_.size(), -1);
  for (size_t g = 0; g < groups_.size(); ++g)
    slots_[Place(groups_[g].api, groups_[g].direction, groups_[g].hash)] = static_cast<int32_t>(g);
}

size_t CallIndex::Place(std::string_view api, Direction direction, uint64_t hash) const {
  for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i] < 0) return i;
    const Group& group = groups_[slots_[i]];
    if (group.hash == hash && group.direction == direction && group.api == api) return i;
  }
}

int32_t CallIndex::Find(std::string_view api, int64_t call, Direction direction) const {
  const int32_t found = slots_[Place(api, direction, HashOf(api, direction))];
  if (found < 0) return -1;
  const Group& group = groups_[found];
  if (call < group.least || call > group.most) return -1;
  if (group.by_number) return by_number_[group.first + static_cast<size_t>(call - group.least)];
  const auto begin = sorted_.begin() + static_cast<ptrdiff_t>(group.first);
  const auto at = std::lower_bound(begin, begin + group.count, std::pair(call, int32_t{-1}));
  return at != begin + group.count && at->first == call ? at->second : -1;
}

}  // namespace msprobe::compare
