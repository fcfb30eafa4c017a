#include "tests/compare/dump_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "engine/base/text.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::test {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  std::mt19937_64 mixed(a * 0x9e3779b97f4a7c15u + b);
  return mixed();
}

std::string_view Keep(Dump* dump, std::string text) {
  return dump->arena.emplace_back(std::move(text));
}

// Gives a leaf the content that belongs to `key`.
void SetContent(uint64_t key, Leaf* leaf, Dump* dump) {
  const auto digits = [&](size_t size) {
    std::string text;
    for (uint64_t part = 0; text.size() < size; ++part)
      text += fmt::format("{:016x}", Mix(key, part));
    return Keep(dump, text.substr(0, size));
  };
  if (!leaf->fingerprint.empty()) leaf->fingerprint = digits(leaf->fingerprint.size());
  if (!leaf->checksum.empty()) leaf->checksum = digits(leaf->checksum.size());
  if (!leaf->has_stats) return;
  const auto number = [&](uint64_t part, double low, double high) {
    return low + (high - low) * static_cast<double>(Mix(key, part) >> 11) * 0x1p-53;
  };
  const auto set = [&](double value, double* to, TextRef* text) {
    std::string spelled;
    AppendPythonFloat(&spelled, value);
    *to = value;
    *text = Keep(dump, std::move(spelled));
  };
  set(number(101, 1, 4), &leaf->max_value, &leaf->max);
  set(number(102, -4, -1), &leaf->min_value, &leaf->min);
  set(number(103, -1, 1), &leaf->mean_value, &leaf->mean);
  set(number(104, 4, 90), &leaf->norm_value, &leaf->norm);
}

bool IsOutput(const Leaf& leaf) {
  return leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad;
}

}  // namespace

std::string_view NameOf(Edit edit) {
  static constexpr std::string_view kNames[] = {"insert", "delete",  "rename", "split",
                                                "join",   "reorder", "repeat", "copy"};
  return kNames[static_cast<size_t>(edit)];
}

DumpEdits::DumpEdits(const Dump& source, Random& random) : source_(source), random_(random) {
  std::map<std::pair<std::string_view, int64_t>, int32_t> calls;  // of an api and its number
  std::unordered_map<std::string_view, int32_t> by_name;
  for (size_t i = 0; i < source.records.size(); ++i) {
    const Record& r = source.records[i];
    const auto [it, is_new] =
        calls.try_emplace({r.api.view(), std::max<int64_t>(r.call, 0)}, calls_);
    calls_ += is_new;
    const auto index = static_cast<int32_t>(i);
    items_.push_back({.source = index,
                      .outputs_of = index,
                      .call = it->second,
                      .api = std::string(r.api.view())});
    by_name[r.name] = it->second;
  }
  for (Item& item : items_) {
    const auto it = by_name.find(source.records[item.source].parent);
    if (it != by_name.end()) item.parent = it->second;
  }
}

bool DumpEdits::IsApi(const Item& item) const {
  const Record& r = source_.records[item.source];
  return !r.is_module && r.direction == Direction::kForward;
}

DumpEdits::Position DumpEdits::AnyCall() {
  std::vector<size_t> calls;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (IsApi(items_[i]) && items_[i].same) calls.push_back(i);
  }
  return calls.empty() ? items_.end() : items_.begin() + calls[random_() % calls.size()];
}

const DumpEdits::Item& DumpEdits::Other() { return *AnyCall(); }

DumpEdits::Position DumpEdits::BackwardOf(int32_t call) {
  return std::find_if(items_.begin(), items_.end(), [&](const Item& item) {
    return item.call == call && source_.records[item.source].direction == Direction::kBackward;
  });
}

bool DumpEdits::Make(Edit edit) {
  if (AnyCall() == items_.end()) return false;
  switch (edit) {
    case Edit::kInsert:
      return Insert();
    case Edit::kDelete:
      return Delete();
    case Edit::kRename:
      return Rename();
    case Edit::kSplit:
      return Split();
    case Edit::kJoin:
      return Join();
    case Edit::kReorder:
      return Reorder();
    case Edit::kRepeat:
    case Edit::kCopy:
      return Repeat(edit == Edit::kCopy);
  }
  return false;
}

bool DumpEdits::Insert() {
  const Item like = Other();
  const Position at = AnyCall();
  Item item{.source = like.source,
            .outputs_of = like.source,
            .same = false,
            .call = calls_++,
            .parent = at->parent,
            .api = like.api,
            .inputs = random_(),
            .outputs = random_(),
            .line = next_line_++,
            .touched = true};
  const int32_t before = at->call;
  items_.insert(at, item);
  const Position backward = BackwardOf(like.call), place = BackwardOf(before);
  if (backward != items_.end() && place != items_.end()) {
    Item back = item;
    back.source = back.outputs_of = backward->source;
    items_.insert(place + 1, back);
  }
  return true;
}

bool DumpEdits::Delete() {
  const Position at = AnyCall();
  const int32_t call = at->call;
  if (at + 1 != items_.end()) at[1].touched = true;
  std::erase_if(items_, [&](const Item& item) { return item.call == call; });
  return true;
}

bool DumpEdits::Rename() {
  const Position at = AnyCall();
  const std::string old = at->api;
  const std::string_view base = BaseApi(old);
  std::string api;
  switch (random_() % 4) {
    case 0:  // another spelling: Tensor.add and Torch.add
      api = (old.starts_with("Torch.") ? "Tensor." : "Torch.") + std::string(base);
      break;
    case 1:
      api = "Functional.fused_" + std::string(base);
      break;
    case 2:
      api = "NPU.npu_" + std::string(base);
      break;
    default:  // no likeness of the names
      api = fmt::format("Torch.{}", std::string_view("qwxjvkzh").substr(random_() % 4, 4));
  }
  at->touched = true;
  const int32_t call = at->call;
  const int line = random_() % 2 == 0 ? 0 : next_line_++;
  for (Item& item : items_) {
    if (item.call == call) item.api = api, item.line = line;
  }
  return true;
}

bool DumpEdits::Split() {
  const Position at = AnyCall();
  if (at->source != at->outputs_of) return false;
  const std::string first = Other().api, second = random_() % 2 == 0 ? at->api : Other().api;
  const int32_t call = at->call;
  Item a = *at, b = *at;
  a.same = b.same = false;
  a.touched = true;
  a.call = calls_++, b.call = calls_++;
  a.api = first, b.api = second;
  a.line = next_line_++, b.line = next_line_++;
  a.parts = b.parts = {at->source};
  a.outputs = b.inputs = random_();
  *at = a;
  items_.insert(at + 1, b);
  const Position backward = BackwardOf(call);
  if (backward == items_.end()) return true;
  Item back_b = b, back_a = a;
  back_a.source = back_a.outputs_of = back_b.source = back_b.outputs_of = backward->source;
  back_a.parts = back_b.parts = {backward->source};
  back_b.inputs = 0, back_a.outputs = 0;
  back_b.outputs = back_a.inputs = random_();
  *backward = back_b;
  items_.insert(backward + 1, back_a);
  return true;
}

bool DumpEdits::Join() {
  const Position at = AnyCall();
  const Position next = at + 1;
  if (next == items_.end() || !IsApi(*next) || !next->same || next->parent != at->parent)
    return false;
  const int32_t first = at->call, second = next->call;
  Item joined = *at;
  joined.same = false;
  joined.touched = true;
  joined.outputs_of = next->source;
  joined.parts = {at->source, next->source};
  joined.call = calls_++;
  joined.line = next_line_++;
  if (random_() % 2 == 0) joined.api = "Functional.fused_" + std::string(BaseApi(next->api));
  *at = joined;
  items_.erase(next);
  const Position behind = BackwardOf(second), before = BackwardOf(first);
  if (behind == items_.end() || before == items_.end()) {
    std::erase_if(items_,
                  [&](const Item& item) { return item.call == first || item.call == second; });
    return true;
  }
  Item back = joined;
  back.source = behind->source, back.outputs_of = before->source;
  back.parts = {behind->source, before->source};
  *before = back;
  items_.erase(BackwardOf(second));
  return true;
}

bool DumpEdits::Reorder() {
  const Position at = AnyCall();
  std::unordered_set<uint64_t> made;
  for (const Leaf& leaf : source_.LeavesOf(source_.records[at->source])) {
    if (leaf.kind == LeafKind::kTensor) made.insert(ContentKey(leaf));
  }
  Position to = at + 1;
  const auto most = static_cast<std::ptrdiff_t>(1 + random_() % 6);
  while (to != items_.end() && to - at <= most && IsApi(*to) && to->same &&
         to->parent == at->parent) {
    const auto leaves = source_.LeavesOf(source_.records[to->source]);
    const bool takes = std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
      return leaf.kind == LeafKind::kTensor && leaf.slot != Slot::kParameter &&
             made.contains(ContentKey(leaf));
    });
    if (takes) break;
    ++to;
  }
  if (to == at + 1) return false;
  at->touched = true;
  std::rotate(at, at + 1, to);
  return true;
}

bool DumpEdits::Repeat(bool other_name) {
  std::vector<int32_t> modules;
  for (const Item& item : items_) {
    const Record& r = source_.records[item.source];
    if (r.is_module && r.direction == Direction::kForward && item.same)
      modules.push_back(item.call);
  }
  if (modules.empty()) return false;
  const int32_t module = modules[random_() % modules.size()];
  std::unordered_map<int32_t, int32_t> parent_of;
  for (const Item& item : items_) {
    if (source_.records[item.source].direction == Direction::kForward)
      parent_of[item.call] = item.parent;
  }
  const auto inside = [&](int32_t call) {
    for (size_t step = 0; call >= 0 && step <= parent_of.size(); ++step) {
      if (call == module) return true;
      const auto it = parent_of.find(call);
      call = it == parent_of.end() ? -1 : it->second;
    }
    return false;
  };
  const uint64_t seed = random_();
  std::unordered_map<int32_t, int32_t> copy_of;
  std::vector<Item> forward, backward;
  size_t behind = 0, back_at = items_.size();
  for (size_t i = 0; i < items_.size(); ++i) {
    const Direction direction = source_.records[items_[i].source].direction;
    if (!inside(items_[i].call) || direction == Direction::kParameterGrad) continue;
    Item copy = items_[i];
    copy.same = false;
    copy.parts.clear();
    copy.inputs = copy.outputs = seed;
    const auto [it, is_new] = copy_of.try_emplace(copy.call, calls_);
    calls_ += is_new;
    copy.call = it->second;
    if (other_name && copy.api.starts_with("Module.")) copy.api.insert(7, "again.");
    if (direction == Direction::kForward) {
      forward.push_back(copy);
      behind = i + 1;
    } else {
      backward.push_back(copy);
      back_at = std::min(back_at, i);
    }
  }
  // What the copies belong to is among the copies, but for the module itself.
  for (std::vector<Item>* copies : {&forward, &backward}) {
    for (Item& copy : *copies) {
      const auto it = copy_of.find(copy.parent);
      if (it != copy_of.end()) copy.parent = it->second;
    }
  }
  forward.front().touched = true;
  items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(back_at), backward.begin(),
                backward.end());
  items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(behind), forward.begin(),
                forward.end());
  return true;
}

EditedDump DumpEdits::Build(bool changed) const {
  EditedDump out;
  out.dump.path = source_.path, out.dump.folder = source_.folder;
  out.dump.dialect = source_.dialect, out.dump.framework = source_.framework;
  out.dump.task = source_.task, out.dump.level = source_.level;
  out.dump.has_checksums = source_.has_checksums;
  out.dump.stacks = source_.stacks;
  out.dump.groups = source_.groups;
  out.dump.signatures = source_.signatures;
  std::unordered_map<std::string, int64_t> next;        // number of an api
  std::unordered_map<int32_t, int64_t> number_of;       // of a call
  std::unordered_map<int32_t, std::string> forward_of;  // name of a call's forward record
  // A module's record may follow those of the calls inside: numbers are given first.
  for (const Item& item : items_) {
    const Record& from = source_.records[item.source];
    if (from.direction == Direction::kBackward || from.direction == Direction::kParameterGrad)
      continue;
    const int64_t number = number_of[item.call] = next[item.api]++;
    if (from.is_module) forward_of[item.call] = fmt::format("{}.forward.{}", item.api, number);
  }
  std::unordered_set<uint64_t> other;  // contents that are not as they were
  bool behind = false;
  for (const Item& item : items_) {
    behind = behind || (changed && item.touched);
    const Record& from = source_.records[item.source];
    const auto it = number_of.find(item.call);
    const auto parent = forward_of.find(item.parent);
    AppendRecord(item, it == number_of.end() ? from.call : it->second,
                 parent == forward_of.end() ? from.parent.view() : parent->second, &other, behind,
                 &out);
  }
  return out;
}

void DumpEdits::AppendRecord(const Item& item, int64_t number, std::string_view parent,
                             std::unordered_set<uint64_t>* changed, bool behind,
                             EditedDump* out) const {
  const Record& from = source_.records[item.source];
  Dump& dump = out->dump;
  Record r = from;
  r.api = Keep(&dump, item.api);
  r.parent = Keep(&dump, std::string(parent));
  if (from.call >= 0) {
    const std::string_view word = from.direction == Direction::kForward    ? "forward"
                                  : from.direction == Direction::kBackward ? "backward"
                                                                           : "parameters_grad";
    r.call = number;
    r.name = Keep(&dump, from.is_module ? fmt::format("{}.{}.{}", item.api, word, number)
                                        : fmt::format("{}.{}.{}", item.api, number, word));
  }
  if (item.line > 0 && from.stack >= 0) {
    r.stack = static_cast<int32_t>(dump.stacks.size());
    dump.stacks.push_back(source_.stacks[from.stack]);
    const std::string text =
        fmt::format("File edited.py, line {}, in forward, \n new line {}", item.line, item.line);
    if (!dump.stacks.back().empty()) dump.stacks.back()[0] = Keep(&dump, text);
  }
  r.first_leaf = static_cast<uint32_t>(dump.leaves.size());
  dump.records.push_back(r);
  for (const Leaf& leaf : source_.LeavesOf(from)) {
    if (item.source == item.outputs_of || !IsOutput(leaf))
      AppendLeaf(item, leaf, from, changed, behind, out);
  }
  const Record& last = source_.records[item.outputs_of];
  for (const Leaf& leaf : source_.LeavesOf(last)) {
    if (item.source != item.outputs_of && IsOutput(leaf))
      AppendLeaf(item, leaf, last, changed, behind, out);
  }
  dump.records.back().leaf_count = static_cast<uint32_t>(dump.leaves.size()) - r.first_leaf;
  out->truth.push_back(item.same ? item.source : -1);
  out->parts.push_back(item.parts);
}

void DumpEdits::AppendLeaf(const Item& item, const Leaf& leaf, const Record& from,
                           std::unordered_set<uint64_t>* changed, bool behind,
                           EditedDump* out) const {
  Dump& dump = out->dump;
  const Record& r = dump.records.back();
  Leaf copy = leaf;
  copy.record = static_cast<uint32_t>(dump.records.size() - 1);
  const std::string_view name = leaf.name;
  if (name.starts_with(from.name.view())) {
    copy.name =
        Keep(&dump, std::string(r.name.view()) + std::string(name.substr(from.name.size())));
  } else if (name.starts_with(from.api.view())) {
    copy.name = Keep(&dump, std::string(r.api.view()) + std::string(name.substr(from.api.size())));
  }
  const uint64_t content = leaf.kind == LeafKind::kTensor ? ContentKey(leaf) : 0;
  const uint64_t seed = IsOutput(leaf) ? item.outputs : item.inputs;
  if (content != 0 && leaf.slot != Slot::kParameter) {
    uint64_t key = seed != 0 ? Mix(content, seed) : content;
    if (behind && seed == 0 && IsOutput(leaf)) changed->insert(content);
    const bool other = seed == 0 && behind && changed->contains(content);
    if (other) key = Mix(content, 77);
    if (key != content) SetContent(key, &copy, &dump);
  }
  dump.leaves.push_back(copy);
}

}  // namespace msprobe::compare::test
