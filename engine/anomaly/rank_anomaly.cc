#include "engine/anomaly/rank_anomaly.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/anomaly/call_kinds.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/ranks/exchange_keys.h"
#include "engine/dump/read/source_line.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"

namespace msprobe::anomaly {
namespace {

using compare::ExchangePart;

class Scan {
 public:
  Scan(const Dump& dump, int32_t rank) : dump_(dump) { found_.trace.rank = rank; }

  RankAnomaly Run(int32_t rank) {
    exchanges_ = compare::NumberExchanges(dump_, rank);
    size_t next = 0;
    for (size_t r = 0; r < dump_.records.size(); ++r) {
      if (next < exchanges_.size() && exchanges_[next].record == static_cast<int32_t>(r)) {
        Add(exchanges_[next++]);
      } else if (made_ < 0 && !received_for_good_) {
        Add(static_cast<int32_t>(r));
      }
    }
    Choose();
    found_.records = static_cast<int64_t>(dump_.records.size());
    if (found_.trace.first >= 0) Describe();
    return std::move(found_);
  }

 private:
  void Add(int32_t r) {
    const Record& record = dump_.records[r];
    const CallKinds call = KindsOfCall(dump_, record);
    const bool ignored = NeverAnAnomaly(record);
    const bool excused = holds_nonfinite_.contains(record.name.view()) ||
                         (record.direction == Direction::kBackward &&
                          bad_forward_.contains({record.api.view(), record.call}));
    if (!ignored && !excused && call.IsAnomaly()) {
      made_ = record.is_module ? InnerCall(r) : r;
      if (made_ >= 0) return;
    }
    if (!record.parent.empty() && (call.given.any() || call.made.any() || call.passing.any()))
      holds_nonfinite_.insert(record.parent.view());
    if (record.direction == Direction::kForward && call.given.any())
      bad_forward_.insert({record.api.view(), record.call});
    ValueKinds came = call.given_tensors;
    came.Add(call.passing);
    if (ignored) came.Add(call.made);
    CameFromOutside(r, came, ignored);
    seen_.Add(came);
    // What a module's call shows of a call inside is seen there.
    if (ignored || !call.IsAnomaly()) seen_.Add(call.made);
  }

  // Notes the first call with a number that no recorded call made. Negative infinities alone are a
  // mask.
  void CameFromOutside(int32_t r, const ValueKinds& came, bool ignored) {
    if (ignored) return;
    if (outside_nan_ < 0 && came.nan && !seen_.nan) outside_nan_ = r;
    if (outside_inf_ < 0 && came.pos_inf && !seen_.infinite()) outside_inf_ = r;
  }

  // The first anomaly inside the call of module `r` that is recorded after it; `r` if there is
  // none; -1 if a call inside only got such a number, from a weight. (In most dumps a module's call
  // stands after the calls that it made.)
  int32_t InnerCall(int32_t r) const {
    std::unordered_map<std::string_view, int32_t> modules;
    for (size_t i = 0; i < dump_.records.size(); ++i) {
      if (dump_.records[i].is_module)
        modules.emplace(dump_.records[i].name.view(), static_cast<int32_t>(i));
    }
    const auto inside = [&](int32_t i, int32_t module) {
      for (int depth = 0; depth < kMaxDepth && i >= 0; ++depth) {
        const auto parent = modules.find(dump_.records[i].parent.view());
        i = parent == modules.end() ? -1 : parent->second;
        if (i == module) return true;
      }
      return false;
    };
    int32_t found = r;
    std::unordered_set<std::string_view> got;  // as holds_nonfinite_
    for (int32_t i = r + 1; i < static_cast<int32_t>(dump_.records.size()); ++i) {
      const Record& record = dump_.records[i];
      const CallKinds call = KindsOfCall(dump_, record);
      if (!call.given.any() && !call.made.any()) continue;
      if (NeverAnAnomaly(record) || !inside(i, found)) continue;
      if (!call.IsAnomaly() || got.contains(record.name.view())) {
        got.insert(record.parent.view());
        continue;
      }
      found = i;
      if (!record.is_module) break;
    }
    return found == r && !got.empty() ? -1 : found;
  }

  void Add(const compare::NumberedExchange& seen) {
    const Record& record = dump_.records[seen.record];
    for (size_t part = 0; part < seen.keys.size(); ++part) {
      compare::ExchangeCall call{
          .name = std::string(record.name.view()), .key = seen.keys[part], .pair = seen.record};
      ValueKinds given, got;
      for (const Leaf& leaf : dump_.LeavesOf(record)) {
        const bool here =
            seen.exchange.parts.empty() ||
            compare::BatchPartOf(seen.exchange, record, leaf) == static_cast<int32_t>(part);
        if (!here) continue;
        const ExchangePart what = compare::PartOf(seen.exchange, record, leaf);
        if (what == ExchangePart::kGiven) {
          if (!IsUnwritten(dump_, leaf)) given.Add(KindsOf(leaf));
          call.gives_unknown |= !leaf.has_stats;
        } else if (what == ExchangePart::kReceived) {
          got.Add(KindsOf(leaf));
        }
      }
      call.gives_wrong = given.any();
      call.gets_wrong = got.any();
      if ((call.gives_wrong || call.gets_wrong) && record.stack >= 0)
        call.source_line = dump::UserSourceLine(dump_.stacks[record.stack]);
      const auto index = static_cast<int32_t>(found_.trace.exchanges.size());
      found_.trace.exchanges.push_back(std::move(call));
      CameFromOutside(seen.record, given, false);
      if (got.any() && !given.any() && made_ < 0 && !received_for_good_) {
        // A mask that was sent must not hide a call that makes NaN of it.
        const bool good = got.nan || got.pos_inf;
        if (received_ < 0 || good) received_ = index;
        received_for_good_ = good;
      }
      seen_.Add(given);
      seen_.Add(got);
    }
  }

  void Choose() {
    compare::RankTrace& trace = found_.trace;
    const int32_t outside = outside_nan_ >= 0 ? outside_nan_ : outside_inf_;
    const int32_t exchange = received_ < 0 ? -1 : trace.exchanges[received_].pair;
    if (made_ >= 0) {
      trace.first = made_;
    } else if (outside >= 0 && (exchange < 0 || outside < exchange)) {
      trace.first = outside;
      trace.received = CameLater(outside);
      trace.from_outside = trace.received < 0;
    } else if (exchange >= 0) {
      trace.first = exchange;
      trace.received = received_;
    }
  }

  // The exchange that is recorded after call `r` and brought its input: a result for which the
  // program waits late. -1: there is none.
  int32_t CameLater(int32_t r) const {
    const std::vector<compare::ExchangeCall>& calls = found_.trace.exchanges;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].pair <= r || !calls[i].gets_wrong || calls[i].gives_wrong) continue;
      for (const Leaf& got : dump_.LeavesOf(dump_.records[calls[i].pair])) {
        if (got.slot != Slot::kOutput) continue;
        for (const Leaf& leaf : dump_.LeavesOf(dump_.records[r])) {
          if (leaf.slot != Slot::kOutput && KindsOf(leaf).any() && compare::SameNumbers(leaf, got))
            return static_cast<int32_t>(i);
        }
      }
    }
    return -1;
  }

  void Describe() {
    const int32_t first = found_.trace.first;
    const Record& record = dump_.records[first];
    int32_t before = -1;
    for (const compare::ExchangeCall& call : found_.trace.exchanges) {
      if (call.pair < first) before = std::max(before, call.pair);
      found_.exchange_follows |= call.pair > first;
    }
    found_.behind_exchange = first - before;
    found_.name = record.name.view();
    forward_ = record.direction == Direction::kBackward ? ForwardOf(record) : first;
    if (const int32_t stack = StackOf(record); stack >= 0) {
      const std::vector<std::string_view>& frames = dump_.stacks[stack];
      found_.source_line = dump::UserSourceLine(frames);
      found_.stack.assign(frames.begin(), frames.end());
    }
    DescribeParents(record);
    DescribeValues(record);
    found_.entry = EntryText(record);
    if (KindsOfCall(dump_, record).reads_unwritten) {
      found_.note = "one of its inputs is memory that nobody has written (torch.empty)"_t;
    } else if (outside_nan_ >= 0 && outside_nan_ < first && made_ == first) {
      found_.note =
          "before it, NaN was in a value that no recorded call made, in {}; none of it is in the "
          "inputs of this call"_t(dump_.records[outside_nan_].name.view());
    }
  }

  // The forward call of a backward call, an index into the records; -1: it is not recorded.
  int32_t ForwardOf(const Record& backward) const {
    const auto forward =
        std::find_if(dump_.records.begin(), dump_.records.end(), [&](const Record& each) {
          return each.direction == Direction::kForward && each.call == backward.call &&
                 each.api == backward.api;
        });
    return forward == dump_.records.end() ? -1
                                          : static_cast<int32_t>(forward - dump_.records.begin());
  }

  // A backward call has no stack of its own. -1: none is recorded.
  int32_t StackOf(const Record& record) const {
    if (record.stack >= 0 || forward_ < 0) return record.stack;
    return dump_.records[forward_].stack;
  }

  void DescribeParents(const Record& record) {
    std::unordered_map<std::string_view, std::string_view> parents;
    for (const Record& each : dump_.records) {
      if (each.is_module) parents.emplace(each.name.view(), each.parent.view());
    }
    std::string_view parent = record.parent.empty() ? record.module : record.parent;
    for (int depth = 0; depth < kMaxDepth && !parent.empty(); ++depth) {
      found_.parents.insert(found_.parents.begin(), std::string(parent));
      const auto next = parents.find(parent);
      parent = next == parents.end() ? std::string_view() : next->second;
    }
  }

  void DescribeValues(const Record& record) {
    for (const Leaf& leaf : dump_.LeavesOf(record)) {
      const ValueKinds kinds = KindsOf(leaf);
      if (!kinds.any()) continue;
      std::string_view name = compare::LeafSuffix(leaf, record);
      if (name.starts_with('.')) name.remove_prefix(1);
      WrongValue value{
          .name = std::string(name),
          .label = compare::LeafLabel(dump_, leaf, forward_).English(),
          .is_output = leaf.slot == Slot::kOutput,
          .kinds = kinds,
          .elements = leaf.kind == LeafKind::kTensor ? leaf.shape.elements() : 1,
          .text = DescribeNonfinite(leaf),
          .type = leaf.kind == LeafKind::kTensor
                      ? fmt::format("{} {}", std::string_view(leaf.dtype), leaf.shape.view())
                      : std::string(leaf.type.view())};
      if (leaf.counts->nan >= 0 && leaf.counts->pos_inf >= 0 && leaf.counts->neg_inf >= 0) {
        value.nan = leaf.counts->nan;
        value.infinite = leaf.counts->pos_inf + leaf.counts->neg_inf;
      }
      found_.values.push_back(std::move(value));
    }
  }

  // The object after the name of the record in the file; "" in a file of another form.
  std::string EntryText(const Record& record) const {
    std::string name;
    AppendJsonString(&name, record.name);
    for (const MappedFile& file : dump_.files) {
      if (file.path() != dump_.path) continue;
      const std::string_view text = file.bytes();
      for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
        const size_t colon = text.find_first_not_of(" \t\r\n", at + name.size());
        if (colon == text.npos || text[colon] != ':') continue;
        formats::JsonCursor json(text, colon + 1);
        std::string_view entry;
        if (json.Peek() == '{' && json.Raw(&entry)) return std::string(entry);
      }
    }
    return "";
  }

  static constexpr int kMaxDepth =
      1000;  // of modules in each other: a damaged file may have a ring

  const Dump& dump_;
  RankAnomaly found_;
  std::vector<compare::NumberedExchange> exchanges_;
  ValueKinds seen_;  // in any value so far
  // Module calls in which a call got such a number, from a weight for example: the inputs of the
  // module's call do not show it.
  std::unordered_set<std::string_view> holds_nonfinite_;
  // Forward calls that got such a number: their backward passes use it, and do not show it.
  std::set<std::pair<std::string_view, int64_t>> bad_forward_;
  int32_t made_ = -1;                            // the first anomaly
  int32_t forward_ = -1;                         // its forward call; of a forward call itself
  int32_t outside_nan_ = -1, outside_inf_ = -1;  // the first number that no recorded call made
  int32_t received_ = -1;           // index into the exchanges: the first that brought a number
  bool received_for_good_ = false;  // that number is no mask
};

}  // namespace

RankAnomaly FindRankAnomaly(const Dump& dump, int32_t rank) {
  RankAnomaly found = Scan(dump, rank).Run(rank);
  const std::string folder = BaseName(dump.folder);
  const bool process = rank < 0 && NumberAfter(folder, "proc") >= 0;
  found.label = process ? folder : "rank {}"_t(std::max(rank, 0));
  found.key = process ? folder : fmt::format("rank_{}", std::max(rank, 0));
  return found;
}

}  // namespace msprobe::anomaly
