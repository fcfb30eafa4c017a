// The checker of proofs: what it refuses, and the words of a proof.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>

#include "engine/compare/proofs/check.h"
#include "engine/compare/proofs/words.h"
#include "tests/compare/dump_builder.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::test {
namespace {

using relations::Carried;
using relations::Premise;
using relations::Proof;
using relations::Proofs;
using relations::ProofStep;
using relations::Strength;
using ::testing::HasSubstr;

float OneRounding(float x) { return std::nextafter(x, 10.0F); }  // one rounding of float32

// Three calls; the first one rounds.
Dump RoundedRun(bool rounded) {
  const Elements x = Random(64, 1);
  Elements y = Map(x, [](float v) { return 2 * v; });
  if (rounded) y = Map(y, OneRounding);
  const Elements h = Map(y, [](float v) { return std::tanh(v); });
  DumpBuilder b;
  b.Call("Tensor.mul.0.forward").In(Recorded(x)).Out(Recorded(y));
  b.Call("Torch.tanh.0.forward").In(Recorded(y)).Out(Recorded(h));
  b.Call("Torch.mul.1.forward").In(Recorded(h)).Out(Recorded(Map(h, [](float v) {
    return 3 * v;
  })));
  return b.Take();
}

// A comparison whose proofs a test may break.
struct Proven {
  Comparison c = MustCompare(RoundedRun(true), RoundedRun(false), {.keep_proofs = true});
  std::shared_ptr<const ContentIds> content = ContentOf(c);
  relations::Paths paths;
  const relations::Graph target{c, relations::Side::kTarget, *content, &paths},
      golden{c, relations::Side::kGolden, *content, &paths};
  Proofs proofs = *c.decided->proofs;

  ProofStep& StepOf(int leaf) { return proofs.steps[proofs.values[proofs.of_leaf[leaf]].step]; }
  std::span<Premise> PremisesOf(const ProofStep& step) {
    return {proofs.premises.data() + step.first_premise, step.premises};
  }
  // Why the first step is refused that does not hold.
  std::string Refused() {
    CheckProofs(c, target, golden, Carried(), &proofs);
    return proofs.refused.empty() ? "" : proofs.refused.front().defect;
  }
};

constexpr int kData = 0, kProduct = 1, kTanh = 3;  // leaves

TEST(Checker, HoldsWhatIsProven) {
  Proven p;
  EXPECT_EQ(p.StepOf(kData).strength, Strength::kEqual);
  EXPECT_EQ(p.StepOf(kProduct).strength, Strength::kNear);
  EXPECT_EQ(p.Refused(), "");
}

TEST(Checker, RefusesAnErrorThatWasNotMeasured) {
  Proven p;
  p.StepOf(kProduct).error /= 2;
  EXPECT_THAT(p.Refused(), HasSubstr("it is off by"));
}

TEST(Checker, RefusesAnErrorBeyondItsBound) {
  Proven p;
  p.StepOf(kProduct).bound = p.StepOf(kProduct).error / 2;
  EXPECT_EQ(p.Refused(), "it is off by more than its bound");
}

TEST(Checker, RefusesABoundThatRoundingDoesNotExplain) {
  Proven p;
  p.StepOf(kProduct).bound *= 100;
  EXPECT_THAT(p.Refused(), HasSubstr("rounding explains"));
}

TEST(Checker, RefusesACircle) {
  Proven p;
  ProofStep& step = p.StepOf(kTanh);
  p.PremisesOf(step)[0].step = static_cast<int32_t>(&step - p.proofs.steps.data());
  EXPECT_EQ(p.Refused(), "a premise is not known before it");
}

TEST(Checker, RefusesAPremiseOfAnotherValue) {
  Proven p;
  p.PremisesOf(p.StepOf(kTanh))[0].step = p.proofs.values[p.proofs.of_leaf[kData]].step;
  EXPECT_EQ(p.Refused(), "a premise is of another value");
}

TEST(Checker, RefusesAProofThatForgetsAnArgument) {
  Proven p;
  p.StepOf(kTanh).premises = 0;
  EXPECT_EQ(p.Refused(), "a value that it was made of is no premise");
}

TEST(Checker, RefusesNumbersThatAPremiseDoesNotHave) {
  const std::pair<std::function<void(Premise*)>, const char*> changes[] = {
      {[](Premise* each) { each->error *= 100; }, "a larger error than it has"},
      {[](Premise* each) { each->terms = 1e6; }, "a sum of larger terms than it can be"},
      {[](Premise* each) { each->coarse = 0.01; }, "coarser than it is"},
  };
  for (const auto& [change, why] : changes) {
    Proven p;
    change(&p.PremisesOf(p.StepOf(kTanh))[0]);
    EXPECT_THAT(p.Refused(), HasSubstr(why));
  }
}

TEST(Checker, RefusesABoundThatHidesTheErrorOfAPremise) {
  Proven p;
  p.PremisesOf(p.StepOf(kTanh))[0].wrong = 1e-9;
  EXPECT_EQ(p.Refused(), "its bound hides the error of what it is made of");
}

// Every kind of proof, said of a value that is near its partner and nothing else.
TEST(Checker, RefusesAnotherKindOfProof) {
  const std::pair<Proof, const char*> kinds[] = {
      {Proof::kNotFound, "nothing proves it"},
      {Proof::kConstant, "it is no constant"},
      {Proof::kItsRow, "its moments tell more than its row"},
      {Proof::kMovedAlike, "nothing is known of how it moved"},
      {Proof::kBeganSo, "it is no weight"},
      {Proof::kMask, "the masks are others"},
      {Proof::kPartOfBatch, "nothing says what it is a part of"},
      {Proof::kPieceOfWeight, "nothing says what it is a part of"},
      {Proof::kReordered, "they are other elements"},
      {Proof::kTransposed, "the shapes are not transposed"},
      {Proof::kIndex, "it is no index of that kind"},
      {Proof::kLeftSo, "the step before did not leave it"},
      {Proof::kRepeats, "no repeat of the golden is as far from it"},
  };
  for (const auto& [kind, why] : kinds) {
    Proven p;
    p.StepOf(kProduct).proof = kind;
    EXPECT_EQ(p.Refused(), why) << static_cast<int>(kind);
  }
  Proven p;
  p.StepOf(kProduct).proof = Proof::kSameContent;
  p.StepOf(kProduct).strength = Strength::kEqual;
  EXPECT_EQ(p.Refused(), "the contents are others");
}

TEST(Checker, RefusesAPartnerElsewhere) {
  Proven p;
  p.StepOf(kProduct).golden = p.StepOf(kTanh).golden;
  EXPECT_EQ(p.Refused(), "they stand at no place together");
}

TEST(Checker, RefusesEqualNumbersForEqualBits) {
  Proven p;
  p.StepOf(kProduct).strength = Strength::kEqual;
  EXPECT_EQ(p.Refused(), "numbers do not tell that bits are equal");
}

TEST(ProofChain, GoesBackToEqualBits) {
  const Proven p;
  const ProofChain chain = ChainOf(p.c, 2, 100);
  ASSERT_EQ(chain.lines.size(), 4U);
  EXPECT_EQ(chain.lines[2].depth, 2);
  EXPECT_EQ(chain.lines[2].text, "Tensor.mul.0.forward.input.0 is the golden's, bit for bit");
  EXPECT_FALSE(chain.more);
}

TEST(ProofChain, SaysThatItIsCut) {
  const Proven p;
  const ProofChain chain = ChainOf(p.c, 2, 3);
  EXPECT_EQ(chain.lines.size(), 3U);
  EXPECT_TRUE(chain.more);
}

TEST(ProofChain, TellsOfOneValueAlone) {
  const Proven p;
  const ProofChain chain = ChainOf(p.c, 1, 100, "Torch.tanh.0.forward.output.0");
  ASSERT_FALSE(chain.lines.empty());
  EXPECT_THAT(chain.lines[0].text.English(), HasSubstr("Torch.tanh.0.forward.output.0 is"));
  EXPECT_EQ(ChainOf(p.c, 1, 100, "Torch.tanh.0.forward.output.1").lines.size(), 0U);
}

TEST(ProofChain, BeginsWithWhatMakesAResultWrong) {
  Proven p;
  p.proofs.values[p.proofs.of_leaf[kTanh]].exposed = true;  // its argument comes before it
  p.c.decided->proofs = std::make_shared<const Proofs>(p.proofs);
  const ProofChain chain = ChainOf(p.c, 1, 1);
  ASSERT_EQ(chain.lines.size(), 1U);
  EXPECT_TRUE(chain.lines[0].exposed);
}

TEST(ProofChain, SaysWhichProofDoesNotHold) {
  Proven p;
  EXPECT_EQ(RefusalOf(p.c), "");
  p.StepOf(kProduct).error = 0;
  ASSERT_NE(p.Refused(), "");
  p.c.decided->proofs = std::make_shared<const Proofs>(p.proofs);
  EXPECT_THAT(RefusalOf(p.c).English(), HasSubstr("Tensor.mul.0.forward.output.0 does not hold"));
}

}  // namespace
}  // namespace msprobe::compare::test
