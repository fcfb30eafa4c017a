// The module of a call, its mode, and the names of arguments.
#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/report/report_terminal.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using ::testing::HasSubstr;

constexpr std::string_view kModule = "Module.layers.3.mlp.LlamaMLP.forward.0";

// One call inside a module that says its mode.
Dump OneLayer(double error, Record::Mode mode) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3));
  b.Out(Scaled(Numbers(2, -2, 0.5, 5), error)).Parent(kModule);
  b.dump().signatures = {{"Functional.linear", {"input", "weight"}}};
  b.Call(kModule).In(Numbers(1, -1, 0, 3)).Out(Scaled(Numbers(2, -2, 0.5, 5), error));
  b.dump().records.back().training = mode;
  return b.Take();
}

TEST(Where, TheModuleOfAnApi) {
  const Comparison c =
      MustCompare(OneLayer(0.01, Record::Mode::kTrain), OneLayer(0, Record::Mode::kTrain));
  EXPECT_EQ(c.first.module, "layers.3.mlp (LlamaMLP)");
  EXPECT_EQ(ModuleAround(c, 1), "");  // the name of a module's call says it
  EXPECT_THAT(TerminalReport(c, {}), HasSubstr("  | in layers.3.mlp (LlamaMLP)\n"));
  EXPECT_EQ(DescribeMode(c, 0), "");
  EXPECT_EQ(c.run_start.settings, "");
}

TEST(Where, TheModuleThatLevelL1Names) {
  DumpBuilder target, golden;
  for (DumpBuilder* b : {&target, &golden}) {
    b->Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3));
    b->Out(Scaled(Numbers(2, -2, 0.5, 5), b == &target ? 0.01 : 0));
    b->dump().records.back().module = "Module.0.Linear";
  }
  EXPECT_EQ(MustCompare(target.Take(), golden.Take()).first.module, "0 (Linear)");
}

TEST(Where, TheModeOfAModule) {
  const std::string mode =
      "layers.3.mlp (LlamaMLP) is in train mode in the target, in eval mode in the golden";
  const Comparison c =
      MustCompare(OneLayer(0.01, Record::Mode::kTrain), OneLayer(0, Record::Mode::kEval));
  EXPECT_EQ(DescribeMode(c, 0), mode);
  EXPECT_EQ(DescribeMode(c, 1), mode);
  EXPECT_THAT(c.first.why, HasSubstr(", but " + mode));
  EXPECT_EQ(c.run_start.settings, mode);
  // Without an effect it is said, and is no difference.
  const Comparison equal =
      MustCompare(OneLayer(0, Record::Mode::kTrain), OneLayer(0, Record::Mode::kEval));
  EXPECT_EQ(equal.first.pair, -1);
  EXPECT_EQ(equal.run_start.settings, mode);
  // A dump that does not say the mode.
  const Comparison unknown =
      MustCompare(OneLayer(0, Record::Mode::kTrain), OneLayer(0, Record::Mode::kUnknown));
  EXPECT_EQ(unknown.run_start.settings, "");
}

TEST(Where, TheNameOfAnArgument) {
  DumpBuilder b;
  b.Call("Torch.cat.0.forward").In(Numbers(1, -1, 0, 3)).In(Numbers(2, -2, 0, 3));
  b.Value("0.1", "int", "3").Value("dim", "int", "1").Out(Numbers(2, -2, 0.5, 5));
  b.dump().signatures = {{"Torch.cat", {"tensors"}}, {"Torch.other", {"x", "y"}}};
  b.Call("Torch.cat.0.backward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 3));
  Dump dump = b.Take();
  for (Leaf& leaf : dump.leaves) {
    if (leaf.name == "Torch.cat.0.forward.input.0.1") leaf.slot = Slot::kInput;
  }
  const Comparison c = MustCompare(std::move(dump), Dump());
  std::vector<std::string> labels;
  for (size_t i = 0; i < c.rows.size(); ++i) labels.push_back(LeafLabel(c, static_cast<int>(i)));
  EXPECT_THAT(labels, ::testing::UnorderedElementsAre("tensors", "input.1", "tensors.1", "dim",
                                                      "output.0", "input.0", "output.0"));
}

}  // namespace
}  // namespace msprobe::compare
