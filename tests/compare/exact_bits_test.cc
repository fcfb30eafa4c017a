#include "engine/compare/measure/exact_bits.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/first_bits.h"
#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;
using Environment = std::vector<std::pair<std::string, std::string>>;

const Environment kHere = {{"torch", "2.13.0"},
                           {"device", "cpu"},
                           {"threads", "2"},
                           {"deterministic", "false"},
                           {"seed", "1"}};

Environment EnvironmentWith(const std::string& key, const std::string& value) {
  Environment changed = kHere;
  for (auto& [name, old] : changed) old = name == key ? value : old;
  return changed;
}

// Two calls; the first result is `error` apart, and the second has it as its input.
Dump RunOn(double error, const Environment& environment = kHere, const char* strides = "") {
  const auto bits = [&](int step, double by) {
    return Value(step, by).Print(std::to_string(step) + (by == 0 ? "" : "'"));
  };
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(bits(1, 0)).Out(bits(2, error));
  b.At("train.py", 7, "y = linear(x)");
  if (*strides != 0) b.dump().strides.push_back({0, strides});
  b.Call("Functional.relu.0.forward").In(bits(2, error)).Out(bits(3, error));
  b.dump().provenance = environment;
  b.dump().dialect = Dialect::kMsprobe27;
  return b.Take();
}

TEST(ExactBitsTest, OneEnvironmentPromisesTheSameBits) {
  const Comparison c = MustCompare(RunOn(kRounding), RunOn(0));
  EXPECT_THAT(c.exact.English(), HasSubstr("both runs have torch 2.13.0, cpu, 2 threads"));
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kDiffers);
  EXPECT_EQ(First(c), "Functional.linear.0.forward");
  EXPECT_EQ(c.classes[1], CallClass::kInherited);
  EXPECT_GT(c.first.confidence, 0.9);
  EXPECT_EQ(Summarize(MustCompare(RunOn(0), RunOn(0))).verdict, RunVerdict::kEqual);
  // Another seed is no other environment.
  EXPECT_NE(MustCompare(RunOn(0), RunOn(0, EnvironmentWith("seed", "2"))).exact, "");
}

TEST(ExactBitsTest, RoundingIsAllowedWhereSomethingElseDiffers) {
  for (const Environment& other :
       {EnvironmentWith("threads", "1"), EnvironmentWith("torch", "2.12.0"), Environment()}) {
    const Comparison c = MustCompare(RunOn(kRounding), RunOn(0, other));
    EXPECT_EQ(c.exact, "");
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
  }
  EXPECT_EQ(MustCompare(RunOn(kRounding), RunOn(0, kHere, "[1, 2]")).exact, "") << "other strides";
  Dump more = RunOn(0);
  DumpBuilder b;
  b.dump() = std::move(more);
  b.Call("Functional.relu.1.forward").In(Value(3)).Out(Value(3));
  EXPECT_EQ(MustCompare(RunOn(kRounding), b.Take()).exact, "") << "another call";
}

// What runs between the calls of modules may be another code with other rounding.
TEST(ExactBitsTest, ModulesAloneDoNotTellWhichOperationsRun) {
  const auto run = [](double error, bool operations) {
    const auto bits = [&](int step, double by) {
      return Value(step, by).Print(std::to_string(step) + (by == 0 ? "" : "'"));
    };
    DumpBuilder b;
    b.Call("Module.up.Linear.forward.0").In(bits(1, 0)).Out(bits(2, 0));
    if (operations) b.Call("Functional.gelu.0.forward").In(bits(2, 0)).Out(bits(3, error));
    b.Call("Module.down.Linear.forward.0").In(bits(3, error)).Out(bits(4, error));
    b.dump().provenance = kHere;
    b.dump().dialect = Dialect::kMsprobe27;
    return b.Take();
  };
  EXPECT_EQ(Summarize(MustCompare(run(kRounding, false), run(0, false))).verdict,
            RunVerdict::kNoise);
  EXPECT_EQ(Summarize(MustCompare(run(kRounding, true), run(0, true))).verdict,
            RunVerdict::kDiffers);
  EXPECT_EQ(Summarize(MustCompare(run(kWrong, false), run(0, false))).verdict,
            RunVerdict::kDiffers);
}

// The first value with other bits is one that no recorded call made: code between them rounds
// otherwise.
TEST(ExactBitsTest, RoundingIsAllowedWhereUnrecordedCodeBegins) {
  const auto bits = [](int step, double by) {
    return Value(step, by).Print(std::to_string(step) + (by == 0 ? "" : "'"));
  };
  struct Begin {
    double made = 0;          // of what a recorded call makes, before
    double weight = 0;        // of what the call takes
    bool in_weights = false;  // the run says the weight when it starts
    bool parameter = false, backward = false, optimizer = false;
    bool reordered = false;  // the weight has the same statistics, and other bits
  };
  const auto run = [&](const Begin& begin) {
    DumpBuilder b;
    b.Call("Torch.cos.0.forward").In(bits(1, 0)).Out(bits(2, begin.made));
    b.Call(begin.optimizer   ? "Optimizer.SGD.step.0.forward"
           : begin.parameter ? "Module.fc.Linear.forward.0"
           : begin.backward  ? "Functional.linear.0.backward"
                             : "Functional.linear.0.forward");
    const Tensor weight = begin.reordered ? bits(3, 0).Print("3'") : bits(3, begin.weight);
    begin.parameter ? b.Parameter("weight", weight) : b.In(weight);
    b.Out(bits(4, begin.weight));
    if (begin.in_weights) b.dump().weights.push_back({.name = "w", .fingerprint = "3'"});
    b.dump().provenance = kHere;
    b.dump().dialect = Dialect::kMsprobe27;
    return b.Take();
  };
  const auto exact = [&](const Begin& begin) {
    Begin golden = begin;
    golden.made = golden.weight = 0;
    golden.reordered = false;
    return !MustCompare(run(begin), run(golden)).exact.empty();
  };
  EXPECT_FALSE(exact({.weight = kRounding}));
  EXPECT_TRUE(exact({.made = kRounding, .weight = kRounding})) << "a recorded call begins it";
  EXPECT_TRUE(exact({.made = kWrong, .weight = kRounding})) << "more than rounding differs before";
  EXPECT_TRUE(exact({.weight = kRounding, .in_weights = true}));
  EXPECT_FALSE(exact({.in_weights = true, .reordered = true})) << "sums run in another order";
  EXPECT_TRUE(exact({.weight = kRounding, .parameter = true}));
  EXPECT_TRUE(exact({.weight = kRounding, .backward = true}));
  EXPECT_TRUE(exact({.weight = kRounding, .optimizer = true}));
}

// Of data with missing numbers only the bits tell that they came in another order.
TEST(ExactBitsTest, OtherDataAreKnownBesideNaN) {
  const auto run = [](const char* data, double error) {
    constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
    DumpBuilder b;
    b.Call("Tensor.nan_to_num.0.forward");
    b.In(Numbers(kMissing, kMissing, kMissing, kMissing).Print(data));
    b.Out(Value(2, error).Print(error == 0 ? "2" : "2'"));
    b.dump().provenance = kHere;
    b.dump().dialect = Dialect::kMsprobe27;
    return b.Take();
  };
  EXPECT_EQ(MustCompare(run("1'", kRounding), run("1", 0)).exact, "");
  EXPECT_NE(MustCompare(run("1", kRounding), run("1", 0)).exact, "") << "the same data";
}

TEST(ExactBitsTest, TheCallerDecides) {
  CompareOptions options;
  options.exactness = Exactness::kTolerant;
  EXPECT_EQ(MustCompare(RunOn(kRounding), RunOn(0), options).exact, "");
  options.exactness = Exactness::kExact;
  const Comparison c =
      MustCompare(RunOn(kRounding), RunOn(0, EnvironmentWith("threads", "1")), options);
  EXPECT_EQ(c.exact, "bits decide: as asked for");
  EXPECT_EQ(First(c), "Functional.linear.0.forward");
}

// This process makes the same calls in both runs; the other one rounds otherwise, and sends it.
TEST(ExactBitsTest, RoundingThatAnotherProcessSends) {
  const auto run = [](double own, double received) {
    const auto bits = [&](int step, double by) {
      return Value(step, by).Print(std::to_string(step) + (by == 0 ? "" : "'"));
    };
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(bits(1, 0)).Out(bits(2, own));
    b.Call("Distributed.all_reduce.0.forward").In(bits(2, own));
    b.Changed("input.0", bits(3, received));
    b.Call("Functional.relu.0.forward").In(bits(3, received)).Out(bits(4, received));
    b.dump().provenance = kHere;
    b.dump().dialect = Dialect::kMsprobe27;
    return b.Take();
  };
  const Comparison c = MustCompare(run(0, kRounding), run(0, 0));
  EXPECT_EQ(c.exact, "");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
  // What it makes itself is its own.
  EXPECT_NE(MustCompare(run(kRounding, kRounding), run(0, 0)).exact, "");
}

TEST(ExactBitsTest, PlainValuesThatDifferSaySo) {
  const auto run = [](const char* value) {
    DumpBuilder b;
    b.Call("Tensor.mul.0.forward")
        .In(Value(1).Print("1"))
        .Value("x", "float", value)
        .Out(Value(2).Print("2"));
    b.dump().provenance = kHere;
    b.dump().dialect = Dialect::kMsprobe27;
    return b.Take();
  };
  const Comparison c = MustCompare(run("0.1"), run("0.10000000000000002"));
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kDiffers);
  EXPECT_EQ(c.measures[1].reason, Reason::kValueDiffers);
}

// Two calls of one line, in either order, whose results are added up to one and the same.
Comparison CompareInOrder(double apart) {
  const auto run = [apart](bool turned) {
    const Tensor results[] = {Value(2).Print("a"), Scaled(Value(2), apart).Print("b")};
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1).Print("x")).Out(results[turned ? 1 : 0]);
    b.Call("Functional.linear.1.forward").In(Value(1).Print("x")).Out(results[turned ? 0 : 1]);
    b.Call("Torch.add.0.forward").In(results[0]).In(results[1]).Out(Value(5).Print("y"));
    b.dump().provenance = kHere;
    return b.Take();
  };
  return MustCompare(run(true), run(false), {.exactness = Exactness::kExact});
}

TEST(ExactBitsTest, TwoCallsMayHaveChangedTheirPlaces) {
  EXPECT_EQ(Summarize(CompareInOrder(0.5)).verdict, RunVerdict::kStructure);
  // What is rounded differently is no other call: bits decide.
  EXPECT_EQ(Summarize(CompareInOrder(kRounding)).verdict, RunVerdict::kDiffers);
}

TEST(FirstBitsTest, StandBesideTheFirstDivergence) {
  const auto run = [](double rounding, double wrong) {
    DumpBuilder b;
    b.dump() = RunOn(rounding, {});
    b.Call("Functional.gelu.0.forward").In(Value(3, rounding)).Out(Value(4, wrong));
    return b.Take();
  };
  const Comparison c = MustCompare(run(kRounding, kWrong), run(0, 0));
  EXPECT_EQ(First(c), "Functional.gelu.0.forward");
  EXPECT_EQ(c.first_bits.pair, 0);
  EXPECT_EQ(c.first_bits.noise_between, 1);
  EXPECT_THAT(DescribeFirstBits(c).English(), HasSubstr("Functional.linear.0.forward"));
  EXPECT_THAT(DescribeFirstBits(c).English(), HasSubstr("train.py:7"));
  EXPECT_THAT(DescribeFirstBits(c).English(), HasSubstr("1 call is within rounding"));
  // The first divergence is the first place with other bits: there is nothing to add.
  EXPECT_EQ(DescribeFirstBits(MustCompare(run(0, kWrong), run(0, 0))), "");
  // Nothing diverges.
  EXPECT_THAT(DescribeFirstBits(MustCompare(run(kRounding, 0), run(0, 0))).English(),
              HasSubstr("Functional.linear.0.forward"));
}

}  // namespace
}  // namespace msprobe::compare::test
