#include "engine/isolation/unstable.h"

#include <gmock/gmock.h>

#include "tests/compare/divergence_values.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;
using compare::test::DumpBuilder;
using compare::test::Value;
using ::testing::HasSubstr;
using Cause = Unstable::Cause;

compare::test::Tensor Bits(int step, double by = 0) {
  return Value(step, by).Print(std::to_string(step) + (by == 0 ? "" : "'"));
}

Comparison ByBits(DumpBuilder& second, DumpBuilder& first) {
  compare::CompareOptions options;
  options.exactness = compare::Exactness::kExact;
  Result<Comparison> c = compare::Compare(second.Take(), first.Take(), options);
  EXPECT_TRUE(c.ok());
  return *std::move(c);
}

// A call of `api` between two calls that repeat; its result is `error` apart.
void TwoCalls(DumpBuilder* b, const std::string& api, double error, double input = 0) {
  b->Call("Functional.linear.0.forward").In(Bits(1)).Out(Bits(2));
  b->Call(api + ".0.forward").In(Bits(2)).In(Bits(7, input)).Out(Bits(3, error));
  b->At("train.py", 7, "y = f(x)");
  b->Call("Module.net.Net.forward.0").In(Bits(1)).Out(Bits(3, error));
}

TEST(UnstableTest, AnOperationThatDoesNotRepeat) {
  DumpBuilder a, b;
  TwoCalls(&a, "Tensor.index_add", 1e-7), TwoCalls(&b, "Tensor.index_add", 0);
  const Comparison c = ByBits(a, b);
  const std::optional<Unstable> found = FirstUnstable(c);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, Cause::kOperation);
  EXPECT_EQ(found->name, "Tensor.index_add.0.forward");
  EXPECT_EQ(found->source_line, "train.py:7 in forward: y = f(x)");
  EXPECT_THAT(found->why.English(), HasSubstr("inputs are bit-equal and its result is not"));
}

TEST(UnstableTest, RandomNumbersAreNamedAsSuch) {
  DumpBuilder a, b;
  TwoCalls(&a, "Functional.dropout", 0.5), TwoCalls(&b, "Functional.dropout", 0);
  EXPECT_EQ(FirstUnstable(ByBits(a, b))->cause, Cause::kRandomNumbers);
  DumpBuilder x, y;
  for (auto [builder, by] : {std::pair{&x, 0.5}, std::pair{&y, 0.0}}) {
    builder->Call("Functional.scaled_dot_product_attention.0.forward")
        .In(Bits(1))
        .Value("dropout_p", "float", "0.1")
        .Out(Bits(2, by));
  }
  EXPECT_EQ(FirstUnstable(ByBits(x, y))->cause, Cause::kRandomNumbers);
}

TEST(UnstableTest, AnInputFromOutside) {
  DumpBuilder a, b;
  TwoCalls(&a, "Tensor.add", 0.5, 0.5), TwoCalls(&b, "Tensor.add", 0);
  const std::optional<Unstable> found = FirstUnstable(ByBits(a, b));
  EXPECT_EQ(found->cause, Cause::kOutside);
  EXPECT_THAT(found->why.English(), HasSubstr("input.1"));
}

TEST(UnstableTest, OtherArgumentsAndOtherCalls) {
  DumpBuilder a, b;
  a.Call("Functional.scale.0.forward").In(Bits(1)).Value("by", "float", "0.3").Out(Bits(2, 0.1));
  b.Call("Functional.scale.0.forward").In(Bits(1)).Value("by", "float", "0.7").Out(Bits(2));
  EXPECT_EQ(FirstUnstable(ByBits(a, b))->cause, Cause::kArgument);
  DumpBuilder x, y;
  TwoCalls(&x, "Tensor.add", 0), TwoCalls(&y, "Tensor.add", 0);
  x.Call("Tensor.relu.0.forward").In(Bits(3)).Out(Bits(4));
  const std::optional<Unstable> found = FirstUnstable(ByBits(x, y));
  EXPECT_EQ(found->cause, Cause::kCalls);
  EXPECT_THAT(found->why.English(), HasSubstr("only the later run"));
}

// Statistics do not show that two elements have changed places.
TEST(UnstableTest, NoBitsAreClaimedWithoutFingerprints) {
  const auto without = [](DumpBuilder* b, double error) {
    b->Call("Functional.gelu.0.forward").In(Value(1)).Out(Value(2));
    b->Call("Tensor.add.0.forward").In(Value(2)).Out(Value(3, error));
  };
  DumpBuilder a, b;
  without(&a, 0), without(&b, 0);
  EXPECT_EQ(CountWithoutBits(ByBits(a, b)), 4);
  DumpBuilder x, y;
  without(&x, 0.1), without(&y, 0);
  EXPECT_THAT(FirstUnstable(ByBits(x, y))->why.English(), HasSubstr("equal statistics"));
  DumpBuilder v, w;
  TwoCalls(&v, "Tensor.add", 0), TwoCalls(&w, "Tensor.add", 0);
  EXPECT_EQ(CountWithoutBits(ByBits(v, w)), 0);
}

TEST(UnstableTest, RunsThatRepeat) {
  DumpBuilder a, b;
  TwoCalls(&a, "Tensor.add", 0), TwoCalls(&b, "Tensor.add", 0);
  EXPECT_FALSE(FirstUnstable(ByBits(a, b)));
}

}  // namespace
}  // namespace msprobe::isolation
