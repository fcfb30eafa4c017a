// Where a difference begins when only modules were recorded.
#include <gmock/gmock.h>

#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// down(f(up(x))) + mask, in a layer. `error`: of f's result; `mask`: of what the layer takes.
Dump Layer(double error, double mask = 0, bool operations = false) {
  const std::string layer = "Module.layer.Layer.forward.0";
  DumpBuilder b;
  b.Call("Module.words.Embedding.forward.0").In(Value(0)).Out(Value(1));
  b.Call("Module.layer.up.Linear.forward.0").In(Value(1)).Out(Value(2)).Parent(layer);
  if (operations) b.Call("Torch.sigmoid.0.forward").In(Value(2)).Out(Value(8)).Parent(layer);
  b.Call("Module.layer.down.Linear.forward.0").In(Value(3, error + mask));
  b.Out(Value(4, error + mask)).Parent(layer).At("net.py", 9, "return down(f(up(x)))");
  b.Call(layer).In(Value(1)).In(Value(6, mask)).Out(Value(5, error + mask));
  b.At("net.py", 30, "x = layer(x, mask)");
  return b.Take();
}

TEST(ModulesOnly, AModulesOwnCodeIsNamedWithItsLine) {
  const Comparison c = MustCompare(Layer(kWrong), Layer(0));
  EXPECT_EQ(First(c), "Module.layer.Layer.forward.0");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.source_line, HasSubstr("net.py:9"));
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("own code before it calls Module.layer.down.Linear.forward.0"));
}

// Where operations were recorded, the call behind the one that is not recorded is nearer.
TEST(ModulesOnly, BesideOperationsTheCallThatTakesTheValueIsNamed) {
  const Comparison c = MustCompare(Layer(kWrong, 0, true), Layer(0, 0, true));
  EXPECT_EQ(First(c), "Module.layer.down.Linear.forward.0");
}

// The layer is recorded behind the calls inside it, and had its wrong mask before them.
TEST(ModulesOnly, TheOutermostModuleWithAWrongInputIsNamed) {
  const Comparison c = MustCompare(Layer(0, kWrong), Layer(0));
  EXPECT_EQ(First(c), "Module.layer.Layer.forward.0");
  EXPECT_THAT(c.first.source_line, HasSubstr("net.py:30"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("input.1 is off by"));
}

// norm(join(x)) goes into a linear map, where `join` is code of the net. `print`: the fingerprints
// of what it makes; with another one its numbers are the same.
Dump JoinedModules(const std::string& print, double error) {
  const std::string net = "Module.net.Net.forward.0";
  const Tensor joined = Value(2).Print("1" + print), normalised = Value(3).Print("2" + print);
  DumpBuilder b;
  b.Call("Module.net.first.Linear.forward.0").In(Value(0).Print("30")).Out(Value(1).Print("40"));
  b.Parent(net);
  b.Call("Module.net.norm.Norm.forward.0").In(joined).Out(normalised).Parent(net);
  b.Call("Module.net.last.Linear.forward.0").In(normalised);
  b.Out(Value(4, error).Print("5" + print)).Parent(net);
  b.Call(net).In(Value(0).Print("30")).Out(Value(4, error).Print("5" + print));
  return b.Take();
}

TEST(ModulesOnly, ElementsInAnotherOrderAreWrongBeforeTheCallThatShowsIt) {
  const Comparison c = MustCompare(JoinedModules("1", kWrong), JoinedModules("0", 0));
  EXPECT_EQ(First(c), "Module.net.Net.forward.0");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("own code before it calls Module.net.norm.Norm.forward.0"));
  // Bits that were rounded in another way lead to nothing large.
  EXPECT_EQ(First(MustCompare(JoinedModules("1", kRounding), JoinedModules("0", 0))), "none");
}

}  // namespace
}  // namespace msprobe::compare::test
