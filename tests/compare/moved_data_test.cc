
#include <gtest/gtest.h>

#include <string>

#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {
namespace {

Tensor Bits(const char* fingerprint) { return Numbers(3, -3, 0, 9).Print(fingerprint); }

Comparison CallOf(const std::string& name, const char* golden_input = "a") {
  DumpBuilder t, g;
  t.Call(name + ".0.forward").In(Bits("a")).Out(Bits("b"));
  g.Call(name + ".0.forward").In(Bits(golden_input)).Out(Bits("c"));
  return MustCompare(t.Take(), g.Take());
}

TEST(MovedData, OtherBitsFromEqualBitsAreIntroduced) {
  for (const char* name : {"Tensor.repeat", "Torch.cat", "Tensor.__getitem__"}) {
    const Comparison c = CallOf(name);
    EXPECT_EQ(c.measures[1].reason, Reason::kMoved) << name;
    EXPECT_EQ(c.first.pair, 0) << name;
    EXPECT_NE(c.first.why.English().find(
                  "output.0 holds other elements, although the operation only moves"),
              std::string::npos)
        << c.first.why.English();
  }
}

TEST(MovedData, ArithmeticRoundsAndOtherInputsMoveOtherBits) {
  EXPECT_EQ(CallOf("Torch.matmul").measures[1].verdict, RowVerdict::kNoise);
  EXPECT_EQ(CallOf("Tensor.repeat", "d").measures[1].verdict, RowVerdict::kNoise);
}

TEST(MovedData, DataOfOtherRanksAndKeptDestinationElementsAreInputsToo) {
  EXPECT_EQ(CallOf("Distributed.gather").measures[1].verdict, RowVerdict::kNoise);
  // Scores masked in place; the old content differs by rounding only, or by more.
  for (const double error : {1e-7, 1e-1}) {
    DumpBuilder t, g;
    t.Call("Tensor.masked_fill_.0.forward")
        .In(Scaled(Bits("d"), error))
        .In(Bits("m"))
        .Out(Bits("b"));
    g.Call("Tensor.masked_fill_.0.forward").In(Bits("a")).In(Bits("m")).Out(Bits("c"));
    const Comparison c = MustCompare(t.Take(), g.Take());
    EXPECT_EQ(c.measures[2].verdict, RowVerdict::kNoise) << error;
    EXPECT_EQ(c.first.pair, -1) << error;
  }
}

}  // namespace
}  // namespace msprobe::compare::test
