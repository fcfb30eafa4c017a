#include "engine/compare/relations/expose.h"

#include <algorithm>
#include <cmath>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::relations {
namespace {

bool IsView(std::string_view api) {
  const std::string_view base = BaseApi(api);
  return base == "narrow" || base == "split" || base == "view" || base == "chunk";
}

void Append(std::vector<ValueId>* out, const std::vector<ValueId>& more) {
  out->insert(out->end(), more.begin(), more.end());
}

}  // namespace

// Whether code without records may make `part` of `whole`: as a part or a copy of it, or by an index.
bool Exposure::MayLead(const Value& part, const Value& whole) {
  const Moments &a = part.moments, &b = whole.moments;
  if (!whole.IsFloat() || !a.known || !b.known || b.not_finite > 0) return true;
  if (part.dtype.dtype() != whole.dtype.dtype()) return false;
  if (a.n > b.n) return a.high >= b.high && a.low <= b.low;
  return a.high <= std::max(b.high, 0.0) && a.low >= std::min(b.low, 0.0);
}

int Candidate::Evidence() const {
  if (sure) return 3;
  switch (cause) {
    case Cause::kOnlyHere:
    case Cause::kNoCallMadeIt:
      return 0;
    case Cause::kNowhere:
      return 1;
    default:
      return 2;
  }
}

Exposure::Exposure(const Relations& relations)
    : r_(relations), modules_only_(!relations.g.HasOperations()) {
  FindSinks();
  exposed_ = Spread(bad_sinks_, [this](ValueId v) { return CausesOf(v); });
  exposed_golden_ = Spread(bad_golden_, [this](ValueId w) { return GoldenCausesOf(w); });
  for (Candidate& each : Rank(Frontier())) {
    const Candidate named = WhereCut(each);
    const bool known = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return c.call == named.call && c.golden == named.golden;
    });
    if (!known) candidates.push_back(named);
  }
  if (candidates.empty()) {
    candidates = FirstBits(r_.same_environment() && SamePolicy());
    without_effect = !candidates.empty();
  }
}

// Whether a result of a forward call is memory that outlives the step: a weight or a buffer.
bool Exposure::Outlives(const Graph& run, CallId call, const Port& port) {
  const Record& record = run.dump.records[run.calls[call].record];
  const auto takes = run.Takes(call);
  if (!port.changed)
    return run.calls[call].facts->in_place && !takes.empty() && run.IsWeight(takes[0].value);
  const std::string_view suffix = LeafSuffix(run.dump.leaves[port.leaf], record);
  if (suffix.find("buffers") != std::string_view::npos) return true;
  return std::any_of(takes.begin(), takes.end(), [&](const Port& given) {
    return run.IsWeight(given.value) &&
           suffix.ends_with(LeafSuffix(run.dump.leaves[given.leaf], record));
  });
}

std::vector<Exposure::Sink> Exposure::SinksOf(const Graph& run) const {
  bool stepped = false;
  std::unordered_map<int32_t, CallId> complete;  // the last gradients of the parameters of a module
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    stepped |= run.calls[id].kind == CallKind::kUpdate;
    if (run.calls[id].kind == CallKind::kGradients) complete[run.calls[id].path] = id;
  }
  std::vector<Sink> out;
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    const Call& call = run.calls[id];
    const bool optimizer = call.kind == CallKind::kUpdate || call.kind == CallKind::kTotalNorm;
    const bool step = call.kind == CallKind::kUpdate && run.ApiOf(id).ends_with(".step");
    for (const Port& port : optimizer ? run.Takes(id) : std::span<const Port>()) {
      const Record& record = run.dump.records[call.record];
      if (LeafPlace(run.dump.leaves[port.leaf], record).starts_with("gradients."))
        out.push_back({id, port.value, port.leaf, false});
    }
    for (const Port& port : run.Makes(id)) {
      // Where no gradients of parameters were recorded, what nobody takes is a result of the step.
      const bool last = complete.empty() && !stepped && run.TakersOf(port.value).empty() &&
                        (call.IsForward() || call.IsBackward());
      const bool sink = call.kind == CallKind::kGradients ? !stepped && complete[call.path] == id
                        : call.IsForward()                ? last || Outlives(run, id, port)
                                                          : optimizer || last;
      if (sink) out.push_back({id, port.value, port.leaf, step});
    }
  }
  return out;
}

void Exposure::FindSinks() {
  const Graph &t = r_.t, &g = r_.g;
  const std::vector<Sink> mine = SinksOf(t), golden = SinksOf(g);
  for (const Sink& sink : mine) {
    const Port port{.value = sink.value, .leaf = sink.leaf};
    const ValueId there = r_.AtPartner(port);
    if (r_.of(sink.value).strength < Strength::kNear) {
      bad_sinks_.push_back(sink.value);
      if (there != kNoId) bad_golden_.push_back(there);
    } else if (there != kNoId && !r_.Fits(sink.value, there)) {
      misplaced_.emplace_back(sink.call, sink.value);
    }
  }
  for (const Sink& sink : golden) {
    if (!sink.update || r_.partner[sink.call] != kNoId) continue;
    const bool known =
        std::any_of(g.Takes(sink.call).begin(), g.Takes(sink.call).end(), [&](const Port& port) {
          return r_.AtTarget(port.leaf) != kNoId ||
                 (!g.values[port.value].plain &&
                  t.WithContent(g.values[port.value].content) != kNoId);
        });
    if (known && (missing_steps_.empty() || missing_steps_.back() != sink.call))
      missing_steps_.push_back(sink.call);
  }
  if (!bad_sinks_.empty() || !misplaced_.empty() || !missing_steps_.empty()) AddLosses();
}

// Losses of both runs, if their sums differ. Only of a step that differs: a loss may have a constant.
void Exposure::AddLosses() {
  const auto roots = [](const Graph& run) {
    std::vector<ValueId> out;
    for (const Call& call : run.calls) {
      if (call.kind != CallKind::kOperation || call.backward == kNoId || call.makes != 1) continue;
      const auto id = static_cast<CallId>(&call - run.calls.data());
      const auto given = run.Takes(call.backward);
      const ValueId loss = run.Makes(id)[0].value;
      if (given.size() == 1 && run.values[given[0].value].plain &&
          run.values[given[0].value].maker == kNoId && run.values[loss].shape.is_scalar() &&
          run.PartsOf(given[0].value).empty())
        out.push_back(loss);
    }
    return out;
  };
  const std::vector<ValueId> mine = roots(r_.t), right = roots(r_.g);
  double sum = 0, golden = 0, bound = 4 * kDigits;
  for (const ValueId v : mine) {
    sum += r_.t.values[v].moments.mean;
    bound = std::max(bound, r_.of(v).bound);
  }
  for (const ValueId w : right) golden += r_.g.values[w].moments.mean;
  if (!(std::abs(sum - golden) > bound * std::abs(golden))) return;
  if (mine.size() == right.size()) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (r_.IsRight(mine[i]) && !r_.Fits(mine[i], right[i]))
        other_losses_.emplace_back(mine[i], right[i]);
    }
  }
  for (const ValueId v : mine) {
    if (r_.of(v).strength < Strength::kNear) bad_sinks_.push_back(v);
  }
  for (const ValueId w : right) {
    if (!r_.Has(w)) bad_golden_.push_back(w);
  }
}

template <typename Next>
Exposure::Causes Exposure::Spread(const std::vector<ValueId>& from, Next next) {
  Causes out;
  std::vector<ValueId> todo = from;
  while (!todo.empty()) {
    const ValueId v = todo.back();
    todo.pop_back();
    if (out.count(v) > 0) continue;
    std::vector<ValueId> causes = next(v);
    Append(&todo, causes);
    out.emplace(v, std::move(causes));
  }
  return out;
}

// The wrong values that an exposed value of the target was made of.
std::vector<ValueId> Exposure::CausesOf(ValueId v) {
  const Graph& t = r_.t;
  const Value& value = t.values[v];
  std::vector<ValueId> inputs = t.InputsOf(v, false);
  const auto right = [this](ValueId w) { return r_.IsRight(w); };
  const auto all_right = [&] { return std::all_of(inputs.begin(), inputs.end(), right); };
  if (value.maker == kNoId && t.PartsOf(v).empty()) {
    Append(&inputs, Around(v));
    if (all_right()) {  // a loss that nobody recorded
      for (const Taker& use : t.TakersOf(v)) {
        if (!t.calls[use.call].IsBackward()) continue;
        if (const ValueId u = t.ForwardOf(use.call, t.taken[use.port]); u != kNoId)
          inputs.push_back(u);
      }
    }
  } else if (value.maker == kNoId) {
    if (all_right()) Append(&inputs, Around(v));
  } else if (t.calls[value.maker].IsBackward() && t.calls[value.maker].forward != kNoId &&
             all_right()) {
    inputs = t.InputsOf(v, /*saved=*/true);
  }
  std::vector<ValueId> wrong;
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(wrong),
               [&](ValueId w) { return !right(w); });
  if (!wrong.empty() || !r_.Alike(value.maker)) return wrong;
  // Its result is wrong, so an input is, which may be changed inside of a module.
  const bool module = t.calls[value.maker].IsModule();
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(wrong),
               [&](ValueId w) { return w != v && (module ? r_.of(w).like : r_.of(w).doubtful); });
  return wrong;
}

std::vector<ValueId> Exposure::GoldenCausesOf(ValueId w) const {
  const Graph& g = r_.g;
  const Value& value = g.values[w];
  std::vector<ValueId> inputs = g.InputsOf(w, false);
  const auto found = [this](ValueId x) { return Found(x); };
  const bool all = std::all_of(inputs.begin(), inputs.end(), found);
  if (value.maker == kNoId && all) {
    for (const Taker& use : g.TakersOf(w)) {
      if (!g.calls[use.call].IsBackward()) continue;
      if (const ValueId u = g.ForwardOf(use.call, g.taken[use.port]); u != kNoId)
        inputs.push_back(u);
    }
  } else if (value.maker != kNoId && g.calls[value.maker].IsBackward() &&
             g.calls[value.maker].forward != kNoId && all) {
    inputs = g.InputsOf(w, /*saved=*/true);
  }
  std::erase_if(inputs, found);
  return inputs;
}

// Code without records made v: of wrong results that no recorded call takes, before it, and first of
// those of the same module.
std::vector<ValueId> Exposure::Around(ValueId v) {
  const Graph& t = r_.t;
  if (t.TakersOf(v).empty()) return {};
  const CallId taker = TakerOf(v);
  const Call& user = t.calls[taker];
  std::vector<ValueId> out;
  const CallId around = user.parent;
  const auto right = [this](ValueId w) { return r_.IsRight(w); };
  if (modules_only_ && around != kNoId) {  // of what the module around was given
    for (const Port& port : t.Takes(around)) {
      if (port.value != v) out.push_back(port.value);
    }
    const CallId forward = t.calls[around].forward;
    if (forward != kNoId && std::all_of(out.begin(), out.end(), right)) {
      for (const Port& port : t.Takes(forward)) {
        if (port.value != v) out.push_back(port.value);
      }
    }
  }
  if (!loose_) {
    loose_.emplace();
    for (ValueId w = 0; w < static_cast<ValueId>(t.values.size()); ++w) {
      if (t.values[w].maker != kNoId && !t.values[w].plain && !r_.IsRight(w) && !Ends(w) &&
          (modules_only_ || t.IsLoose(w)))
        loose_->push_back(w);
    }
  }
  std::vector<ValueId> near, far;
  const bool exchange = user.facts->exchanges;
  for (const ValueId w : *loose_) {
    const Value& other = t.values[w];
    const Call& maker = t.calls[other.maker];
    if (w == v || other.maker >= user.begins ||
        (maker.IsBackward() != user.IsBackward() && !exchange))
      continue;
    if (modules_only_) {
      const auto makers = t.MakersOf(w);
      if (std::any_of(makers.begin(), makers.end(),
                      [&](CallId m) { return t.calls[m].parent == user.parent; }))
        near.push_back(w);
    } else if (MayLead(t.values[v], other)) {
      (maker.path == user.path ? near : far).push_back(w);
    }
  }
  Append(&out, near.empty() ? far : near);
  return out;
}

// A gradient for an optimizer; or a view of memory that no call has written, which may be written
// through the view.
bool Exposure::Ends(ValueId v) const {
  const Graph& t = r_.t;
  const Value* value = &t.values[v];
  const CallKind kind = t.calls[value->maker].kind;
  if (kind == CallKind::kGradients || kind == CallKind::kUpdate) return true;
  while (value->IsFloat() && value->maker != kNoId && IsView(t.ApiOf(value->maker))) {
    if (t.calls[value->maker].kind != CallKind::kOperation || t.Takes(value->maker).empty())
      return false;
    const Value* next = &t.values[t.Takes(value->maker)[0].value];
    if (next->maker >= value->maker) return false;  // equal contents may close a circle
    value = next;
  }
  return value->maker == kNoId;
}

// The first call that takes v; at level L0 the outermost module, whose inner ones end first.
CallId Exposure::TakerOf(ValueId v) const {
  const auto uses = r_.t.TakersOf(v);
  CallId taker = uses[0].call;
  const auto takes = [&](CallId call) {
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Taker& use) { return use.call == call; });
  };
  while (modules_only_ && r_.t.calls[taker].parent != kNoId && takes(r_.t.calls[taker].parent))
    taker = r_.t.calls[taker].parent;
  return taker;
}

std::vector<Candidate> Exposure::Frontier() {
  const Graph& t = r_.t;
  std::vector<Candidate> found;
  std::vector<ValueId> values;
  for (const auto& [v, causes] : exposed_) values.push_back(v);
  std::sort(values.begin(), values.end());
  for (const ValueId v : values) {
    const Value& value = t.values[v];
    const std::vector<ValueId>& causes = exposed_[v];
    if (causes.empty() && value.maker == kNoId && t.TakersOf(v).empty()) {
      found.push_back({.value = v, .cause = Cause::kAnotherUpdate, .order = -1, .sure = true});
    } else if (causes.empty()) {
      found.push_back(Origin(value.maker != kNoId ? value.maker : TakerOf(v), v, {}));
    } else if (value.maker != kNoId && t.calls[value.maker].kind == CallKind::kOperation &&
               TakesAnother(value.maker)) {
      found.push_back(Origin(value.maker, v, {}));
    }
  }
  for (const auto& [call, v] : misplaced_) found.push_back(Origin(call, v, {}));
  for (const CallId call : missing_steps_) found.push_back(MissingStep(call));
  for (const auto& [x, w] : other_losses_) {
    if (auto c = WhoShouldMake(x, w, static_cast<CallId>(t.calls.size()), x, {}))
      found.push_back(*c);
  }
  if (!modules_only_) {
    std::vector<ValueId> lost;
    for (const auto& [w, causes] : exposed_golden_) {
      const CallId maker = r_.g.values[w].maker;
      if (causes.empty() && maker != kNoId && r_.partner[maker] == kNoId) lost.push_back(w);
    }
    std::sort(lost.begin(), lost.end());
    for (const ValueId w : lost) found.push_back(MissingFrom(w));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.order < b.order; });
  std::vector<Candidate> unique;
  for (const Candidate& each : found) {
    const bool known = std::any_of(unique.begin(), unique.end(), [&](const Candidate& c) {
      return c.call == each.call && c.golden == each.golden;
    });
    if (!known) unique.push_back(each);
  }
  return unique;
}

// A paired call takes a value of the golden, but not the one that its partner takes.
bool Exposure::TakesAnother(CallId call) const {
  if (r_.pair[call] == kNoId) return false;
  bool any = false, all = true;
  for (const Port& port : r_.t.Takes(call)) {
    const ValueId w = r_.AtPartner(port);
    if (w == kNoId || !r_.IsRight(port.value) || r_.t.values[port.value].plain) continue;
    const bool fits = r_.Fits(port.value, w);
    any |= fits;
    all &= fits;
  }
  if (all) return false;
  const auto mine = r_.t.Makes(call), other = r_.g.Makes(r_.pair[call]);
  return any ||
         std::equal(mine.begin(), mine.end(), other.begin(), other.end(),
                    [this](const Port& a, const Port& b) {
                      return r_.t.values[a.value].shape.view() == r_.g.values[b.value].shape.view();
                    });
}

}  // namespace msprobe::compare::relations
