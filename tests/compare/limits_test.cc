// --thresholds means the same in every rule that counts in roundings: a stricter number names what
// a looser one calms.
#include "engine/compare/judge/limits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "engine/compare/explain/explain.h"
#include "engine/compare/regions/equal_values.h"
#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::ByRules;
using test::DumpBuilder;
using test::First;
using test::MustCompare;
using test::Numbers;
using test::OneOutput;
using test::Value;

CompareOptions With(std::string_view yaml) {
  Result<ThresholdTable> table = ThresholdTable::Parse(yaml, "mine.yaml");
  EXPECT_TRUE(table.ok()) << table.status().message();
  CompareOptions options;
  if (table.ok()) options.thresholds = std::make_shared<ThresholdTable>(*std::move(table));
  return options;
}

TEST(Limits, AreTheShippedOnesInProportion) {
  const CompareOptions options = With(
      "rounding: {float32: 16}\noverrides: [{operation: softmax, dtype: float32, rounding: 128}]");
  const Rounding& r = RoundingOf("torch.float32");
  const Limits linear(*options.thresholds, 1, "Functional.linear");
  EXPECT_EQ(linear.Scale(r), 0.25);
  EXPECT_EQ(linear.Explained(r), 16);
  EXPECT_EQ(linear.Explained(r, 4096), 32) << "a sum of many terms too";
  EXPECT_EQ(Limits(*options.thresholds, 3, "Functional.softmax").Explained(r), 384);
  EXPECT_EQ(linear.Explained(RoundingOf("torch.float16")), 8);
  EXPECT_EQ(linear.Scale(RoundingOf("torch.int64")), 1);
  EXPECT_EQ(Limits().Explained(r), 64);
}

// The judge: a number among the arguments, in roundings of float32.
TEST(Limits, OfAPlainNumber) {
  const auto verdict = [](double by, const CompareOptions& options) {
    const auto run = [](double number) {
      DumpBuilder b;
      b.Call("Torch.f.0.forward").In(Value(1)).Value("p", "float", fmt::format("{}", number));
      return b.Out(Value(2)).Take();
    };
    const Comparison c = ByRules(run(0.5 + by), run(0.5), options);
    for (size_t i = 0; i < c.rows.size(); ++i) {
      if (c.target.leaves[c.rows[i].target].kind == LeafKind::kScalar) return c.measures[i].verdict;
    }
    return RowVerdict::kUnknown;
  };
  const double rounding = 0.5 * 0x1p-23;
  EXPECT_EQ(verdict(30 * rounding, {}), RowVerdict::kNoise);
  EXPECT_EQ(verdict(30 * rounding, With("rounding: {float32: 10}")), RowVerdict::kDiffers);
  EXPECT_EQ(verdict(100 * rounding, {}), RowVerdict::kDiffers);
  EXPECT_EQ(verdict(100 * rounding, With("rounding: {float32: 200}")), RowVerdict::kNoise);
  EXPECT_EQ(verdict(100 * rounding, With("overrides: [{operation: f, rounding: 200}]")),
            RowVerdict::kNoise);
}

// The judge: means and norms of integers are sums in float32.
TEST(Limits, OfSumsOfIntegers) {
  const auto verdict = [](const CompareOptions& options) {
    const auto of = [](double by) {
      return OneOutput(Numbers(9, 0, 4.5 * (1 + by), 17 * (1 + by)).DType("torch.int64"));
    };
    return ByRules(of(3e-6), of(0), options).measures[0].verdict;
  };
  EXPECT_EQ(verdict({}), RowVerdict::kNoise);
  EXPECT_EQ(verdict(With("rounding: {float32: 8}")), RowVerdict::kDiffers);
}

// classify: a number that the program computed from values within rounding, loss.item().
TEST(Limits, OfAnArgumentThatWasComputed) {
  const auto run = [](double by) {
    DumpBuilder b;
    b.Call("Torch.g.0.forward").In(Value(1)).Out(Value(2, by * 1e-4));
    b.Call("Torch.f.0.forward").In(Value(3).DType("torch.float16"));
    b.Value("scale", "float", fmt::format("{}", 0.5 * (1 + by * 2e-3)));
    return b.Out(Value(4, by * 2e-4).DType("torch.float16")).Take();
  };
  EXPECT_EQ(First(ByRules(run(1e-2), run(0))), "none");
  EXPECT_EQ(First(ByRules(run(1), run(0), With("rounding: {float32: 2000}"))), "none");
  EXPECT_EQ(First(ByRules(run(1), run(0), With("rounding: {float32: 2000, float16: 1}"))),
            "Torch.f.0.forward");
}

// evidence: how sure it is, by the size of the error in what is explained.
TEST(Limits, OfTheConfidence) {
  const auto confidence = [](const CompareOptions& options) {
    const auto run = [](double by) {
      return DumpBuilder().Call("Torch.f.0.forward").In(Value(1)).Out(Value(2, by)).Take();
    };
    const Comparison c = MustCompare(run(1e-4), run(0), options);
    EXPECT_EQ(First(c), "Torch.f.0.forward");
    return c.first.confidence;
  };
  EXPECT_GT(confidence(With("rounding: {float32: 1}")), confidence({}));
  EXPECT_LT(confidence(With("rounding: {float32: 700}")), confidence({}));
}

// evidence: by how much another argument must differ, so that rounding of the inputs is not asked.
TEST(Limits, OfAnotherArgument) {
  const auto confidence = [](const CompareOptions& options) {
    const auto run = [](double by) {
      DumpBuilder b;
      b.Call("Torch.g.0.forward").In(Value(1)).Out(Value(2, by * 1e-6));
      b.Call("Torch.f.0.forward").In(Value(2, by * 1e-6));
      b.Value("p", "float", fmt::format("{}", 0.5 * (1 + by * 2e-3)));
      return b.Out(Value(3, by * 2e-3)).Take();
    };
    const Comparison c = ByRules(run(1), run(0), options);
    EXPECT_EQ(First(c), "Torch.f.0.forward");
    return c.first.confidence;
  };
  EXPECT_GT(confidence({}), confidence(With("rounding: {float32: 200}")) + 0.01);
}

// grown_rounding: what grows from call to call.
TEST(Limits, OfGrowth) {
  const auto grown = [](const std::vector<double>& errors, const CompareOptions& options) {
    const auto chain = [&](double by) {
      DumpBuilder b;
      for (size_t i = 0; i + 1 < errors.size(); ++i) {
        const int at = static_cast<int>(i);
        b.Call(fmt::format("Functional.f{}.0.forward", i)).In(Value(at, by * errors[i]));
        b.Out(Value(at + 1, by * errors[i + 1]));
      }
      return b.Take();
    };
    return std::string(First(ByRules(chain(1), chain(0), options)));
  };
  const std::vector<double> growth = {1e-6, 5e-6, 1.5e-5, 6e-5, 2e-4};
  EXPECT_EQ(grown(growth, {}), "none");
  EXPECT_EQ(grown(growth, With("rounding: {float32: 10}")), "Functional.f3.0.forward");
  const std::vector<double> jump = {1e-6, 5e-6, 1.5e-5, 4e-4, 8e-4};
  EXPECT_EQ(grown(jump, {}), "Functional.f2.0.forward");
  EXPECT_EQ(grown(jump, With("rounding: {float32: 1000}")), "Functional.f2.0.forward");
  const std::vector<double> steep = {1e-6, 7e-5, 4.8e-4};
  EXPECT_EQ(grown(steep, {}), "Functional.f0.0.forward");
  EXPECT_EQ(grown(steep, With("rounding: {float32: 640}")), "none");
}

// equal_values: how near a value of the other run must be to be the same.
TEST(Limits, OfAValueThatTheOtherRunHas) {
  const auto run = [](std::string_view call, double by) {
    return DumpBuilder().Call(call).In(Value(1)).Out(Value(2, by).DType("torch.bfloat16")).Take();
  };
  const auto found = [&](const CompareOptions& options) {
    const Comparison c =
        MustCompare(run("Torch.f.0.forward", 0.1), run("Torch.other.0.forward", 0), options);
    const std::vector<char> all(c.pairs.size(), 1);
    return EqualValues(c, all).HasCounterpart(c.target.leaves[1], true, false);
  };
  EXPECT_FALSE(found({}));
  EXPECT_TRUE(found(With("rounding: {bfloat16: 40}")));
}

// explain: two losses that are other ones.
TEST(Limits, OfTwoLosses) {
  const auto run = [](const std::string& loss, double value) {
    const auto scalar = Numbers(value, value, value, value).Shape("[]");
    DumpBuilder b;
    b.Call(loss + ".0.forward").In(Value(2)).Out(scalar);
    return b.Call(loss + ".0.backward").In(Value(1)).Out(Value(3)).Take();
  };
  const auto explained = [&](const CompareOptions& options) {
    Comparison c;
    c.target = run("Functional.l1_loss", 3.001), c.golden = run("Torch.sum", 3);
    c.thresholds = options.thresholds;
    c.pairs = {{.target = 0}, {.golden = 0}, {.target = 1}, {.golden = 1}};
    c.forward_of = {-1, -1, 0, 1};
    c.classes.assign(c.pairs.size(), CallClass::kUnknown);
    return ExplainOtherLoss(c, 2).has_value();
  };
  EXPECT_TRUE(explained({}));
  EXPECT_FALSE(explained(With("rounding: {float32: 6400}")));
}

// All limits together: the looser, the fewer values differ.
TEST(Limits, AreMonotone) {
  std::mt19937 random(5);
  const auto any = [&](auto... choices) {
    const std::array all = {choices...};
    return all[random() % all.size()];
  };
  for (int program = 0; program < 60; ++program) {
    const uint32_t seed = random();
    const std::string dtype = any("torch.float32", "torch.float16", "torch.bfloat16");
    const auto run = [&](double by) {
      std::mt19937 errors(seed);
      const auto error = [&] { return by * std::pow(10.0, -1.0 - errors() % 80 / 10.0); };
      DumpBuilder b;
      double last = error();
      for (int i = 0; i < 12; ++i) {
        const double next = error();
        b.Call(fmt::format("Functional.{}.{}.forward", i % 3 == 0 ? "layer_norm" : "f", i));
        b.In(Value(i, last).DType(dtype));
        if (i % 4 == 1) b.Value("p", "float", fmt::format("{}", 0.5 * (1 + error())));
        b.Out(Value(i + 1, next).DType(dtype));
        last = next;
      }
      return b.Take();
    };
    int64_t before = INT64_MAX;
    for (double scale = 0x1p-12; scale <= 0x1p14; scale *= 4) {
      std::string yaml = "rounding: {";
      for (const auto& [name, shipped] :
           {std::pair("float32", 64), std::pair("float16", 8), std::pair("bfloat16", 4)})
        yaml += fmt::format("{}: {}, ", name, scale * shipped);
      const Comparison c = ByRules(run(1), run(0), With(yaml + "}"));
      const int64_t differ =
          std::count_if(c.measures.begin(), c.measures.end(),
                        [](const Measure& m) { return m.verdict == RowVerdict::kDiffers; });
      EXPECT_LE(differ, before) << "program " << program << ", scale " << scale;
      before = differ;
    }
    EXPECT_EQ(before, 0) << program;
  }
}

}  // namespace
}  // namespace msprobe::compare
