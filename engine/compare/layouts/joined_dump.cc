#include "engine/compare/layouts/joined_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare::layouts {
namespace {

std::string_view DirectionWord(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kParameterGrad:
      return "parameters_grad";
    case Direction::kNone:
      break;
  }
  return "";
}

bool NamesParameters(const Leaf& leaf, const Record& record) {
  return IsOptimizerCall(record.api) && leaf.kind == LeafKind::kTensor;
}

}  // namespace

JoinedDump::JoinedDump(std::span<const RankRun> runs, std::vector<JoinedCall> calls,
                       const Dump& golden, const std::string& path)
    : runs_(runs), calls_(std::move(calls)), call_of_name_(runs.size()) {
  const Dump& first = *runs.front().dump;
  dump_.path = path;
  dump_.dialect = first.dialect;
  dump_.dialect_detail = first.dialect_detail;
  dump_.framework = first.framework;
  dump_.task = Task::kStatistics;
  dump_.level = first.level;
  dump_.provenance = first.provenance;
  dump_.signatures = first.signatures;
  for (const RankRun& run : runs) {
    if (!run.dump->complete) {
      dump_.complete = false;
      dump_.AddNote(Message::Joined({"rank {}"_t(run.rank), run.dump->note}, ": "));
    }
    dump_.ranks.push_back(run.dump);
  }
  NameCalls(golden);
  for (size_t i = 0; i < calls_.size(); ++i) AddCall(i);
  // Of some ranks only the passes of a step are known.
  if (!dump_.micro_steps.empty()) dump_.micro_steps.resize(dump_.records.size(), 0);
}

// The calls of an API, and those of a module, are numbered as one process would number them.
void JoinedDump::NameCalls(const Dump& golden) {
  std::unordered_map<std::string, std::string_view> class_of;  // by the path of a module
  for (const Record& r : golden.records) {
    if (r.is_module) class_of.emplace(PathOfModule(r.api), r.api.view());
  }
  std::map<std::pair<std::string, Direction>, int64_t> counts;
  apis_.resize(calls_.size());
  numbers_.resize(calls_.size());
  for (size_t i = 0; i < calls_.size(); ++i) {
    const RankCall& of = calls_[i].of.front();
    const Record& r = runs_[of.run].dump->records[of.record];
    std::string api(r.api.view());
    if (r.is_module) {
      const std::string module = runs_[of.run].modules.Of(PathOfModule(r.api));
      const auto known = class_of.find(module);
      const std::string_view front = r.api.view().substr(0, r.api.view().find('.') + 1);
      api = known != class_of.end()
                ? std::string(known->second)
                : fmt::format("{}{}{}{}", front, module, module.empty() ? "" : ".",
                              r.api.view().substr(r.api.view().rfind('.') + 1));
    }
    const int32_t forward = calls_[i].forward;
    const bool follows = forward >= 0 && static_cast<size_t>(forward) < i;
    numbers_[i] = follows ? numbers_[forward] : counts[{api, r.direction}]++;
    apis_[i] = std::move(api);
    for (const RankCall& c : calls_[i].of)
      call_of_name_[c.run].emplace(runs_[c.run].dump->records[c.record].name.view(), i);
  }
}

std::string JoinedDump::NameOf(size_t call) const {
  const RankCall& of = calls_[call].of.front();
  const Record& r = runs_[of.run].dump->records[of.record];
  if (r.direction == Direction::kNone) return std::string(r.name.view());
  return ComposeEntryName(apis_[call] + ".", numbers_[call], DirectionWord(r.direction),
                          r.is_module);
}

void JoinedDump::AddCall(size_t call) {
  const RankCall& of = calls_[call].of.front();
  const Dump& from = *runs_[of.run].dump;
  const Record& r = from.records[of.record];
  const auto index = static_cast<uint32_t>(dump_.records.size());
  Record record = r;
  record.api = arena_.Copy(apis_[call]);
  record.name = arena_.Copy(NameOf(call));
  record.call = numbers_[call];
  if (const auto found = call_of_name_[of.run].find(r.parent.view());
      found != call_of_name_[of.run].end())
    record.parent = arena_.Copy(NameOf(found->second));
  if (const size_t dot = r.module.view().rfind('.'); dot != std::string_view::npos)
    record.module =
        arena_.Copy(fmt::format("Module.{}{}", runs_[of.run].modules.Of(PathOfModule(r.module)),
                                r.module.view().substr(dot)));
  if (r.stack >= 0) {
    record.stack = static_cast<int32_t>(dump_.stacks.size());
    dump_.stacks.push_back(from.stacks[r.stack]);
  }
  if (r.group >= 0) {
    record.group = static_cast<int32_t>(dump_.groups.size());
    dump_.groups.push_back(from.groups[r.group]);
  }
  if (const std::string_view state = from.RandomStateOf(of.record); !state.empty())
    dump_.random_draws.push_back({index, state});
  if (const std::string_view policy = TextOf(from.precisions, of.record); !policy.empty())
    dump_.precisions.push_back({index, policy});
  if (!from.micro_steps.empty()) {
    dump_.micro_steps.resize(index, 0);
    dump_.micro_steps.push_back(from.micro_steps[of.record]);
  }
  AddLeaves(call, &record);
  if (calls_[call].of.size() < runs_.size()) {
    std::vector<int32_t>& ranks =
        dump_.ranks_of_records.emplace_back(index, std::vector<int32_t>()).second;
    for (const RankCall& c : calls_[call].of) ranks.push_back(runs_[c.run].rank);
  }
  dump_.records.push_back(record);
}

// ".input.0"; of an optimizer the parameter has the golden's name.
std::string JoinedDump::PlaceOf(const RankCall& of, const Leaf& leaf) const {
  const Record& r = runs_[of.run].dump->records[of.record];
  const std::string_view suffix = LeafSuffix(leaf, r);
  if (!NamesParameters(leaf, r)) return std::string(suffix);
  for (const std::string_view word : {".gradients.", ".weights.", ".state."}) {
    const size_t at = suffix.find(word);
    if (at == suffix.npos) continue;
    const size_t end = at + word.size();
    return fmt::format("{}{}", suffix.substr(0, end), runs_[of.run].modules.Of(suffix.substr(end)));
  }
  return std::string(suffix);
}

void JoinedDump::AddLeaves(size_t call, Record* record) {
  struct Joined {
    Slot slot;
    std::string place;
    std::vector<ValuePart> parts;
  };
  std::vector<Joined> joined;
  std::map<std::pair<Slot, std::string>, size_t> known;
  for (const RankCall& of : calls_[call].of) {
    const Record& r = runs_[of.run].dump->records[of.record];
    for (uint32_t i = r.first_leaf; i < r.first_leaf + r.leaf_count; ++i) {
      const Leaf& leaf = runs_[of.run].dump->leaves[i];
      std::string place = PlaceOf(of, leaf);
      const auto [at, is_new] = known.emplace(std::pair(leaf.slot, place), joined.size());
      if (is_new) joined.push_back({leaf.slot, std::move(place), {}});
      joined[at->second].parts.push_back({of.run, static_cast<int32_t>(i)});
    }
  }
  std::stable_sort(joined.begin(), joined.end(),
                   [](const Joined& a, const Joined& b) { return a.slot < b.slot; });
  record->first_leaf = static_cast<uint32_t>(dump_.leaves.size());
  record->leaf_count = static_cast<uint32_t>(joined.size());
  for (Joined& value : joined) {
    const ValuePart& part = value.parts.front();
    Leaf leaf = runs_[part.run].dump->leaves[part.leaf];
    leaf.record = static_cast<uint32_t>(dump_.records.size());
    leaf.name = arena_.Copy(fmt::format("{}{}", record->name.view(), value.place));
    leaf.data_name = {};
    leaf.checksum = {};
    dump_.leaves.push_back(leaf);
    values_.push_back(std::move(value.parts));
  }
}

JoinedDump::Content JoinedDump::ContentOf(const ValuePart& part) const {
  return Content(part.run, ContentKey(runs_[part.run].dump->leaves[part.leaf]));
}

// The parts of a value that other ranks have than that of `part`.
std::vector<JoinedDump::Content> JoinedDump::OtherParts(size_t leaf, const ValuePart& part) const {
  std::vector<Content> contents;
  for (const ValuePart& each : values_[leaf]) {
    if (each.run != part.run) contents.push_back(ContentOf(each));
  }
  return contents;
}

// The first leaves, one of each list, beside each other in `parent`, whose other parts are alike:
// what a rank took, and what it made.
std::optional<std::pair<size_t, size_t>> JoinedDump::FindWhole(std::string_view parent,
                                                               const std::vector<size_t>& before,
                                                               const ValuePart& taken,
                                                               const std::vector<size_t>& later,
                                                               const ValuePart& made) const {
  // All ranks make the calls beside it.
  const auto beside = [&](size_t leaf) {
    return dump_.records[dump_.leaves[leaf].record].parent == parent;
  };
  for (const size_t a : before) {
    if (!beside(a)) continue;
    const auto b = std::find_if(later.begin(), later.end(), [&](size_t leaf) {
      return beside(leaf) && OtherParts(leaf, made) == OtherParts(a, taken);
    });
    if (b != later.end()) return std::pair(a, *b);
  }
  return std::nullopt;
}

// Values of one rank get the parts of those of all ranks that pass through the call.
void JoinedDump::PassThrough(const Record& record, const Holders& holders) {
  const size_t end = record.first_leaf + record.leaf_count;
  for (size_t out = record.first_leaf; out < end; ++out) {
    if (dump_.leaves[out].slot != Slot::kOutput || values_[out].size() != 1) continue;
    const ValuePart made = values_[out].front();
    const auto later = holders.find(ContentOf(made));
    if (later == holders.end()) continue;
    for (size_t in = record.first_leaf; in < end && values_[out].size() == 1; ++in) {
      const ValuePart taken = values_[in].front();
      const auto before = holders.find(ContentOf(taken));
      if (in == out || values_[in].size() != 1 || before == holders.end()) continue;
      const auto whole =
          FindWhole(record.parent.view(), before->second, taken, later->second, made);
      if (!whole) continue;
      const std::vector<ValuePart> whole_in = values_[whole->first];
      const std::vector<ValuePart> whole_out = values_[whole->second];
      values_[in] = whole_in;
      values_[out] = whole_out;
    }
  }
}

void JoinedDump::PassThrough() {
  // Where all ranks make all calls, nothing passes.
  if (std::ranges::none_of(values_, [](const auto& parts) { return parts.size() == 1; })) return;
  Holders holders;
  for (size_t i = 0; i < values_.size(); ++i) {
    for (const ValuePart& part : values_[i]) {
      const Content content = ContentOf(part);
      if (values_[i].size() > 1 && content.second != 0) holders[content].push_back(i);
    }
  }
  // A stage of a pipeline makes calls of its own outside of modules.
  const bool has_stages =
      std::any_of(dump_.records.begin(), dump_.records.end(), [&](const Record& r) {
        const std::optional<Exchange> exchange = ExchangeOf(dump_, r);
        return exchange && IsPointToPoint(*exchange);
      });
  for (const Record& record : dump_.records) {
    if (has_stages && record.parent.empty()) continue;
    PassThrough(record, holders);
  }
}

void JoinedDump::CopySide(const ValuePart& part, uint32_t leaf) {
  const Dump& from = *runs_[part.run].dump;
  const auto copy = [&](const LeafTexts& texts, LeafTexts* to) {
    if (const std::string_view text = TextOf(texts, part.leaf); !text.empty())
      to->push_back({leaf, text});
  };
  copy(from.unwritten, &dump_.unwritten);
  copy(from.unreadable, &dump_.unreadable);
  copy(from.strides, &dump_.strides);
  copy(from.sketches, &dump_.sketches);
  if (const LeafRest* rest = from.RestOf(part.leaf)) {
    dump_.rests.push_back(*rest);
    dump_.rests.back().leaf = leaf;
  }
}

void JoinedDump::Keep(size_t leaf) { CopySide(values_[leaf].front(), static_cast<uint32_t>(leaf)); }

void JoinedDump::Set(size_t index, const ValueLayout& layout, Shape whole, double factor,
                     bool adds_up) {
  const std::vector<ValuePart>& parts = values_[index];
  const auto at = static_cast<uint32_t>(index);
  Leaf& leaf = dump_.leaves[index];
  const bool same = layout.kind == ValueLayout::Kind::kWhole && factor == 1;
  if (same || layout.places.empty()) {
    Keep(index);
    return;
  }
  for (const ValuePart& part : parts) {
    const std::string_view allocation = runs_[part.run].dump->AllocationOf(part.leaf);
    if (allocation.empty()) continue;
    dump_.unwritten.push_back({at, allocation});
    break;
  }
  const JoinedNumbers n = JoinNumbers(layout, parts, runs_, whole, factor);
  leaf.shape = dump_.shapes.Of(whole.view());
  leaf.has_stats = n.known;
  const auto set = [&](double value, bool known, TextRef* text, double* number) {
    *number = value;
    *text = known ? arena_.Copy(fmt::format("{}", value)) : std::string_view();
  };
  const bool all = n.known && !n.joined.sum;
  set(n.max, all, &leaf.max, &leaf.max_value);
  set(n.min, all, &leaf.min, &leaf.min_value);
  set(n.norm, all, &leaf.norm, &leaf.norm_value);
  set(n.mean, n.known, &leaf.mean, &leaf.mean_value);
  leaf.counts = &dump_.counts.emplace_back(n.counts);
  std::string content;
  AppendHex(&content, n.content, 16);
  // What no numbers are known of may be the golden's.
  leaf.fingerprint = n.known ? arena_.Copy(content) : std::string_view();
  JoinedLeaf joined = n.joined;
  joined.leaf = at;
  joined.how = Shared(Describe(layout, parts, runs_, adds_up));
  for (const ValuePart& part : parts)
    joined.parts.push_back({runs_[part.run].rank, part.run, part.leaf});
  PlaceShards(layout, parts, &joined);
  dump_.joined.push_back(std::move(joined));
  if (n.rest.extremes > 0 && !n.joined.sum) {
    dump_.rests.push_back(n.rest);
    dump_.rests.back().leaf = at;
  }
}

// Where each shard begins, if they stand side by side in one dimension.
void JoinedDump::PlaceShards(const ValueLayout& layout, const std::vector<ValuePart>& parts,
                             JoinedLeaf* joined) const {
  if (layout.kind != ValueLayout::Kind::kShards || !layout.ordered || layout.dimension < 0) return;
  joined->dimension = layout.dimension;
  int64_t begin = 0;
  for (const std::vector<int32_t>& place : layout.places) {
    const auto extents =
        runs_[parts[place[0]].run].dump->leaves[parts[place[0]].leaf].shape.extents();
    if (static_cast<size_t>(layout.dimension) >= extents.size()) return;
    for (const int32_t i : place) joined->parts[i].begin = begin;
    begin += extents[layout.dimension];
  }
}

std::shared_ptr<const Message> JoinedDump::Shared(Message how) {
  std::shared_ptr<const Message>& kept = hows_[how.English()];
  if (!kept) kept = std::make_shared<const Message>(std::move(how));
  return kept;
}

void JoinedDump::Close(size_t index, Shape whole, Message how) {
  Leaf& leaf = dump_.leaves[index];
  leaf.shape = dump_.shapes.Of(whole.view());
  leaf.has_stats = false;
  leaf.max = leaf.min = leaf.mean = leaf.norm = std::string_view();
  leaf.max_value = leaf.min_value = leaf.mean_value = leaf.norm_value = NAN;
  JoinedLeaf joined{.leaf = static_cast<uint32_t>(index), .how = Shared(std::move(how))};
  uint64_t content = HashText("closed");
  for (const ValuePart& part : values_[index]) {
    content = (content ^ ContentKey(runs_[part.run].dump->leaves[part.leaf])) * 0x9e3779b97f4a7c15;
    joined.parts.push_back({runs_[part.run].rank, part.run, part.leaf});
  }
  std::string text;
  AppendHex(&text, content, 16);
  leaf.fingerprint = arena_.Copy(text);
  dump_.joined.push_back(std::move(joined));
}

std::vector<std::string> NamesOfValue(const Dump& dump, size_t leaf) {
  const Record& record = dump.records[dump.leaves[leaf].record];
  std::vector<std::string> names = {std::string(dump.leaves[leaf].name.view())};
  const std::string_view around =
      record.parent.empty() ? record.module.view() : WithoutCall(record.parent);
  if (!record.is_module && !around.empty())
    names.push_back(fmt::format("{}.{}", PathOfModule(around), names.front()));
  return names;
}

Dump JoinedDump::Take() {
  arena_.Release(&dump_.arena);
  return std::move(dump_);
}

}  // namespace msprobe::compare::layouts
