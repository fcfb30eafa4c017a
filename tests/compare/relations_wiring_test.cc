// Where the relations of two runs say that a difference begins, when values are right and stand at
// another place, or are gradients of weights that are all alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/compare/by_relations.h"

namespace msprobe::compare::relations {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::FirstOf;
using test::Map;
using test::Random;
using test::Recorded;
using test::Sum;
using test::Times;

// A ratio and the clipped ratio, of which max or min is taken: the gradient goes to one of them.
Dump Surrogates(bool max) {
  const std::string api = max ? "Torch.max.0." : "Torch.min.0.";
  const Elements ratio = Random(16, 1), clipped = Random(16, 2), gradient = Random(16, 3);
  Elements mine(16), other(16);
  for (size_t i = 0; i < 16; ++i) {
    const bool first = (ratio[i] > clipped[i]) == max;
    (first ? mine : other)[i] = gradient[i];
  }
  const auto inside = [](const Elements& x) {
    return Map(x, [](float v) { return v > 0 ? v : 0.25F * v; });
  };
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(Random(16, 4))).Out(Recorded(ratio));
  b.Call("Tensor.mul.0.forward").In(Recorded(ratio)).Out(Recorded(Times(ratio, 2)));
  b.Call("Tensor.mul.1.forward").In(Recorded(ratio)).Out(Recorded(Times(clipped, 2)));
  b.Call(api + "forward").In(Recorded(Times(ratio, 2))).In(Recorded(Times(clipped, 2)));
  b.Out(Recorded(Random(16, max ? 5 : 6)));
  b.Call(api + "backward").In(Recorded(gradient)).Out(Recorded(mine)).Out(Recorded(other));
  b.Call("Tensor.mul.0.backward").In(Recorded(mine)).Out(Recorded(Times(mine, 2)));
  b.Call("Tensor.mul.1.backward").In(Recorded(other)).Out(Recorded(Times(other, 2)));
  const Elements sum = Sum(Times(mine, 2), inside(Times(other, 2)));
  b.Call("Tensor.exp.0.backward").In(Recorded(sum)).Out(Recorded(Times(sum, 3)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Times(sum, 3)));
  return b.Take();
}

TEST(Wiring, TwoResultsOfOneCallAreExchanged) {
  const std::string first = FirstOf(Surrogates(true), Surrogates(false));
  EXPECT_TRUE(first.starts_with("Torch.max.0.")) << first;
}

// A model and the model that it is compared with, each of which is asked once.
Dump TwoModels(bool reference_first, bool turned_round) {
  const Elements x = Random(16, 1);
  Elements said[2];
  DumpBuilder b;
  for (int i = 0; i < 2; ++i) {
    const int model = reference_first ? 1 - i : i;
    const std::string number = std::to_string(i);
    const std::string module = model == 0 ? "Module.policy.Net" : "Module.reference.Net";
    const Elements y = Random(16, 2 + static_cast<unsigned>(model));
    said[model] = Map(y, [](float v) { return v - 1; });
    b.Call("Functional.linear." + number + ".forward").Parent(module + ".forward.0");
    b.In(Recorded(x)).In(Recorded(Random(16, 8 + static_cast<unsigned>(model)))).Out(Recorded(y));
    b.Call("Tensor.log_softmax." + number + ".forward").In(Recorded(y)).Out(Recorded(said[model]));
  }
  const Elements &left = said[turned_round ? 0 : 1], &right = said[turned_round ? 1 : 0];
  const Elements away = Sum(left, right, -1);
  b.Call("Tensor.__sub__.0.forward").In(Recorded(left)).In(Recorded(right)).Out(Recorded(away));
  b.Call("Tensor.exp.0.forward").In(Recorded(away));
  b.Out(Recorded(Map(away, [](float v) { return std::exp(v); })));
  return b.Take();
}

TEST(Wiring, TwoModelsMayBeAskedInAnotherOrder) {
  EXPECT_EQ(FirstOf(TwoModels(true, false), TwoModels(false, false)), "none");
  EXPECT_EQ(FirstOf(TwoModels(false, true), TwoModels(false, false)), "Tensor.__sub__.0.forward");
  EXPECT_EQ(FirstOf(TwoModels(true, true), TwoModels(false, false)), "Tensor.__sub__.0.forward");
}

// In the first update of a policy the old and the new probabilities are equal; only the new ones
// carry a gradient.
Dump Ratio(bool squared) {
  const Elements x = Random(16, 1), gradient = Random(16, 2);
  const Elements wrong = Times(gradient, squared ? 2 : 1);
  DumpBuilder b;
  b.Call("Tensor.sub.0.forward").In(Recorded(x)).In(Recorded(x));
  b.Out(Recorded(Random(16, 3)));
  b.Call("Tensor.mean.0.backward").In(Recorded(gradient)).Out(Recorded(wrong));
  b.Call("Tensor.sub.0.backward").In(Recorded(wrong)).Out(Recorded(Times(wrong, 3)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Times(wrong, 3)));
  Dump dump = b.Take();
  dump.leaves[1].requires_grad = "False";
  return dump;
}

TEST(Wiring, AValueThatIsTakenTwiceCarriesItsGradientOnce) {
  EXPECT_EQ(FirstOf(Ratio(true), Ratio(false)), "Tensor.mean.0.backward");
}

// Two norms whose weights begin as ones: each has its own gradient, of two micro-batches.
Dump Norms(float factor) {
  DumpBuilder b;
  const auto name = [](int norm, int batch, const char* direction) {
    return "Functional.layer_norm." + std::to_string(2 * batch + norm) + direction;
  };
  const auto gradient = [factor](int norm, int batch) {
    return Times(Random(16, static_cast<unsigned>(30 + 2 * batch + norm)),
                 norm == 1 && batch == 1 ? factor : 1);
  };
  for (int batch = 0; batch < 2; ++batch) {
    for (int norm = 0; norm < 2; ++norm) {
      b.Call(name(norm, batch, ".forward"));
      b.In(Recorded(Random(16, static_cast<unsigned>(10 + 2 * batch + norm))));
      b.In(Recorded(Elements(16, 1.0F)));
      b.Out(Recorded(Random(16, static_cast<unsigned>(20 + 2 * batch + norm))));
      b.Parent("Module.norms." + std::to_string(norm) + ".LayerNorm.forward." +
               std::to_string(batch));
    }
    for (int norm = 1; norm >= 0; --norm) {
      b.Call(name(norm, batch, ".backward"));
      b.In(Recorded(Random(16, static_cast<unsigned>(40 + 2 * batch + norm))));
      b.Out(Recorded(Random(16, static_cast<unsigned>(50 + 2 * batch + norm))));
      b.Out(Recorded(gradient(norm, batch)));
    }
  }
  b.Call("Optimizer.SGD.step.0.forward");
  for (int norm = 0; norm < 2; ++norm) {
    const std::string parameter = "norms." + std::to_string(norm) + ".weight";
    b.Kwarg("gradients." + parameter, Recorded(Sum(gradient(norm, 0), gradient(norm, 1))));
    b.Kwarg("weights." + parameter, Recorded(Elements(16, 1.0F)));
  }
  return b.Take();
}

TEST(Parts, WeightsThatAreAllOnesHaveGradientsOfTheirOwn) {
  EXPECT_EQ(FirstOf(Norms(2), Norms(1)), "Functional.layer_norm.3.backward");
}

// A pipeline stage: each micro-batch goes forward, then back; `order` says which input each call
// takes.
Dump Stage(const std::vector<unsigned>& order, float factor) {
  DumpBuilder b;
  const auto name = [](size_t call, const char* direction) {
    return "Functional.linear." + std::to_string(call) + direction;
  };
  Elements sum(16, 0.0F);
  for (size_t call = 0; call < order.size(); ++call) {
    b.Call("Torch.receive." + std::to_string(call) + ".forward");
    b.Out(Recorded(Random(16, static_cast<unsigned>(10 + call))));
    b.Call(name(call, ".forward"));
    b.In(Recorded(Random(16, 10 + order[call]))).In(Recorded(Random(16, 1)));
    b.Out(Recorded(Random(16, 20 + order[call])));
  }
  for (size_t call = 0; call < order.size(); ++call) {
    const auto seed = static_cast<unsigned>(order[call] == call ? 40 + call : 60 + call);
    const Elements weight = Times(Random(16, seed), call == 1 ? factor : 1);
    b.Call(name(call, ".backward"));
    b.In(Recorded(Random(16, static_cast<unsigned>(30 + call))));
    b.Out(Recorded(Random(16, static_cast<unsigned>(50 + call)))).Out(Recorded(weight));
    sum = Sum(sum, weight);
  }
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(sum)).Kwarg("weights.w", Recorded(Random(16, 1)));
  return b.Take();
}

// All that goes forward is right, at another place; only the gradient of the weight is not.
TEST(Wiring, AStaleMicroBatchIsWhereTheGradientBeginsToDiffer) {
  EXPECT_EQ(FirstOf(Stage({0, 0, 2}, 1), Stage({0, 1, 2}, 1)), "Functional.linear.1.forward");
  EXPECT_EQ(FirstOf(Stage({0, 1, 2}, 2), Stage({0, 1, 2}, 1)), "Functional.linear.1.backward");
}

// A stage that sends a stale result on: another rank answers with another gradient.
Dump Sending(bool stale) {
  DumpBuilder b;
  for (unsigned call = 0; call < 2; ++call) {
    const unsigned taken = stale ? 0 : call;
    const std::string number = std::to_string(call);
    b.Call("Torch.receive." + number + ".forward").Out(Recorded(Random(16, 10 + call)));
    b.Call("Functional.linear." + number + ".forward");
    b.In(Recorded(Random(16, 10 + taken))).In(Recorded(Random(16, 1)));
    b.Out(Recorded(Random(16, 20 + taken)));
    b.Call("Distributed.send." + number + ".forward").In(Recorded(Random(16, 20 + taken)));
    b.Value("1", "int", "1");
  }
  const Elements answer = Random(16, stale ? 31 : 30);
  b.Call("Distributed.recv.0.forward").In(Recorded(Random(16, 2))).Value("1", "int", "1");
  b.Out(Recorded(answer));
  b.Call("Tensor.mul.0.forward").In(Recorded(answer)).Out(Recorded(Times(answer, 2)));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(Times(answer, 2))).Kwarg("weights.w", Recorded(Random(16, 1)));
  return b.Take();
}

TEST(Wiring, WhatWasSentIsNotExplainedByTheAnswer) {
  EXPECT_EQ(FirstOf(Sending(true), Sending(false)), "Functional.linear.1.forward");
}

// What a module without recorded calls makes is gathered from all ranks, and cut again: this rank's
// part is what it was before.
Dump Gathered(float factor) {
  const Elements x = Times(Random(16, 1), factor), norm = Times(Random(16, 2), factor);
  const Elements other = Random(16, 3), loss = Times(Random(16, 4), factor);
  Elements whole = norm;
  whole.insert(whole.end(), other.begin(), other.end());
  DumpBuilder b;
  b.Call("Tensor.mul.0.forward").In(Recorded(Random(16, 1))).Out(Recorded(x));
  b.Call("Module.norm.RMSNorm.forward.0").In(Recorded(x)).Out(Recorded(norm));
  b.Call("Distributed.functional_all_gather_into_tensor.0.forward").In(Recorded(norm));
  b.Out(Recorded(whole));
  b.Call("Torch.chunk.0.forward").In(Recorded(whole)).Out(Recorded(norm)).Out(Recorded(other));
  b.Call("Torch.cat.0.forward").In(Recorded(norm)).In(Recorded(other)).Out(Recorded(loss));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(loss));
  return b.Take();
}

TEST(Wiring, WhatIsCutAgainWasMadeBefore) {
  EXPECT_EQ(FirstOf(Gathered(2), Gathered(1)), "Tensor.mul.0.forward");
}

// Two passes through one weight; in the golden no gradient flows through the first one.
Dump Recycled(bool flows) {
  const Elements x = Random(16, 1), weight = Random(16, 2), gradient = Random(16, 3),
                 more = Random(16, 4);
  DumpBuilder b;
  const auto forward = [&](const std::string& name, const Elements& in, unsigned seed, bool first,
                           int line) {
    b.Call(name + ".forward").In(Recorded(in));
    b.last().requires_grad = flows && name != "Functional.linear.0" ? "True" : "False";
    if (name.starts_with("Functional.linear")) {
      b.In(Recorded(weight));
      b.last().requires_grad = "True";
    }
    b.Out(Recorded(Random(16, seed)));
    b.last().requires_grad = flows || !first ? "True" : "False";
    b.At("model.py", line, "return " + name);
    b.dump().stacks.back().push_back(b.dump().arena.emplace_back(
        std::string("File train.py, line ") + (first ? "7" : "8") + ", in step, \n " +
        (first ? "before = model(x)" : "loss = model(before)")));
  };
  forward("Functional.linear.0", x, 10, true, 1);
  forward("Torch.tanh.0", Random(16, 10), 11, true, 2);
  forward("Torch.cos.0", Random(16, 11), 12, true, 3);
  forward("Functional.linear.1", Random(16, 12), 13, false, 1);
  b.Call("Functional.linear.1.backward").In(Recorded(Random(16, 14)));
  flows ? b.Out(Recorded(Random(16, 15))) : b.Null(Slot::kOutput);
  b.Out(Recorded(gradient));
  if (flows) {
    b.Call("Torch.cos.0.backward").In(Recorded(Random(16, 15))).Out(Recorded(Random(16, 16)));
    b.Call("Torch.tanh.0.backward").In(Recorded(Random(16, 16))).Out(Recorded(Random(16, 17)));
    b.Call("Functional.linear.0.backward").In(Recorded(Random(16, 17)));
    b.Out(Recorded(Random(16, 18))).Out(Recorded(more));
  }
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(flows ? Sum(gradient, more) : gradient));
  b.Kwarg("weights.w", Recorded(weight));
  return b.Take();
}

TEST(Wiring, SayTheLineAroundWhichNoGradIs) {
  for (const bool flows : {true, false}) {
    const Comparison c = test::Compared(Recycled(flows), Recycled(!flows));
    EXPECT_EQ(test::First(c), "Torch.tanh.0.forward");
    EXPECT_EQ(c.first.source_line, "model.py:2 in forward: return Torch.tanh.0");
    EXPECT_EQ(c.first.caller_line, "train.py:7 in step: before = model(x)");
  }
}

// Halves of a mask, which code without records takes apart: what is not known has no loss.
// `all_known`: all is said to be.
Dump MaskedLosses(bool all_known) {
  const Elements ones(8, 1.0F), x = Random(8, 1), y = Random(8, 2), gradient = Random(8, 3);
  Elements known = ones, masked = y, back = gradient;
  for (size_t i = 0; i < known.size(); i += 3) {
    if (all_known) break;
    known[i] = masked[i] = back[i] = 0;
  }
  Elements both = ones;
  both.insert(both.end(), known.begin(), known.end());
  DumpBuilder b;
  b.Call("Torch.stack.0.forward").Out(Recorded(both));
  b.Call("Tensor.mul.0.forward").In(Recorded(ones)).In(Recorded(x)).Out(Recorded(x));
  b.Call("Tensor.mul.1.forward").In(Recorded(known)).In(Recorded(y)).Out(Recorded(masked));
  b.Call("Tensor.mul.1.backward").In(Recorded(gradient)).Null(Slot::kOutput).Out(Recorded(back));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(back));
  return b.Take();
}

TEST(Wiring, AConstantInPlaceOfAMaskIsWhereAGradientBeginsToDiffer) {
  EXPECT_EQ(FirstOf(MaskedLosses(true), MaskedLosses(false)), "Torch.stack.0.forward");
}

// A model, and the same model as a reference: without what the model adds to its layer.
Dump Referred(bool adds) {
  const Elements x = Random(16, 1), base = Random(16, 2), added = Random(16, 3);
  const Elements adapted = Sum(base, added), said = Random(16, 4);
  const Elements referred = adds ? said : Random(16, 5);
  DumpBuilder b;
  for (int n = 0; n < 2; ++n) {
    const std::string number = std::to_string(n) + ".forward";
    b.Call("Functional.linear." + number).In(Recorded(x)).Out(Recorded(base));
    const bool whole = n == 0 || adds;
    if (whole) {
      b.Call("Tensor.__add__." + number).In(Recorded(base)).In(Recorded(added));
      b.Out(Recorded(adapted));
    }
    b.Call("Functional.layer_norm." + number).In(Recorded(whole ? adapted : base));
    b.Out(Recorded(n == 0 ? said : referred));
  }
  const Elements apart = Sum(Times(said, 2), referred, -1);
  b.Call("Tensor.sub.0.forward").In(Recorded(said)).In(Recorded(referred)).Out(Recorded(apart));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(apart));
  return b.Take();
}

TEST(Wiring, WhatOnlyOneRunMakesAgainIsNotThatOfAnotherPass) {
  EXPECT_EQ(FirstOf(Referred(true), Referred(false)), "Tensor.__add__.1.forward");
}

// Two passes through one weight; in the golden nothing goes back through the first one, although
// what the second one gives back is the same.
Dump GoesBack(bool flows) {
  const Elements weight = Random(16, 2), gradient = Random(16, 3), more = Random(16, 4);
  DumpBuilder b;
  const auto forward = [&](const std::string& name, unsigned in, unsigned out, bool carries) {
    b.Call(name + ".forward").In(Recorded(Random(16, in)));
    b.last().requires_grad = carries && in != 9 ? "True" : "False";
    if (name.starts_with("Functional.linear")) b.In(Recorded(weight));
    b.Out(Recorded(Random(16, out)));
    b.last().requires_grad = carries ? "True" : "False";
  };
  forward("Functional.linear.0", 9, 10, flows);
  forward("Torch.tanh.0", 10, 11, flows);
  forward("Functional.linear.1", 12, 13, true);
  b.Call("Functional.linear.1.backward").In(Recorded(Random(16, 14)));
  b.Out(Recorded(Random(16, 15))).Out(Recorded(gradient));
  if (flows) {
    b.Call("Torch.tanh.0.backward").In(Recorded(Random(16, 15))).Out(Recorded(Random(16, 17)));
    b.Call("Functional.linear.0.backward").In(Recorded(Random(16, 17))).Null(Slot::kOutput);
    b.Out(Recorded(more));
  }
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(flows ? Sum(gradient, more) : gradient));
  b.Kwarg("weights.w", Recorded(weight));
  return b.Take();
}

TEST(Wiring, ABackwardCallOfOneRunIsOfAValueThatCarriesAGradientThere) {
  EXPECT_EQ(FirstOf(GoesBack(true), GoesBack(false)), "Torch.tanh.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
