// In which order the elements of a related value stand (relate.h).
#include <algorithm>

#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

// A function of each element, or of each row, leaves the rows where they are. That its result has
// them in another order shows that what it took was near in its order by chance.
bool MayMove(const Call& call) {
  if (call.kind != CallKind::kOperation && call.kind != CallKind::kBackward) return true;
  switch (call.facts->kind) {
    case OperationClass::kElementwise:
    case OperationClass::kScaling:
    case OperationClass::kSum:
    case OperationClass::kContraction:
    case OperationClass::kNormalisation:
    case OperationClass::kExponential:
      return false;
    default:
      return true;
  }
}

}  // namespace

// Whether only moments agree; or whether the step has put the rows into another order here. A batch
// that came in another order keeps it, and nothing of the target has the order of the golden.
bool Relations::IsDoubtful(ValueId v, const Relation& r) const {
  if (r.strength != Strength::kSame && r.strength != Strength::kNear) return false;
  if (r.proof == Proof::kPadded || r.proof == Proof::kPairs) return false;
  const Value& value = t.values[v];
  if (!r.proven && (r.strength == Strength::kNear || t.SketchesOf(v).empty())) return !Follows(v);
  if (r.strength == Strength::kNear) return false;
  // Of a vector no sketch tells whether its elements stand in another order.
  const auto sketches = t.SketchesOf(v);
  const bool vector = std::all_of(sketches.begin(), sketches.end(),
                                  [](const RowSketch& sketch) { return sketch.rows == 1; });
  if (!r.proven && !vector) return true;
  if (value.maker == kNoId) return r.golden != kNoId && taken_[r.golden] != 0;
  const Inputs inputs = t.InputsOf(v, false);
  const auto doubtful = [this](ValueId w) { return of(w).doubtful; };
  return std::any_of(inputs.begin(), inputs.end(), doubtful) ||
         (MayMove(t.calls[value.maker]) && IsOfRowsInOrder(v));
}

bool Relations::IsOfRowsInOrder(ValueId v) const {
  const Inputs inputs = t.InputsOf(v, /*saved=*/false);
  return std::all_of(inputs.begin(), inputs.end(), [this](ValueId w) {
    return part_[w] == 0 && (t.values[w].plain || of(w).strength >= Strength::kNear);
  });
}

// Whether a call that was made differently has put rows that stood in order into another one, or
// what the value was made of had been moved so.
bool Relations::IsMoved(ValueId v, const Relation& r) const {
  const CallId maker = t.values[v].maker;
  if (r.strength != Strength::kSame || !r.doubtful || !r.proven || maker == kNoId) return false;
  const Inputs inputs = t.InputsOf(v, /*saved=*/false);
  return std::any_of(inputs.begin(), inputs.end(), [this](ValueId w) { return of(w).moved; }) ||
         (MayMove(t.calls[maker]) && !Alike(maker) && IsOfRowsInOrder(v));
}

// The step has put the rows of an argument into another order, and the call leaves rows where they
// are: its result cannot have those of the golden where they stand there.
bool Relations::MustMove(ValueId v) const {
  const Value& value = t.values[v];
  if (value.maker == kNoId || !t.PartsOf(v).empty() || MayMove(t.calls[value.maker])) return false;
  if (t.calls[value.maker].facts->kind == OperationClass::kContraction) return false;  // of rows
  const Inputs inputs = t.InputsOf(v, /*saved=*/false);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId w) {
    return of(w).moved && t.values[w].shape.view() == value.shape.view();
  });
}

// An error of so many bounds is wrong; of moved rows any is.
double Relations::SurelyWrong(ValueId v) const { return MustMove(v) ? 0 : kSurely; }

// Columns that stand in another order, of which sketches of rows do not tell: the numbers are the
// same, and so are those of what it was made of, in another order.
bool Relations::IsReordered(ValueId v, ValueId w) const {
  const Value& value = t.values[v];
  if (!value.IsFloat() || !value.moments.known || !SameElements(value.moments, g.values[w].moments))
    return false;
  const auto reordered = [this](ValueId u) {
    return of(u).strength == Strength::kSame && !of(u).doubtful;
  };
  if (value.maker == kNoId) {
    const ValueId from = t.MovedFrom(v), there = g.MovedFrom(w);
    return from != kNoId && there != kNoId && IsKnown(from) && !of(from).doubtful &&
           Fits(from, there);
  }
  if (!Alike(value.maker) || !t.calls[value.maker].IsForward()) return false;
  const Inputs inputs = t.InputsOf(v, false);
  return std::any_of(inputs.begin(), inputs.end(), reordered) &&
         std::all_of(inputs.begin(), inputs.end(), [&](ValueId u) {
           return t.values[u].plain || (IsKnown(u) && !of(u).doubtful);
         });
}

// The same operation, called alike with related arguments, keeps the order of elements.
bool Relations::Follows(ValueId v) const {
  const Inputs inputs = t.InputsOf(v, false);
  for (const ValueId w : inputs) {
    if (of(w).strength < Strength::kNear || of(w).doubtful) return false;
  }
  if (!t.PartsOf(v).empty() || t.values[v].maker == kNoId) return !inputs.empty();
  return Alike(t.values[v].maker);
}

}  // namespace msprobe::compare::relations
