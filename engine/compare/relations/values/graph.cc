#include "engine/compare/relations/values/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/names.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare::relations {
namespace {

// 0, 1, 2 .. n - 1, as arange makes it.
bool IsRamp(const Moments& m) {
  const double n = static_cast<double>(m.n);
  return m.n > 1 && m.low == 0 && m.high == n - 1 && std::abs(m.mean - (n - 1) / 2) < 1e-3 * n &&
         std::abs(m.norm * m.norm - (n - 1) * n * (2 * n - 1) / 6) < 0.5 + 1e-6 * n * n * n;
}

// Whether the content does not tell one tensor from another.
bool SaysNothing(const Moments& m, ElementType dtype, bool is_float) {
  if (!m.known || m.n == 0) return true;
  // Statistics are of moduli: a table of rotations has the modulus 1 everywhere, and is no
  // constant.
  if (RoundingOf(dtype).kind == NumberKind::kComplex) return m.high == 0 && m.extremes == 0;
  if (m.high != m.low || m.extremes > 0) return !is_float && IsRamp(m);
  int exponent = 0;
  const double few = std::ldexp(std::frexp(m.high, &exponent), 10);
  return m.n > 1 || !is_float || (std::isfinite(m.high) && few == std::floor(few));
}

// "layers.0.fc" of "Module.layers.0.fc.Linear".
std::string_view PathOf(std::string_view module) {
  const size_t first = module.find('.'), last = module.rfind('.');
  return first == std::string_view::npos || last <= first
             ? std::string_view()
             : module.substr(first + 1, last - first - 1);
}

// The records of one side that can be judged. A run that was killed tells nothing of what the other
// one did after its last call.
int32_t EndOf(const Comparison& c, Side side) {
  const bool target = side == Side::kTarget;
  if ((target ? c.golden : c.target).complete)
    return static_cast<int32_t>((target ? c.target : c.golden).records.size());
  int32_t end = 0;
  for (const RecordPair& pair : c.pairs) {
    if (pair.matched()) end = std::max(end, (target ? pair.target : pair.golden) + 1);
  }
  return end;
}

// Whether it is the bias of a sum of products.
bool IsAddend(const Call& call, const Dump& dump, int32_t index) {
  if (call.kind != CallKind::kOperation || call.facts->kind != OperationClass::kContraction)
    return false;
  const Leaf& leaf = dump.leaves[index];
  const std::string_view place = LeafPlace(leaf, dump.records[call.record]);
  return place == "bias" || (leaf.slot == Slot::kInput && place == "2");
}

std::optional<bool> RequiresGrad(const Leaf& leaf) {
  if (leaf.requires_grad == "True") return true;
  return leaf.requires_grad == "False" ? std::optional(false) : std::nullopt;
}

uint64_t CallKey(std::string_view api, int64_t call) {
  return HashText(api, static_cast<uint64_t>(call) + 7);
}

}  // namespace

Graph::Graph(const Comparison& c, Side side, const ContentIds& content, Paths* paths)
    : dump(side == Side::kTarget ? c.target : c.golden),
      operations_(OperationsOf(c)),
      content_(content),
      is_target_(side == Side::kTarget),
      by_content_(content.size(), kNoId),
      value_of_leaf_(dump.leaves.size(), kNoId),
      call_of_leaf_(dump.leaves.size(), kNoId),
      unwritten_leaf_(dump.leaves.size(), 0) {
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const int32_t leaf = is_target_ ? c.rows[i].target : c.rows[i].golden;
    if (leaf < 0) continue;
    const Reason reason = c.measures[i].reason;
    const bool never_read = reason == Reason::kOverwritten && !dump.AllocationOf(leaf).empty();
    if (reason == Reason::kUninitialised || never_read) unwritten_leaf_[leaf] = 1;
  }
  calls.reserve(dump.records.size());
  values.reserve(CountContents());
  taken.reserve(dump.leaves.size());
  made.reserve(dump.leaves.size());  // what is not needed is never touched
  for (int32_t r = 0, end = EndOf(c, side); r < end; ++r) AddRecord(r, paths);
  weight_.resize(values.size());
  born_ = {};
  unwritten_leaf_ = {};
  Nest();
  FindRecomputed();
  Index();
  NameWeights();
  FindSlices();
  AddUpGradients();
  FindMoved();
  FindViewed();
}

void Graph::Renumber(const Paths& own, Paths* shared) {
  std::vector<int32_t> numbers;
  for (const std::string_view name : own.names()) numbers.push_back(shared->Of(name));
  for (Call& call : calls) {
    if (call.path != kNoId) call.path = numbers[call.path];
  }
}

// Of the tensors of the run, which are about as many values.
size_t Graph::CountContents() const {
  std::vector<bool> known(content_.size());
  size_t count = 0;
  for (size_t i = 0; i < dump.leaves.size(); ++i) {
    if (dump.leaves[i].kind != LeafKind::kTensor) continue;
    const int32_t content = content_.Of(is_target_, static_cast<int32_t>(i));
    if (content < 0 || known[content]) continue;
    known[content] = true;
    ++count;
  }
  return count;
}

void Graph::NameWeights() {
  std::vector<StepWeight> weights = dump::WeightsBefore(dump);
  if (weights.empty()) return;
  std::unordered_map<uint64_t, ValueId> arrivals;
  for (const Port& port : taken) {
    if (values[port.value].maker != kNoId || values[port.value].plain) continue;
    arrivals.emplace(ContentKey(dump.leaves[port.leaf]), port.value);
  }
  TextArena arena;
  for (StepWeight& weight : weights) {
    if (weight.fingerprint.empty()) continue;
    const auto found = arrivals.find(HashText(FingerprintText(weight.fingerprint, &arena), 1));
    if (found == arrivals.end()) continue;
    weight_[found->second] = 1;
    named_.emplace_back(found->second, std::move(weight.name));
  }
}

void Graph::AddRecord(int32_t index, Paths* paths) {
  const Record& record = dump.records[index];
  if (IsOptimizerCall(record.api)) {
    AddOptimizer(index, paths);
    return;
  }
  Call call;
  call.record = index;
  call.facts = &operations_.Of(record.api);
  const bool backward = record.direction == Direction::kBackward;
  call.kind = record.direction == Direction::kParameterGrad ? CallKind::kGradients
              : record.is_module ? (backward ? CallKind::kModuleBackward : CallKind::kModule)
              : backward         ? CallKind::kBackward
                                 : CallKind::kOperation;
  const std::string_view module = record.is_module || call.kind == CallKind::kGradients
                                      ? record.api.view()
                                  : !record.parent.empty() ? WithoutCall(record.parent)
                                                           : record.module.view();
  call.path = paths->Of(PathOf(module));
  has_operations_ |= call.kind == CallKind::kOperation && !call.facts->exchanges;
  if (call.kind == CallKind::kOperation && IsOfLists(record.api)) {
    AddElements(call);
    return;
  }
  calls.push_back(call);
  AddPorts(static_cast<CallId>(calls.size()) - 1);
}

// Whether what an argument holds does not matter to a call.
bool Graph::OnlyLooksAt(const Call& call, int32_t place) {
  return call.kind == CallKind::kOperation &&
         (place == 0 ? call.facts->looks_at_first : call.facts->looks_at_others);
}

void Graph::AddPorts(CallId id) {
  Call& call = calls[id];
  const Record& record = dump.records[call.record];
  call.first_take = static_cast<uint32_t>(taken.size());
  call.first_make = static_cast<uint32_t>(made.size());
  int32_t place_in = 0, place_out = 0;
  for (uint32_t i = 0; i < record.leaf_count; ++i) {
    const auto leaf = static_cast<int32_t>(record.first_leaf + i);
    const Leaf& l = dump.leaves[leaf];
    if (!GoesIn(l.slot)) continue;
    if (l.kind == LeafKind::kTensor) Take(id, leaf, place_in);
    // Gradients are listed one for each tensor argument; null where there is none.
    if (l.kind == LeafKind::kTensor || call.IsBackward()) ++place_in;
  }
  for (uint32_t i = 0; i < record.leaf_count; ++i) {
    const auto leaf = static_cast<int32_t>(record.first_leaf + i);
    const Leaf& l = dump.leaves[leaf];
    if (GoesIn(l.slot)) continue;
    if (l.kind == LeafKind::kTensor) Make(id, leaf, place_out);
    if (l.kind == LeafKind::kTensor || call.IsBackward()) ++place_out;
  }
  if (calls[id].facts->exchanges) DropMemory(id, calls[id].first_take, calls[id].first_make);
}

// The recorded results of a collective are all its arguments. Those that it only reads are none.
void Graph::DropMemory(CallId id, size_t first_take, size_t first_make) {
  const auto is_taken = [&](const Port& port) {
    return std::any_of(taken.begin() + first_take, taken.end(),
                       [&](const Port& other) { return other.value == port.value; });
  };
  made.erase(
      std::remove_if(made.begin() + static_cast<std::ptrdiff_t>(first_make), made.end(), is_taken),
      made.end());
  calls[id].makes = static_cast<uint32_t>(made.size() - first_make);
  for (size_t i = first_make; i < made.size(); ++i) {  // the others have moved up
    Value& value = values[made[i].value];
    if (value.maker == id) value.port = static_cast<int32_t>(i);
  }
}

void Graph::Take(CallId call, int32_t leaf, int32_t place) {
  const ValueId value = Observe(leaf, call, /*is_made=*/false);
  values[value].taken = true;
  if (OnlyLooksAt(calls[call], place)) return;
  taken.push_back({.value = value,
                   .leaf = leaf,
                   .place = place,
                   .addend = IsAddend(calls[call], dump, leaf),
                   .requires_grad = RequiresGrad(dump.leaves[leaf])});
  ++calls[call].takes;
  call_of_leaf_[leaf] = call;
}

void Graph::Make(CallId call, int32_t leaf, int32_t place) {
  const ValueId value = Observe(leaf, call, /*is_made=*/true);
  made.push_back({.value = value,
                  .leaf = leaf,
                  .place = place,
                  .changed = IsChangedInPlace(dump.leaves[leaf], dump.records[calls[call].record]),
                  .requires_grad = RequiresGrad(dump.leaves[leaf])});
  ++calls[call].makes;
  call_of_leaf_[leaf] = call;
  // A module, or the list of a parameter's gradients, may show first what a later call made; but
  // not an operation that comes after it was taken: that makes it again (a part of what was
  // gathered). MindSpore's backward calls are listed when they end, and their results may have been
  // taken by then.
  Value& v = values[value];
  const CallKind now = calls[call].kind;
  const bool makes = now == CallKind::kOperation || now == CallKind::kBackward;
  if (v.maker == call || !makes) return;
  const bool shown =
      v.maker == kNoId ? now == CallKind::kBackward && !v.plain && calls[born_[value]].IsBackward()
                       : calls[v.maker].IsModule() || calls[v.maker].kind == CallKind::kGradients;
  const std::span<const Port> takes = Takes(call);
  const bool passes = std::any_of(takes.begin(), takes.end(),
                                  [&](const Port& port) { return port.value == value; });
  const bool again = now == CallKind::kOperation && v.taken;
  if (shown && !passes && !again) {
    v.maker = call;
    v.port = static_cast<int32_t>(made.size()) - 1;
  }
}

ValueId Graph::Observe(int32_t leaf, CallId call, bool is_made) {
  const Leaf& l = dump.leaves[leaf];
  const bool has_digest = !l.fingerprint.empty() || !l.checksum.empty();
  // Statistics of NaN are equal for tensors that have nothing else in common.
  const bool tells = has_digest || std::isfinite(l.norm_value);
  const int32_t content = tells ? content_.Of(is_target_, leaf) : kNoId;
  ValueId known = content >= 0 ? by_content_[content] : kNoId;
  if (known == kNoId) {
    Value value;
    value.moments = MomentsOf(dump, leaf);
    value.dtype = l.dtype;
    value.shape = l.shape;
    value.content = content;
    value.has_digest = has_digest;
    value.unwritten = unwritten_leaf_[leaf] != 0;
    const bool by_digest =
        has_digest && !value.moments.known && value.IsFloat() && l.shape.elements() > 1;
    value.plain = content < 0 || value.unwritten ||
                  (!by_digest && SaysNothing(value.moments, value.dtype, value.IsFloat()));
    const uint64_t key = HashText(l.shape.view(), static_cast<uint64_t>(content) + 1);
    if (value.plain && !is_made && content >= 0) {
      const auto found = plain_now_.find(key);
      if (found != plain_now_.end()) known = found->second;
    }
    if (known == kNoId) {
      known = static_cast<ValueId>(values.size());
      if (is_made) {
        value.maker = call;
        value.port = static_cast<int32_t>(made.size());
      }
      values.push_back(value);
      born_.push_back(call);
      if (value.plain && content >= 0) plain_now_[key] = known;
      if (!value.plain) by_content_[content] = known;
    }
  }
  value_of_leaf_[leaf] = known;
  sketched_.resize(values.size());
  if (l.shape == sketched_[known]) return known;
  if (const RowSketch sketch = SketchOf(dump, leaf); sketch.known()) {
    seen_.emplace_back(known, sketch);
    sketched_[known] = l.shape;
  }
  return known;
}

void Graph::Nest() {
  ContentMap forwards;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    const Record& record = dump.records[calls[id].record];
    if (calls[id].IsModule()) by_name_.emplace(record.name, id);
    if (calls[id].IsForward()) forwards.Insert(CallKey(record.api, record.call), id);
  }
  std::vector<std::pair<int32_t, CallId>> children;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    Call& call = calls[id];
    const Record& record = dump.records[call.record];
    call.begins = id;
    const auto around = by_name_.find(record.parent);
    if (!record.parent.empty() && around != by_name_.end() && around->second != id) {
      call.parent = around->second;
      children.emplace_back(call.parent, id);
    }
    if (call.kind != CallKind::kBackward && call.kind != CallKind::kModuleBackward) continue;
    const CallId forward = forwards.Find(CallKey(record.api, record.call));
    if (forward == kNoId) continue;
    call.forward = forward;
    call.path = calls[call.forward].path;
    calls[call.forward].backward = id;
  }
  children_.Build(calls.size(), children);
  for (CallId id = 0; id < static_cast<CallId>(calls.size());
       ++id) {  // a module follows its children
    for (const CallId child : calls[id].IsModule() ? ChildrenOf(id) : std::span<const CallId>())
      calls[id].begins = std::min(calls[id].begins, calls[child].begins);
  }
}

// Checkpointed code is computed again in the backward pass, by calls that have no backward call of
// their own; the backward calls of the first time take what these saved.
void Graph::FindRecomputed() {
  std::map<std::pair<std::string_view, int32_t>, CallId> again;  // of each place the latest
  bool in_backward = false;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    Call& call = calls[id];
    if (call.kind == CallKind::kOperation && call.backward == kNoId && in_backward)
      again[{ApiOf(id), call.path}] = id;
    in_backward |= call.IsBackward();
    if (call.kind != CallKind::kBackward || call.forward == kNoId) continue;
    const auto found = again.find({ApiOf(call.forward), call.path});
    if (found != again.end() && found->second > call.forward) call.again = found->second;
  }
}

void Graph::Index() {
  std::vector<uint8_t> is_gradient(values.size(), 0);  // which a state without momentum may repeat
  bool updated = false;  // what is a parameter then, code without records may have left
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    updated |= calls[id].kind == CallKind::kUpdate;
    for (const Port& port : Takes(id)) {
      if (!updated && dump.leaves[port.leaf].slot == Slot::kParameter) weight_[port.value] = 1;
      if (calls[id].kind != CallKind::kUpdate) continue;
      const std::string_view place =
          LeafPlace(dump.leaves[port.leaf], dump.records[calls[id].record]);
      if (place.starts_with("gradients."))
        is_gradient[port.value] = 1;
      else if (values[port.value].maker == kNoId && is_gradient[port.value] == 0)
        weight_[port.value] = 1;
      if (place.starts_with("weights.")) weight_of_.emplace(place.substr(8), port.value);
    }
  }
  taken_values_.reserve(taken.size());
  made_values_.reserve(made.size());
  for (const Port& port : taken) taken_values_.push_back(port.value);
  for (const Port& port : made) made_values_.push_back(port.value);
  const auto count = static_cast<CallId>(calls.size());
  inside_.BuildOf(calls.size(), [&](const auto& add) {
    for (CallId id = 0; id < count; ++id) {
      if (!calls[id].IsModule()) continue;
      for (const CallId child : ChildrenOf(id)) {
        for (const Port& port : Makes(child)) add(id, port.value);
      }
    }
  });
  uses_.BuildOf(values.size(), [&](const auto& add) {
    for (CallId id = 0; id < count; ++id) {
      for (const Port& port : Takes(id))
        add(port.value, Taker{id, static_cast<int32_t>(&port - taken.data())});
    }
  });
  makers_.BuildOf(values.size(), [&](const auto& add) {
    for (CallId id = 0; id < count; ++id) {
      for (const Port& port : Makes(id)) add(port.value, id);
    }
  });
  IndexSketches();
}

void Graph::IndexSketches() {
  const auto before = [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.columns) < std::tie(b.first, b.second.columns);
  };
  if (!std::is_sorted(seen_.begin(), seen_.end(), before))
    std::stable_sort(seen_.begin(), seen_.end(), before);
  const auto again = std::unique(seen_.begin(), seen_.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.columns == b.second.columns;
  });
  seen_.erase(again, seen_.end());
  sketches_.Build(values.size(), seen_);
  seen_ = {};
  sketched_ = {};
}

ValueId Graph::ForwardOf(CallId backward, const Port& port) const {
  const CallId forward = calls[backward].forward;
  if (forward == kNoId) return kNoId;
  int32_t place = 0;
  for (const Port& made_port : Makes(forward)) {
    if (!made_port.changed && place++ == port.place) return made_port.value;
  }
  return kNoId;
}

Inputs Graph::InputsOf(ValueId v, bool saved) const {
  const Value& value = values[v];
  Inputs out(v);
  const std::span<const ValueId> parts = PartsOf(v);
  if (!parts.empty() || value.maker == kNoId) {
    out.Add(parts);
    for (const auto* views : {&moved_from_, &slice_of_}) {
      if (const auto from = views->find(v); from != views->end()) out.Add({&from->second, 1});
    }
    return out;
  }
  const Call& call = calls[value.maker];
  const auto add_takes = [&](const Call& of) {
    out.Add({taken_values_.data() + of.first_take, of.takes});
  };
  const auto add_both = [&](const Call& of) {
    add_takes(of);
    out.Add({made_values_.data() + of.first_make, of.makes});
  };
  add_takes(call);
  // It made the value itself, in code between the calls inside of it.
  if (call.IsModule()) out.Add(inside_.Of(value.maker));
  if (saved && call.IsBackward() && call.forward != kNoId) {
    add_both(calls[call.forward]);
    if (call.again != kNoId) add_both(calls[call.again]);
  }
  return out;
}

bool Graph::IsOfSecondPass(ValueId value) const {
  const Value& v = values[value];
  if (v.maker == kNoId || calls[v.maker].kind != CallKind::kBackward ||
      made[v.port].requires_grad != false)
    return false;
  const auto carries = [](const Port& port) { return port.requires_grad == true; };
  return std::ranges::any_of(Takes(v.maker), carries) ||
         std::ranges::any_of(Makes(v.maker), carries);
}

bool Graph::IsGradientOfWeight(ValueId v) const {
  const CallId maker = values[v].maker;
  if (maker == kNoId || !calls[maker].IsBackward() || calls[maker].forward == kNoId) return false;
  const std::span<const Port> used = Takes(calls[maker].forward);
  return std::any_of(used.begin(), used.end(), [this, v](const Port& port) {
    const std::span<const ValueId> gradients = GradientsOf(port.value);
    return IsWeight(port.value) &&
           std::find(gradients.begin(), gradients.end(), v) != gradients.end();
  });
}

bool Graph::IsSum(ValueId v) const {
  constexpr int kMostTerms = 64;  // that are added to a loss, or factors of it
  for (int i = 0; i < kMostTerms && v != kNoId; ++i) {
    const Value& value = values[v];
    if (!value.IsFloat() || value.plain || !value.moments.known || value.moments.n != 1 ||
        value.maker == kNoId || calls[value.maker].kind != CallKind::kOperation)
      return false;
    const OperationFacts& facts = *calls[value.maker].facts;
    const auto takes = Takes(value.maker);
    if (facts.kind == OperationClass::kReduction || facts.kind == OperationClass::kExponential)
      return std::any_of(takes.begin(), takes.end(),
                         [this](const Port& port) { return values[port.value].moments.n > 1; });
    if (!facts.RoundsOnce()) return false;
    const auto number = std::find_if(takes.begin(), takes.end(), [&](const Port& port) {
      return values[port.value].maker != kNoId && values[port.value].maker < value.maker &&
             values[port.value].moments.n == 1;
    });
    v = number == takes.end() ? kNoId : number->value;
  }
  return false;
}

bool Graph::AreSums(std::span<const ValueId> numbers) const {
  const auto role_of = [this](ValueId v) {
    for (const Taker& use : TakersOf(v)) {
      if (calls[use.call].kind == CallKind::kOperation)
        return std::tuple(std::string_view(ApiOf(use.call)), calls[use.call].path,
                          taken[use.port].place);
    }
    return std::tuple(std::string_view(), int32_t{kNoId}, int32_t{0});
  };
  return std::all_of(numbers.begin(), numbers.end(),
                     [&](ValueId v) { return IsSum(v) && role_of(v) == role_of(numbers[0]); });
}

bool Graph::IsLeft(ValueId v) const {
  const std::span<const CallId> makers = MakersOf(v);
  const CallId last = makers.empty() ? kNoId : makers.back();
  const auto uses = TakersOf(v);
  return std::all_of(uses.begin(), uses.end(), [&](const Taker& use) {
    const Call& taker = calls[use.call];
    return taker.begins <= last || taker.makes == 0;
  });
}

bool Graph::IsLoose(ValueId v) const {
  CallId last = kNoId;
  for (const Taker& use : TakersOf(v)) {
    if (!calls[use.call].IsModule()) last = std::max(last, use.call);
  }
  const std::span<const CallId> makers = MakersOf(v);
  return (makers.empty() ? kNoId : makers.back()) >= last;
}

}  // namespace msprobe::compare::relations
