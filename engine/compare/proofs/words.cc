#include "engine/compare/proofs/words.h"

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <unordered_map>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/proofs.h"

namespace msprobe::compare {
namespace {

using relations::Premise;
using relations::Proof;
using relations::Proofs;
using relations::ProofStep;
using relations::Strength;
using relations::ValueProof;

// The constructor, as the end of a sentence.
Message Because(Proof proof) {
  switch (proof) {
    case Proof::kItsRow:
      return "nothing but its row was recorded, which is judged so"_t;
    case Proof::kSameNumbers:
      return "the golden has the same statistics there"_t;
    case Proof::kNearNumbers:
      return "the golden has nearly the same statistics there"_t;
    case Proof::kMask:
      return "it is the same mask in another coding"_t;
    case Proof::kPartOfBatch:
      return "together with other parts it is what the golden has"_t;
    case Proof::kPieceOfWeight:
      return "together with other pieces it is what the golden has"_t;
    case Proof::kReordered:
      return "the numbers are the same, and what it was made of stands in another order"_t;
    case Proof::kTransposed:
      return "the golden holds it transposed"_t;
    case Proof::kPadded:
      return "one of them is padded"_t;
    case Proof::kPairs:
      return "complex numbers stand for its pairs of real ones"_t;
    case Proof::kPolar:
      return "of one angle complex numbers are made here, and cosines and sines there"_t;
    case Proof::kIndex:
      return "what is taken with it has the rows in that order"_t;
    case Proof::kBeganSo:
      return "the step began with it"_t;
    case Proof::kLeftSo:
      return "the step before left it so"_t;
    case Proof::kMovedAlike:
      return "both runs moved it alike between the steps"_t;
    case Proof::kRepeats:
      return "repeats of the golden are as far from it"_t;
    default:
      return "they stand at the same place"_t;
  }
}

class Words {
 public:
  explicit Words(const Comparison& c) : c_(c), proofs_(*c.decided->proofs) {}

  std::string NameOf(int32_t value) const {
    const int32_t leaf = proofs_.values[value].target_leaf;
    return leaf < 0 ? "" : std::string(c_.target.leaves[leaf].name);
  }

  Message SentenceOf(int32_t value) const {
    const ValueProof& proof = proofs_.values[value];
    const ProofStep& step = proofs_.steps[proof.step];
    const std::string target = NameOf(value);
    const int32_t leaf = step.golden < 0 ? -1 : proofs_.golden_leaf[step.golden];
    const std::string name = leaf < 0 ? "" : std::string(c_.golden.leaves[leaf].name);
    const Message golden = name == target ? "the golden's"_t : Message(name);
    const Message because = Because(step.proof);
    if (step.unknown) {
      return "{}: unknown whether it is {}: off by {:.2g}, and rounding explains {:.2g}, too much "
             "to "
             "judge"_t(target, golden, step.error, step.bound);
    }
    switch (step.strength) {
      case Strength::kEqual:
        if (step.proof == Proof::kConstant || step.proof == Proof::kNotRecorded)
          return "{} is a constant, or has no numbers: nothing says that it is another one"_t(
              target);
        return "{} is {}, bit for bit"_t(target, golden);
      case Strength::kNear:
        if (golden.empty())
          return "{} is off by {:.2g} where rounding explains {:.2g}: {}"_t(target, step.error,
                                                                            step.bound, because);
        return "{} is {}, off by {:.2g} where rounding explains {:.2g}: {}"_t(
            target, golden, step.error, step.bound, because);
      case Strength::kSame:
        return "{} has the elements of {} in another order: {}"_t(target, golden, because);
      default:
        break;
    }
    if (step.proof == Proof::kConstant)
      return "{} is another constant than the golden has at its place"_t(target);
    if (golden.empty()) return "{} is nothing that the golden has"_t(target);
    if (proof.factor != 0) return "{}: {:.4g} times {}"_t(target, proof.factor, golden);
    return "{} is not {}: off by {:.2g} where rounding explains {:.2g}"_t(target, golden,
                                                                          step.error, step.bound);
  }

  ProofChain ChainOf(const Record& record, size_t most, std::string_view name) const {
    struct ToldValue {
      int depth = 0;
      std::vector<int32_t> premises;
    };
    std::unordered_map<int32_t, ToldValue> told;
    std::vector<int32_t> roots, order;  // the nearest values first
    ProofChain chain{.holds = proofs_.refused.empty()};
    const auto reach = [&](int32_t value, int depth) {
      if (value < 0 || proofs_.values[value].step < 0 || told.count(value) > 0) return false;
      if (order.size() >= most) {
        chain.more = true;
        return false;
      }
      told[value].depth = depth;
      order.push_back(value);
      return true;
    };
    const auto tell_values = [&](const auto& asked) {
      for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
        const int32_t value = proofs_.of_leaf[i];
        if (!name.empty() && std::string(c_.target.leaves[i].name) != name) continue;
        if (value >= 0 && asked(value) && reach(value, 0)) roots.push_back(value);
      }
    };
    // An optimizer's call has thousands of values.
    if (record.leaf_count > most)
      tell_values([&](int32_t value) { return proofs_.values[value].exposed; });
    tell_values([](int32_t) { return true; });
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t value = order[i];
      const ProofStep& step = proofs_.steps[proofs_.values[value].step];
      if (step.strength == Strength::kEqual) continue;  // bits need no premises
      const int depth = told[value].depth + 1;
      for (const Premise& each : proofs_.PremisesOf(step)) {
        if (reach(each.value, depth)) told[value].premises.push_back(each.value);
      }
    }
    const std::function<void(int32_t)> tell = [&](int32_t value) {
      const ToldValue& each = told[value];
      const bool exposed = proofs_.values[value].exposed;
      chain.lines.push_back({.depth = each.depth, .text = SentenceOf(value), .exposed = exposed});
      chain.exposed |= exposed;
      for (const int32_t premise : each.premises) tell(premise);
    };
    for (const int32_t value : roots) tell(value);
    if (IsUnknown(record)) {
      chain.lines.push_back(
          {.text = "how {} treats rounding is a guess: no row of "
                   "operations.yaml or of --operations says it"_t(record.api.view())});
    }
    return chain;
  }

 private:
  bool IsUnknown(const Record& record) const {
    return !record.is_module && record.direction != Direction::kParameterGrad &&
           !record.api.view().starts_with("Optimizer.") &&
           !record.api.view().starts_with("Distributed.") &&
           OperationsOf(c_).Of(record.api).kind == OperationClass::kUnknown;
  }

  const Comparison& c_;
  const Proofs& proofs_;
};

}  // namespace

ProofChain ChainOf(const Comparison& c, int32_t pair, size_t most, std::string_view value) {
  if (c.pairs[pair].target < 0) return {.holds = c.decided->proofs->refused.empty()};
  return Words(c).ChainOf(c.target.records[c.pairs[pair].target], most, value);
}

Message RefusalOf(const Comparison& c) {
  const Proofs& proofs = *c.decided->proofs;
  if (proofs.refused.empty()) return {};
  const relations::RefusedStep& first = proofs.refused.front();
  const int32_t value = proofs.steps[first.step].value;
  const Message name = value < 0 ? "all gradients"_t : Words(c).NameOf(value);
  return "the proof of {} does not hold (kind {}): {}"_t(
      name, static_cast<int>(proofs.steps[first.step].proof), first.defect);
}

}  // namespace msprobe::compare
