// One run as a graph of calls and values.
//
// A value is a content that was observed: all tensors of a run with the same elements are one
// value. Its maker is the first call that returned it; an arrival has none: code that no call
// records made it, or the step began with it. A plain content (a constant, one round number, 0 1 2
// .. n - 1) does not tell one tensor from another: each time it is made it is a value of its own.
//
// A call is a recorded call, or a part of the entry of an optimizer: each parameter that a step, a
// clipping or an unscaling changes is a call of its own, since what it makes of one does not depend
// on the others; what joins them, the total norm, is a call that all of them take. Each element of
// what computes on lists of tensors is a call, too.
//
//   const Graph graph(comparison, Side::kTarget, content, &paths);
//   for (const Port& port : graph.Takes(0)) Look(graph.values[port.value]);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/values/lists.h"
#include "engine/compare/relations/values/moments.h"
#include "engine/compare/relations/values/sketch.h"

namespace msprobe::compare::relations {

using CallId = int32_t;
using ValueId = int32_t;
inline constexpr int32_t kNoId = -1;
inline constexpr int kMostScalings = 4;  // of a gradient on its way to an optimizer

enum class Side : uint8_t { kTarget, kGolden };

enum class CallKind : uint8_t {
  kOperation,       // the forward call of an API, a collective
  kModule,          // the forward call of a module
  kBackward,        // of an operation
  kModuleBackward,  // of a module
  kGradients,       // the gradients of a module's parameters, when they were complete
  kUpdate,          // what an optimizer's call does to one parameter
  kTotalNorm,       // what clipping makes of all gradients
};

// Whether a call takes what is recorded there, and does not make it.
inline bool GoesIn(Slot slot) {
  return slot == Slot::kInput || slot == Slot::kKwarg || slot == Slot::kParameter;
}

// A tensor that a call takes or makes.
struct Port {
  ValueId value = kNoId;
  int32_t leaf = kNoId;  // index into Dump::leaves
  int32_t place = 0;     // its number among the tensors of its slot; of a gradient: of what
  bool changed = false;  // made: left in memory that the call was given
  bool addend = false;   // taken: the bias of a sum of products
  std::optional<bool> requires_grad = std::nullopt;  // unset: the dump does not say
};
static_assert(sizeof(Port) == 16);

struct Call {
  CallKind kind = CallKind::kOperation;
  int32_t record = kNoId;   // index into Dump::records
  CallId parent = kNoId;    // the module call around it
  CallId forward = kNoId;   // of a backward call
  CallId backward = kNoId;  // of a forward call
  CallId again =
      kNoId;  // of a backward call: its forward call, computed again in the backward pass
  CallId begins = kNoId;  // the first call inside of it, or itself
  int32_t path = kNoId;   // of the innermost module around it, of a module its own; see Paths
  uint32_t first_take = 0, takes = 0, first_make = 0, makes = 0;
  std::string_view parameter;  // of an update
  int32_t element = kNoId;     // of lists, which it is of several calls of one record
  const OperationFacts* facts = nullptr;

  bool IsModule() const { return kind == CallKind::kModule || kind == CallKind::kModuleBackward; }
  bool IsBackward() const {
    return kind == CallKind::kBackward || kind == CallKind::kModuleBackward ||
           kind == CallKind::kGradients;
  }
  bool IsForward() const { return kind == CallKind::kOperation || kind == CallKind::kModule; }
  // What is recorded of parameters: their gradients, clipping, updates.
  bool IsOfParameters() const {
    return kind == CallKind::kGradients || kind == CallKind::kUpdate ||
           kind == CallKind::kTotalNorm;
  }
};

struct Taker {
  CallId call = kNoId;
  int32_t port = kNoId;  // index into Graph::taken
};

struct Value {
  Moments moments;
  ElementType dtype;
  Shape shape;
  int32_t content = kNoId;  // ContentIds; kNoId: nothing was recorded
  bool plain = false;
  bool has_digest = false;  // a fingerprint or checksum says its bits
  bool unwritten = false;   // memory that nobody had written: its elements are no result
  bool taken = false;       // by a call
  CallId maker = kNoId;
  int32_t port = kNoId;  // of its maker, index into Graph::made

  bool IsFloat() const { return roundoff() > 0; }
  bool IsComplex() const { return RoundingOf(dtype).kind == NumberKind::kComplex; }
  // Half the distance from 1 to the next number; 0: it does not round.
  double roundoff() const {
    const Rounding& r = RoundingOf(dtype);
    return r.kind == NumberKind::kFloat || r.kind == NumberKind::kComplex ? r.epsilon / 2 : 0;
  }
};
static_assert(sizeof(Value) <= 104);  // held by the million

// Numbers for the paths of modules, the same in both runs.
class Paths {
 public:
  int32_t Of(std::string_view path) {
    const auto [at, is_new] = numbers_.try_emplace(path, static_cast<int32_t>(names_.size()));
    if (is_new) names_.push_back(path);
    return at->second;
  }
  std::span<const std::string_view> names() const { return names_; }  // by their numbers

 private:
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, int32_t> numbers_;  // views into the dumps
};

// The values that a value was made of (Graph::InputsOf): a view of arrays of the graph.
class Inputs {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = ValueId;
    using difference_type = std::ptrdiff_t;
    using pointer = const ValueId*;
    using reference = const ValueId&;

    Iterator() = default;
    const ValueId& operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      Settle();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend class Inputs;
    explicit Iterator(const Inputs* of) : of_(of) { Enter(0); }
    void Enter(size_t piece) {
      piece_ = piece;
      at_ = piece < of_->count_ ? of_->pieces_[piece].data() : nullptr;
      if (at_ != nullptr) Settle();
    }
    void Settle() {  // at the end of a piece, or at what is left out
      const std::span<const ValueId> piece = of_->pieces_[piece_];
      while (at_ != piece.data() + piece.size() && *at_ == of_->without_) ++at_;
      if (at_ == piece.data() + piece.size()) Enter(piece_ + 1);
    }

    const Inputs* of_ = nullptr;
    size_t piece_ = 0;
    const ValueId* at_ = nullptr;  // null: the end
  };

  explicit Inputs(ValueId without) : without_(without) {}

  Iterator begin() const { return Iterator(this); }
  Iterator end() const { return {}; }
  bool empty() const { return begin() == end(); }
  size_t size() const { return static_cast<size_t>(std::distance(begin(), end())); }
  std::vector<ValueId> Copy() const { return {begin(), end()}; }

 private:
  friend class Graph;
  void Add(std::span<const ValueId> piece) {
    if (!piece.empty()) pieces_[count_++] = piece;
  }

  std::array<std::span<const ValueId>, 6> pieces_;  // see Graph::InputsOf
  size_t count_ = 0;
  ValueId without_;  // is left out: what a value was made of is never itself
};

class Graph {
 public:
  // Keeps a reference to the dump of the comparison.
  Graph(const Comparison& comparison, Side side, const ContentIds& content, Paths* paths);
  // Gives the paths of the calls, which have numbers of `own`, those of `shared`.
  void Renumber(const Paths& own, Paths* shared);

  const Dump& dump;
  std::vector<Call> calls;  // in the order of the records; an optimizer's entry is several
  std::vector<Value> values;
  std::vector<Port> taken, made;  // of the calls, grouped by call

  std::span<const Port> Takes(CallId call) const {
    return {taken.data() + calls[call].first_take, calls[call].takes};
  }
  std::span<const Port> Makes(CallId call) const {
    return {made.data() + calls[call].first_make, calls[call].makes};
  }
  // Whether a backward call was given no gradient: its result was changed in place, so that no call
  // of its own passes the gradient on.
  bool TakesNoGradient(CallId call) const {
    return calls[call].kind == CallKind::kBackward && calls[call].takes == 0;
  }
  std::span<const Taker> TakersOf(ValueId value) const { return uses_.Of(value); }
  // All calls that returned the value, in their order.
  std::span<const CallId> MakersOf(ValueId value) const { return makers_.Of(value); }
  std::span<const CallId> ChildrenOf(CallId module) const { return children_.Of(module); }
  // The gradients that backward calls gave for the uses of a forward value.
  std::span<const ValueId> GradientsOf(ValueId value) const { return gradients_.Of(value); }
  // Whether a backward call made it for its use of a weight: a sum over all rows of the batch.
  bool IsGradientOfWeight(ValueId value) const;
  // Whether it is one number that an operation made of many, or a multiple or a sum of such: a
  // loss, or a part of one.
  bool IsSum(ValueId value) const;
  // Whether all are such numbers, and operations take them alike: each is the part of a loss that
  // another micro-batch has, not one of its terms.
  bool AreSums(std::span<const ValueId> numbers) const;
  // The gradients that were added up to a value that no operation made; empty: it is no such sum.
  std::span<const ValueId> PartsOf(ValueId value) const { return parts_.Of(value); }
  // Whether a later pass, which differentiates the recorded one, made what a backward call returns:
  // it carries no gradient, and what arrived or another result does. What went in is not recorded.
  bool IsOfSecondPass(ValueId value) const;
  // Whether the recorded parts of a sum are all of it, as far as their means tell: a second
  // backward pass through a call is not recorded.
  bool AddsUp(ValueId value) const;
  // The size of the number by which code without records multiplied the sum of the parts, as
  // sketches show it: a mean of passes, an unscaling. 1: it is not known.
  double FactorOfParts(ValueId value) const;
  // What a call makes of the value that only multiplies it by a number: a mean of what several
  // passes added up, an unscaling; kNoId: there is none.
  ValueId ScaledTo(ValueId value) const;
  // The forward value whose gradient a backward call takes at a port; kNoId: not known.
  ValueId ForwardOf(CallId backward, const Port& port) const;

  // Of a value that no call made: one that was made before and has the same elements, which code
  // without records moved (x.T), or viewed as complex numbers or as their parts; kNoId: none.
  ValueId MovedFrom(ValueId value) const {
    const auto found = moved_from_.find(value);
    return found == moved_from_.end() ? kNoId : found->second;
  }
  // The values that a value was made of. `saved`: and, of a gradient, what the forward call of its
  // maker took and made. Of a module: and what the calls inside of it made. Valid as long as the
  // graph.
  Inputs InputsOf(ValueId value, bool saved) const;
  // No recorded call makes anything of what the last call returned.
  bool IsLeft(ValueId value) const;
  // No recorded operation takes what the last call returned: code without records may.
  bool IsLoose(ValueId value) const;
  // What is known of its elements; one for each length of rows in which it was seen.
  std::span<const RowSketch> SketchesOf(ValueId value) const { return sketches_.Of(value); }
  // Whether it is a parameter or buffer with which the step began.
  bool IsWeight(ValueId value) const { return weight_[value] != 0; }
  // The weights with which the step began, as weights.json names them.
  const std::vector<std::pair<ValueId, std::string>>& NamedWeights() const { return named_; }
  ValueId ValueOfLeaf(int32_t leaf) const { return value_of_leaf_[leaf]; }
  CallId CallOfLeaf(int32_t leaf) const { return call_of_leaf_[leaf]; }
  ValueId WithContent(int32_t content) const { return content >= 0 ? by_content_[content] : kNoId; }
  bool HasOperations() const { return has_operations_; }
  std::string_view ApiOf(CallId call) const { return dump.records[calls[call].record].api; }

 private:
  void AddRecord(int32_t record, Paths* paths);
  void AddOptimizer(int32_t record, Paths* paths);
  void AddElements(Call call);
  static bool OnlyLooksAt(const Call& call, int32_t place);
  void AddPorts(CallId call);
  void DropMemory(CallId call, size_t first_take, size_t first_make);
  void Take(CallId call, int32_t leaf, int32_t place);
  void Make(CallId call, int32_t leaf, int32_t place);
  ValueId Observe(int32_t leaf, CallId call, bool is_made);
  void Nest();
  void FindRecomputed();
  void Index();
  void IndexSketches();
  using Sums = std::unordered_map<ValueId, std::vector<ValueId>>;
  class SketchedSums;
  void CollectGradients();
  uint64_t ParameterKey(CallId call, const Port& port) const;
  std::vector<ValueId> PartsOfParameter(ValueId weight, int32_t path) const;
  Sums SumsOfParameters() const;
  std::vector<ValueId> PartsOfUpdated(ValueId value) const;
  std::vector<ValueId> PartsOfArrival(ValueId value) const;
  void AddUpGradients();
  void FindMoved();
  void FindViewed();
  void FindSlices();
  void NameWeights();
  size_t CountContents() const;

  const OperationTable& operations_;
  const ContentIds& content_;
  const bool is_target_;
  bool has_operations_ = false;
  std::vector<ValueId> by_content_;                  // of contents that are not plain
  std::unordered_map<uint64_t, ValueId> plain_now_;  // the latest value of a plain content
  std::vector<ValueId> value_of_leaf_;
  std::vector<CallId> call_of_leaf_;
  std::vector<char> unwritten_leaf_;
  std::vector<CallId> born_;  // of each value the first call that takes or makes it
  std::vector<char> weight_;
  std::vector<std::pair<ValueId, std::string>> named_;
  std::unordered_map<std::string_view, ValueId> weight_of_;  // by the name of the parameter
  std::unordered_map<std::string_view, CallId> by_name_;
  std::unordered_map<ValueId, ValueId> moved_from_, slice_of_;
  Lists<Taker> uses_;
  Lists<CallId> makers_, children_;
  std::vector<ValueId> taken_values_, made_values_;  // of the ports
  Lists<ValueId> inside_;                            // of a module what the calls inside of it made
  Lists<ValueId> gradients_, parts_;
  std::vector<std::pair<ValueId, RowSketch>> seen_;  // until they are in sketches_
  std::vector<Shape> sketched_;  // of each value, until then: of which shape the last one is
  Lists<RowSketch> sketches_;
};

}  // namespace msprobe::compare::relations
