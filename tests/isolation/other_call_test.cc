#include "engine/isolation/other_call.h"

#include <gmock/gmock.h>

#include "tests/compare/dump_builder.h"

namespace msprobe::isolation {
namespace {

using compare::test::DumpBuilder;
using compare::test::Numbers;
using ::testing::HasSubstr;

compare::test::Tensor Loss(std::string shape) {
  return Numbers(3, 1, 2, 6).Shape(std::move(shape)).Print("aa");
}
compare::test::Tensor Weight(std::string print) {
  return Numbers(1, 0, 0.5, 2).Shape("[8]").Print(std::move(print));
}

// mean -> (reshape) -> mul with a weight.
Dump Program(bool reshapes, std::string weight = "bb") {
  DumpBuilder b;
  b.Call("Tensor.mean.0.forward").In(Numbers(4, -4, 0, 9)).Out(Loss("[8]"));
  if (reshapes) {
    b.Call("Tensor.reshape.0.forward").In(Loss("[8]")).Out(Loss("[8, 1]"));
    b.At("train.py", 14, "each = each.reshape(-1, 1)");
  }
  b.Call("Tensor.__mul__.0.forward").In(Loss(reshapes ? "[8, 1]" : "[8]"));
  b.In(Weight(std::move(weight))).Out(Numbers(3, 1, 2, 8).Shape(reshapes ? "[8, 8]" : "[8]"));
  return b.Take();
}

OtherCall ComparedCall(const Dump& target, const Dump& golden) {
  const std::vector<compare::Partner> partners = compare::AlignRecords(target, golden, {});
  return OtherCallOf(target, golden, partners, static_cast<int32_t>(target.records.size()) - 1);
}

TEST(OtherCallTest, AnotherShapeIsAnotherComputation) {
  const OtherCall found = ComparedCall(Program(true), Program(false));
  EXPECT_EQ(found.inputs, "");
  EXPECT_EQ(found.why,
            "input.0 has shape [8, 1] in the target, [8] in the golden; Tensor.reshape.0.forward, "
            "which only the target calls, makes it (train.py:14 in forward: each = "
            "each.reshape(-1, 1))");
  EXPECT_THAT(ComparedCall(Program(false), Program(true)).why.English(),
              HasSubstr("Tensor.reshape.0.forward, which only the golden calls, makes it"));
}

TEST(OtherCallTest, TheSameCallIsNone) {
  EXPECT_EQ(ComparedCall(Program(false), Program(false)).why, "");
  EXPECT_EQ(ComparedCall(Program(false), Program(false)).inputs, "bit-equal on both sides");
  const OtherCall other = ComparedCall(Program(false, "cc"), Program(false));
  EXPECT_EQ(other.why, "");
  EXPECT_EQ(
      other.inputs,
      "input.1 differs: each side is measured against float64 of its own inputs, so only what "
      "the call itself adds is seen");
}

TEST(OtherCallTest, ATensorThatOnlyOneRunPasses) {
  DumpBuilder t, g;
  t.Call("Functional.linear.0.forward").In(Loss("[8]")).In(Weight("bb"));
  t.Out(Loss("[8]"));
  g.Call("Functional.linear.0.forward").In(Loss("[8]")).Out(Loss("[8]"));
  EXPECT_EQ(ComparedCall(t.Take(), g.Take()).why, "only the target passes input.1");
}

}  // namespace
}  // namespace msprobe::isolation
