// After rows that only one run has. A batch that is padded further, or filled up with samples of no
// weight, changes the shape of all that is made of it, and nothing that counts. So where the first
// divergence is such a change, a later call that was given another argument, or takes the result of
// another call than its partner, explains more.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
namespace {

// Whether one of two tensors may have all elements of the other one, and more rows.
bool MayHaveMoreRows(const Value& a, const Value& b) {
  const auto mine = a.shape.extents(), other = b.shape.extents();
  if (mine.size() != other.size() || a.dtype.dtype() != b.dtype.dtype()) return false;
  bool more = false, less = false;
  for (size_t i = 0; i < mine.size(); ++i) {
    more |= mine[i] > other[i];
    less |= mine[i] < other[i];
  }
  return more != less;
}

// Whether the larger one of two tensors cannot have all elements of the smaller one, but for what
// rounding explains.
bool LacksElements(const Value& a, const Value& b, double bound) {
  const bool first = a.shape.elements() > b.shape.elements();
  const Moments &large = (first ? a : b).moments, &small = (first ? b : a).moments;
  if (!large.known || !small.known || large.not_finite > 0 || small.not_finite > 0 ||
      large.extremes > 0 || small.extremes > 0)
    return false;
  const double allowed = std::max(bound, kOwnRoundings * std::max(a.roundoff(), b.roundoff()));
  const double apart = allowed * std::max(large.Size(), small.Size());
  return small.high > large.high + apart || small.low < large.low - apart ||
         small.norm > large.norm * (1 + allowed);
}

// Whether the larger one of two tensors is a constant, and the smaller one is not.
bool IsOnlyAConstant(const Value& a, const Value& b) {
  const bool first = a.shape.elements() > b.shape.elements();
  const Moments &large = (first ? a : b).moments, &small = (first ? b : a).moments;
  return large.known && small.known && large.high == large.low && small.high != small.low;
}

// Values of the target that may be the golden's with more rows, or with fewer: what adds the rows,
// and what calls like their partners make of it.
class RowsBeside {
 public:
  // `only_sizes`: whether a call differs from its partner by nothing but sizes.
  RowsBeside(const Relations& relations, std::function<bool(CallId)> only_sizes)
      : r_(relations), only_sizes_(std::move(only_sizes)) {}

  enum class Given : uint8_t { kSame, kWithRows, kAnother, kOpen };

  // What a call is given beside its partner's argument.
  Given Of(const Port& port) {
    const ValueId v = port.value, w = r_.AtPartner(port);
    if (w == kNoId) return Given::kOpen;
    const Value &mine = r_.t.values[v], &other = r_.g.values[w];
    const bool rows = MayHaveMoreRows(mine, other);
    if (mine.plain && other.plain) return rows ? Given::kWithRows : Given::kSame;
    if (rows && IsOnlyAConstant(mine, other)) return Given::kAnother;
    // Of what no call made nobody knows whether two such values are one.
    const bool told = mine.maker != kNoId && other.maker != kNoId;
    if (const auto known = golden_.find(v); known != golden_.end())
      return known->second == w ? Given::kWithRows : told ? Given::kAnother : Given::kOpen;
    if (r_.Fits(v, w)) return Given::kSame;
    const bool right = r_.IsRight(v);
    if (rows && !LacksElements(mine, other, r_.of(v).bound) &&
        (right ? AreAddedTo(r_.of(v).golden, other.maker) : MayAddRows(mine.maker))) {
      golden_.emplace(v, w);
      return Given::kWithRows;
    }
    return right && told && r_.of(v).golden != kNoId ? Given::kAnother : Given::kOpen;
  }

  // The same of all that a call is given; `another`: the first argument that is another one.
  Given GivenTo(CallId call, const Port** another) {
    Given given = Given::kSame;
    for (const Port& port : r_.t.Takes(call)) {
      const Given each = Of(port);
      given = std::max(given, each);
      if (each == Given::kAnother && *another == nullptr) *another = &port;
    }
    return given;
  }

  // The golden's value that a value is with other rows; kNoId.
  ValueId GoldenOf(ValueId v) const {
    const auto known = golden_.find(v);
    return known == golden_.end() ? kNoId : known->second;
  }

  // What a call makes that is like its partner, and was given what partners are given.
  void Follow(CallId call) {
    for (const Port& made : r_.t.Makes(call)) {
      const ValueId w = r_.AtPartner(made);
      if (w == kNoId || r_.IsRight(made.value)) continue;
      const Value &mine = r_.t.values[made.value], &other = r_.g.values[w];
      if (MayHaveMoreRows(mine, other) && !LacksElements(mine, other, r_.of(made.value).bound))
        golden_.emplace(made.value, w);
    }
  }

  // Whether a candidate is a call that takes or makes such a value.
  bool Meets(const Candidate& candidate) const {
    const auto any = [](const Graph& run, CallId call, const auto& has) {
      const auto ports = {run.Takes(call), run.Makes(call)};
      return std::ranges::any_of(ports, [&](const auto& each) {
        return std::ranges::any_of(each, [&](const Port& port) { return has(port.value); });
      });
    };
    if (golden_.empty()) return false;
    if (candidate.cause == Cause::kMadeDifferently) return true;  // by sizes
    const Graph& run = candidate.call != kNoId ? r_.t : r_.g;
    const CallId named = candidate.call != kNoId ? candidate.call : candidate.golden;
    const bool alone = (candidate.call != kNoId ? r_.pair : r_.partner)[named] == kNoId;
    // What only one run computes is more than rows. Code without records may take parts of what a
    // call fills up.
    if (alone) return AddsRows(run, named);
    if (candidate.call != kNoId)
      return any(r_.t, candidate.call, [&](ValueId v) { return golden_.count(v) > 0; });
    return any(r_.g, candidate.golden, [&](ValueId w) {
      return std::ranges::any_of(golden_, [w](const auto& e) { return e.second == w; });
    });
  }

 private:
  // Whether a call moves elements, and makes more or fewer of them than it takes.
  static bool AddsRows(const Graph& run, CallId call) {
    if (run.calls[call].kind != CallKind::kOperation || !run.calls[call].facts->Moves())
      return false;
    const auto most = [&run](std::span<const Port> ports) {
      int64_t elements = 0;
      for (const Port& port : ports)
        elements = std::max(elements, run.values[port.value].shape.elements());
      return elements;
    };
    return most(run.Takes(call)) != most(run.Makes(call));
  }

  // Code without records, what only moves elements, or a call that is told how many to make.
  bool MayAddRows(CallId maker) const {
    if (maker == kNoId) return true;
    if (r_.t.calls[maker].kind != CallKind::kOperation) return false;
    return r_.pair[maker] == kNoId ? AddsRows(r_.t, maker) : only_sizes_(maker);
  }

  // Whether a call that only the golden makes adds rows to its value u.
  bool AreAddedTo(ValueId u, CallId maker) const {
    if (maker == kNoId || r_.partner[maker] != kNoId || !AddsRows(r_.g, maker)) return false;
    return std::ranges::any_of(r_.g.Takes(maker),
                               [u](const Port& port) { return port.value == u; });
  }

  const Relations& r_;
  const std::function<bool(CallId)> only_sizes_;
  std::unordered_map<ValueId, ValueId> golden_;
};

// The numbers of a plain argument, of which there may be a list, "[4, 8]"; empty: it is something
// else.
std::vector<double> NumbersOf(const Leaf& leaf) {
  const std::string_view text(leaf.value);
  if (text.empty()) return {leaf.max_value};
  std::vector<double> out;
  for (const char *at = text.data(), *end = text.data() + text.size(); at < end;) {
    if (std::string_view("[](), ").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return {};
    out.push_back(number);
    at = next;
  }
  return out;
}

}  // namespace

// Whether one number follows from the size of a tensor as the other one from that of its partner:
// the size itself, or as many times the size.
bool Exposure::AreOtherSizes(double a, double b) {
  return std::ranges::any_of(OtherSizes(), [&](const auto& sizes) {
    const auto mine = static_cast<double>(sizes.first), other = static_cast<double>(sizes.second);
    if (a == mine && b == other) return true;
    const double times = a / mine;
    return mine > 0 && times > 1 && times == std::trunc(times) && b == times * other;
  });
}

// The sizes in which tensors differ from their partners.
const std::set<std::pair<int64_t, int64_t>>& Exposure::OtherSizes() {
  if (other_sizes_) return *other_sizes_;
  other_sizes_.emplace();
  const Dump &mine = r_.t.dump, &golden = r_.g.dump;
  for (size_t leaf = 0; leaf < mine.leaves.size(); ++leaf) {
    const int32_t there = r_.PartnerLeaf(static_cast<int32_t>(leaf));
    if (there < 0) continue;
    const auto a = mine.leaves[leaf].shape.extents(), b = golden.leaves[there].shape.extents();
    for (size_t i = 0; i < a.size() && a.size() == b.size(); ++i) {
      if (a[i] != b[i]) other_sizes_->emplace(a[i], b[i]);
    }
  }
  return *other_sizes_;
}

// Whether the only other arguments of a call are sizes of what arrives in another size: of a batch
// that one run pads more, say. What arrives is named, or is right.
bool Exposure::PassesOtherSizes(CallId id) {
  if (id == kNoId || r_.pair[id] == kNoId) return false;
  const Dump &mine = r_.t.dump, &golden = r_.g.dump;
  const Record& record = mine.records[r_.t.calls[id].record];
  bool any = false;
  for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
    const int32_t there = r_.PartnerLeaf(static_cast<int32_t>(i));
    if (!r_.OtherScalar(static_cast<int32_t>(i))) continue;
    const std::vector<double> a = NumbersOf(mine.leaves[i]), b = NumbersOf(golden.leaves[there]);
    if (a.empty() || !std::ranges::equal(a, b, [this](double x, double y) {
          return x == y || AreOtherSizes(x, y);
        }))
      return false;
    any = true;
  }
  return any;
}

// Whether a paired call is its partner's operation, with its plain arguments but for sizes.
bool Exposure::DiffersBySizes(CallId call) {
  return !r_.OtherApi(call) && (!r_.OtherScalars(call) || PassesOtherSizes(call));
}

// A call that takes, at a port, another value than its partner: `instead`, with other rows. What
// only the golden makes of that is missing.
Candidate Exposure::TakesAfterRows(CallId call, ValueId value, const Port& port,
                                   ValueId instead) const {
  const ValueId w = r_.AtPartner(port);
  const CallId maker = r_.g.values[w].maker;
  if (maker != kNoId && r_.partner[maker] == kNoId) {
    if (const auto missing = Missing({w}, call, instead)) return *missing;
  }
  Candidate found = Named(call, value, Cause::kAnotherInput, true);
  found.another = port.value;
  return found;
}

void Exposure::PreferAfterRows() {
  if (candidates.empty() || modules_only_ || r_.of_two_frameworks || OtherSizes().empty()) return;
  const Candidate& first = candidates.front();
  if ((first.call == kNoId && first.golden == kNoId) ||
      (first.cause == Cause::kMadeDifferently && !DiffersBySizes(first.call)))
    return;
  RowsBeside rows(r_, [this](CallId call) { return DiffersBySizes(call); });
  using Given = RowsBeside::Given;
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    if (r_.t.calls[id].kind != CallKind::kOperation || r_.pair[id] == kNoId) continue;
    const Port* another = nullptr;
    const Given given = rows.GivenTo(id, &another);
    if (given == Given::kSame || given == Given::kOpen) continue;
    const bool argued = !DiffersBySizes(id);
    if (!argued && given == Given::kWithRows) {
      rows.Follow(id);
      continue;
    }
    const ValueId exposed = ExposedOf(id);
    if (exposed == kNoId) continue;
    if (first.order >= id || !rows.Meets(first)) return;
    const Candidate found =
        argued ? Named(id, exposed, Cause::kMadeDifferently, true)
               : TakesAfterRows(id, exposed, *another, rows.GoldenOf(another->value));
    std::erase_if(candidates, [&found](const Candidate& each) {
      return each.call == found.call && each.golden == found.golden;
    });
    candidates.insert(candidates.begin(), found);
    return;
  }
}

// A wrong result of a call from which a result of the step was made; kNoId.
ValueId Exposure::ExposedOf(CallId call) const {
  for (const Port& made : r_.t.Makes(call)) {
    if (!r_.IsRight(made.value) && exposed_.Has(made.value)) return made.value;
  }
  return kNoId;
}

}  // namespace msprobe::compare::relations
