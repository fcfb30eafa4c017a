// A hint says what the target does otherwise, and only where the dumps show it.
#include "engine/compare/explain/fix_hint.h"

#include <gmock/gmock.h>

#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_json.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::kWrong;
using test::MustCompare;
using test::Value;
using ::testing::HasSubstr;
using ::testing::Not;
using HintKind = FixHint::Kind;

FixHint HintOf(const Comparison& c) { return FixHintOf(c, c.first); }

// linear, `middle`, relu: what is between the two decides whether relu's numbers are wrong.
using Middle = void (*)(DumpBuilder*);
Dump Program(Middle middle, double error) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  middle(&b);
  b.Call("Functional.relu.0.forward").In(Value(2, error)).Out(Value(3, error));
  return b.Take();
}
Comparison OfMiddles(Middle target, Middle golden) {
  return MustCompare(Program(target, kWrong), Program(golden, 0));
}

TEST(FixHintTest, AnArgument) {
  const Comparison c = OfMiddles(
      [](DumpBuilder* b) {
        b->Call("Functional.dropout.0.forward").In(Value(1)).Value("p", "float", "0.5");
        b->Out(Value(2, kWrong));
      },
      [](DumpBuilder* b) {
        b->Call("Functional.dropout.0.forward").In(Value(1)).Value("p", "float", "0.1");
        b->Out(Value(2));
      });
  const FixHint hint = HintOf(c);
  ASSERT_EQ(hint.kind, HintKind::kArgument);
  EXPECT_EQ(hint.Text(), "set p to \"0.1\", as in the golden (the target has \"0.5\")");
  EXPECT_THAT(JsonReport(c), HasSubstr("\"kind\": \"argument\""));
  EXPECT_THAT(JsonReport(c), HasSubstr("\"what\": \"p\""));
}

TEST(FixHintTest, AnArgumentThatOneSidePasses) {
  const Middle with = [](DumpBuilder* b) {
    b->Call("Functional.gelu.0.forward").In(Value(1)).Value("approximate", "str", "tanh");
    b->Out(Value(2, kWrong));
  };
  const Middle without = [](DumpBuilder* b) {
    b->Call("Functional.gelu.0.forward").In(Value(1)).Out(Value(2));
  };
  EXPECT_EQ(HintOf(OfMiddles(with, without)).Text(),
            "leave out approximate, as the golden does (the target passes \"tanh\")");
  EXPECT_EQ(HintOf(MustCompare(Program(without, 0), Program(with, kWrong))).Text(),
            "pass \"tanh\" for approximate, as the golden does");
}

TEST(FixHintTest, ACallThatOneSideMakes) {
  const auto program = [](double error, bool mul) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
    if (mul) b.Call("Tensor.mul.0.forward").In(Value(1)).Out(Value(2, error));
    b.Call("Functional.relu.0.forward").In(mul ? Value(2, error) : Value(1)).Out(Value(3, error));
    return b.Take();
  };
  const Comparison extra = MustCompare(program(kWrong, true), program(0, false));
  EXPECT_EQ(First(extra), "Tensor.mul.0.forward");
  EXPECT_EQ(HintOf(extra).Text(), "remove Tensor.mul.0.forward, which the golden does not call");
  const Comparison missing = MustCompare(program(0, false), program(kWrong, true));
  EXPECT_EQ(HintOf(missing).Text(), "add Tensor.mul.0.forward, which the golden calls here");
  EXPECT_THAT(JsonReport(missing), HasSubstr("\"what\": \"call\",\n"));
}

// Where each side makes calls of its own, no single call is missing.
TEST(FixHintTest, NoneWhereTheGoldenMakesOtherCallsInItsPlace) {
  const Comparison c = OfMiddles(
      [](DumpBuilder* b) {
        b->Call("Functional.rms_norm.0.forward").In(Value(1)).Out(Value(2, kWrong));
      },
      [](DumpBuilder* b) {
        b->Call("Tensor.pow.0.forward").In(Value(1)).Out(Value(11));
        b->Call("Tensor.mean.0.forward").In(Value(11)).Out(Value(12));
        b->Call("Torch.rsqrt.0.forward").In(Value(12)).Out(Value(13));
        b->Call("Tensor.mul.0.forward").In(Value(1)).In(Value(13)).Out(Value(2));
      });
  ASSERT_GE(c.first.pair, 0);
  EXPECT_EQ(HintOf(c).kind, HintKind::kNone) << HintOf(c).Text().English();
  EXPECT_THAT(JsonReport(c), HasSubstr("\"fix_hint\": null"));
}

TEST(FixHintTest, NoneWhereOnlyNumbersDiffer) {
  const auto call = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1, error));
    return b.Take();
  };
  EXPECT_EQ(HintOf(MustCompare(call(kWrong), call(0))).kind, HintKind::kNone);
  EXPECT_EQ(HintOf(MustCompare(call(0), call(0))).kind, HintKind::kNone);
}

TEST(FixHintTest, AModuleThatIsInTrainModeOnOneSide) {
  const auto call = [](double error, Record::Mode mode) {
    DumpBuilder b;
    b.Call("Module.drop.Dropout.forward.0").In(Value(0)).Out(Value(1, error));
    b.dump().records.back().training = mode;
    return b.Take();
  };
  const Comparison c =
      MustCompare(call(kWrong, Record::Mode::kTrain), call(0, Record::Mode::kEval));
  EXPECT_EQ(HintOf(c).kind, HintKind::kMode);
  EXPECT_EQ(HintOf(c).Text(), "put drop (Dropout) in eval mode, as in the golden");
}

TEST(FixHintTest, AnotherFunction) {
  const Comparison c = OfMiddles(
      [](DumpBuilder* b) {
        b->Call("Functional.silu.0.forward").In(Value(1)).Out(Value(2, kWrong));
        b->At("net.py", 8, "y = act(x)");
      },
      [](DumpBuilder* b) {
        b->Call("Functional.gelu.0.forward").In(Value(1)).Out(Value(2));
        b->At("net.py", 8, "y = act(x)");
      });
  ASSERT_TRUE(c.pairs[c.first.pair].matched());
  EXPECT_EQ(
      HintOf(c).Text(),
      "call Functional.gelu.0.forward in place of Functional.silu.0.forward, as the golden does");
}

// A dtype is the reason only where no tensor before it has another one.
TEST(FixHintTest, ADTypeThatIsOtherHereForTheFirstTime) {
  const auto dump = [](bool target, bool earlier) {
    const auto dtype = [&](bool here) {
      return target && here ? "torch.float16" : "torch.float32";
    };
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1).DType(dtype(earlier)));
    b.Call("Functional.softmax.0.forward")
        .In(Value(1).DType(dtype(earlier)))
        .Out(Value(2, target ? kWrong : 0).DType(dtype(true)));
    return b.Take();
  };
  const Comparison here = MustCompare(dump(true, false), dump(false, false));
  EXPECT_EQ(First(here), "Functional.softmax.0.forward");
  EXPECT_EQ(HintOf(here).kind, HintKind::kDType);
  EXPECT_EQ(HintOf(here).Text(),
            "make output.0 a tensor of torch.float32, as in the golden (the target has "
            "torch.float16)");
  EXPECT_EQ(here.first.advice,
            "output.0 is torch.float16 in the target, torch.float32 in the golden: compute in the "
            "same dtype");
  const Comparison before = MustCompare(dump(true, true), dump(false, true));
  EXPECT_EQ(First(before), "Functional.softmax.0.forward");
  EXPECT_EQ(HintOf(before).kind, HintKind::kNone);
  EXPECT_THAT(before.first.advice.English(), Not(HasSubstr("dtype")));
}

TEST(FixHintTest, TheFirstOfSeveralRanksIsNamedByTheKeysOfTheDocument) {
  const auto dump = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1, error));
    return b.Take();
  };
  const Comparison right = MustCompare(dump(0), dump(0)),
                   wrong = MustCompare(dump(kWrong), dump(0));
  const std::vector<RankResult> results{SummarizeRank(right, 0, 0), SummarizeRank(right, 0, 1),
                                        SummarizeRank(right, 2, 0), SummarizeRank(wrong, 2, 1)};
  EXPECT_EQ(FirstPlaceJson(results),
            "{\"step\": \"2\", \"rank\": \"1\", \"ranks\": [\"1\"], \"exchange\": false, "
            "\"name\": \"Functional.linear.0.forward\"}");
  const std::vector<RankResult> both{SummarizeRank(wrong, -1, 0), SummarizeRank(wrong, -1, 1)};
  EXPECT_THAT(FirstPlaceJson(both), HasSubstr("\"step\": null, \"rank\": \"0\", \"ranks\": [\"0\", "
                                              "\"1\"]"));
  EXPECT_EQ(FirstPlaceJson(std::span(results).first(3)), "null");
}

}  // namespace
}  // namespace msprobe::compare
