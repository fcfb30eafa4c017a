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
  b.dump().signatures = {{"Functional.linear", {{"input", "weight"}}}};
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
  EXPECT_THAT(c.first.why.English(), HasSubstr(", but " + mode));
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
  b.dump().signatures = {{"Torch.cat", {{"tensors"}}}, {"Torch.other", {{"x", "y"}}}};
  b.Call("Torch.cat.0.backward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 3));
  Dump dump = b.Take();
  for (Leaf& leaf : dump.leaves) {
    if (leaf.name == "Torch.cat.0.forward.input.0.1") leaf.slot = Slot::kInput;
  }
  const Comparison c = MustCompare(std::move(dump), Dump());
  std::vector<std::string> labels;
  for (size_t i = 0; i < c.rows.size(); ++i)
    labels.push_back(LeafLabel(c, static_cast<int>(i)).English());
  EXPECT_THAT(labels, ::testing::UnorderedElementsAre("tensors", "input.1", "tensors.1", "dim",
                                                      "output.0", "input.0", "output.0"));
}

// The arguments of an API with overloads are told apart by number and types; a parameter such as
// *size takes several.
TEST(Where, TheNamesOfOverloads) {
  DumpBuilder b;
  b.dump().signatures = {
      {"Tensor.view",
       {{"self: Tensor", "size...: int/int[]"}, {"self: Tensor", "dtype: torch.dtype"}}},
      {"Torch.arange", {{"end: int"}, {"start: int", "end: int", "step: int"}}},
      {"Torch.max", {{"input: Tensor", "other: Tensor"}, {"input: Tensor", "dim: int"}}},
      {"Torch.std",
       {{"input: Tensor", "unbiased: bool"}, {"input: Tensor", "dim: int", "unbiased: bool"}}}};
  const auto labels = [&](std::string_view api, std::vector<std::string> given) {
    DumpBuilder call;
    call.dump().signatures = b.dump().signatures;
    call.Call(std::string(api) + ".0.forward");
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] == "Tensor") {
        call.In(Numbers(1, -1, 0, 3));
      } else {
        call.Value(std::to_string(i), given[i], "1");
        call.last().slot = Slot::kInput;
      }
    }
    const Comparison c = MustCompare(call.Take(), Dump(), {.mode = Mode::kStatistics});
    std::vector<std::string> found;
    for (size_t i = 0; i < c.rows.size(); ++i)
      found.push_back(LeafLabel(c, static_cast<int>(i)).English());
    return found;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(labels("Torch.max", {"Tensor", "int"}), ElementsAre("input", "dim"));
  EXPECT_THAT(labels("Torch.max", {"Tensor", "Tensor"}), ElementsAre("input", "other"));
  EXPECT_THAT(labels("Torch.max", {"Tensor", "str"}), ElementsAre("input.0", "input.1"));
  EXPECT_THAT(labels("Torch.std", {"Tensor", "bool"}), ElementsAre("input", "unbiased"));
  EXPECT_THAT(labels("Torch.std", {"Tensor", "int", "bool"}),
              ElementsAre("input", "dim", "unbiased"));
  EXPECT_THAT(labels("Torch.arange", {"int"}), ElementsAre("end"));
  EXPECT_THAT(labels("Torch.arange", {"int", "int"}), ElementsAre("start", "end"));
  EXPECT_THAT(labels("Tensor.view", {"Tensor", "int", "int"}),
              ElementsAre("self", "size.0", "size.1"));
  EXPECT_THAT(labels("Tensor.view", {"Tensor", "torch.dtype"}), ElementsAre("self", "dtype"));
  EXPECT_THAT(labels("Torch.other", {"Tensor"}), ElementsAre("input.0"));
}

// A gradient is called by what it is the gradient of: numbers among the arguments have none.
TEST(Where, TheNamesOfGradients) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.dump().dialect = Dialect::kMsprobe27;
    b.dump().signatures = {{"Functional.f", {{"input", "scale", "weight"}}}};
    b.Call("Functional.f.0.forward").In(Numbers(1, -1, 0, 3)).Value("1", "int", "2");
    b.last().slot = Slot::kInput;
    b.In(Numbers(4, -4, 0, 9));
    b.last().name = "Functional.f.0.forward.input.2";
    b.Kwarg("bias", Numbers(1, 1, 1, 1)).Out(Numbers(2, -2, 0.5, 5));
    b.Changed("input.2", Numbers(1, -1, 0, 2));
    b.Call("Functional.f.0.backward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 3));
    b.Out(Scaled(Numbers(3, -3, 0, 3), error)).Out(Numbers(5, -5, 0, 9));
    return b.Take();
  };
  const Comparison c = MustCompare(run(0.05), run(0));
  std::vector<std::string> labels;
  for (size_t i = 0; i < c.rows.size(); ++i)
    labels.push_back(LeafLabel(c, static_cast<int>(i)).English());
  EXPECT_THAT(labels, ::testing::ElementsAre("input", "scale", "weight", "bias", "output.0",
                                             "changed.weight", "the gradient of output.0",
                                             "the gradient of input", "the gradient of weight",
                                             "the gradient of bias"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("norm of the gradient of weight is off by"));
}

// The golden's line is shown where its code is another one.
TEST(Where, TheLineOfTheGolden) {
  const auto run = [](double error, std::string_view file, int line, std::string_view code) {
    DumpBuilder b;
    b.Call("Torch.f.0.forward").In(Numbers(1, -1, 0, 3)).Out(Scaled(Numbers(2, -2, 0.5, 5), error));
    b.At(file, line, code);
    return b.Take();
  };
  const Comparison same =
      MustCompare(run(0.05, "new.py", 3, "y = f(x)"), run(0, "old.py", 7, "y = f(x)"));
  EXPECT_EQ(same.first.golden_line, "");
  EXPECT_THAT(TerminalReport(same, {}), ::testing::Not(HasSubstr("in the golden: old.py")));
  const Comparison other =
      MustCompare(run(0.05, "new.py", 3, "y = f(x)"), run(0, "old.py", 7, "return f(x, 2)"));
  EXPECT_EQ(other.first.golden_line, "old.py:7 in forward: return f(x, 2)");
  EXPECT_THAT(TerminalReport(other, {}),
              HasSubstr("  | new.py:3 in forward: y = f(x)\n"
                        "  | in the golden: old.py:7 in forward: return f(x, 2)\n"));
}

// A call that only the target makes: the line that the golden runs in its place.
TEST(Where, TheLineOfTheGoldenInPlaceOfACall) {
  const auto run = [](bool target) {
    DumpBuilder b;
    b.Call("Torch.f.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0.5, 5));
    if (target) {
      b.Call("Torch.silu.0.forward").In(Numbers(2, -2, 0.5, 5)).Out(Numbers(7, -2, 0.5, 9));
      b.At("new.py", 5, "y = silu(x)");
    } else {
      b.Call("Tensor.relu_.0.forward").In(Numbers(2, -2, 0.5, 5)).Out(Numbers(6, 0, 0.5, 8));
      b.At("old.py", 6, "y = x.relu_()");
    }
    b.Call("Torch.g.0.forward").In(Numbers(target ? 7 : 6, target ? -2 : 0, 0.5, target ? 9 : 8));
    b.Out(Numbers(target ? 3 : 4, -1, 0, 6));
    return b.Take();
  };
  const Comparison c = MustCompare(run(true), run(false));
  EXPECT_EQ(c.first.source_line, "new.py:5 in forward: y = silu(x)");
  EXPECT_EQ(c.first.golden_line, "old.py:6 in forward: y = x.relu_()");
}

// Of a call whose line both runs have: the innermost caller that the golden does not execute.
TEST(Where, TheCallerWhoseCodeIsAnotherOne) {
  const auto run = [](double error, std::string_view file, std::string_view inner,
                      std::string_view outer) {
    DumpBuilder b;
    b.Call("Torch.f.0.forward").In(Numbers(1, -1, 0, 3)).Out(Scaled(Numbers(2, -2, 0.5, 5), error));
    b.At("net.py", 3, "y = f(x)");
    b.From("/lib/python3/site-packages/torch/nn/modules/module.py", 9, inner, "_call_impl");
    b.From(file, 20, inner, "predict").From(file, 40, outer, "step");
    return b.Take();
  };
  constexpr std::string_view kInner = "width = self.width(x.detach())", kOuter = "loss = model(x)";
  const auto against = [&](std::string_view inner, std::string_view outer) {
    return MustCompare(run(0.05, "new.py", inner, outer), run(0, "old.py", kInner, kOuter)).first;
  };
  const FirstDivergence moved =
      against("width = self.width(x.detach())  # here", "loss = model(x)");
  EXPECT_EQ(moved.caller_line, "");
  EXPECT_EQ(moved.golden_line, "");
  const FirstDivergence kept = against("width = self.width(x)", "loss = model(x) / 2");
  EXPECT_EQ(kept.source_line, "net.py:3 in forward: y = f(x)");
  EXPECT_EQ(kept.caller_line, "new.py:20 in predict: width = self.width(x)");
  EXPECT_EQ(kept.golden_line, "old.py:20 in predict: width = self.width(x.detach())");
  const FirstDivergence outer = against(kInner, "loss = model('#', x)  # half");
  EXPECT_EQ(outer.caller_line, "new.py:40 in step: loss = model('#', x)  # half");
  EXPECT_EQ(outer.golden_line, "old.py:40 in step: loss = model(x)");
}

// A call that only the golden makes, by a function that both runs use elsewhere: the statement that
// the target does not have.
TEST(Where, TheStatementThatOneRunDoesNotHave) {
  const auto run = [](bool scales_truth, bool elsewhere = true) {
    DumpBuilder b;
    const auto scaled = [&](int index, int line, const test::Tensor& x, const test::Tensor& y) {
      b.Call("Torch.div." + std::to_string(index) + ".forward").In(x).Out(y);
      b.At("net.py", 3, "return x / self.std", "scaled");
      b.From("net.py", line, index == 0 ? "past = self.scaled(past)" : "truth = self.scaled(truth)",
             "forward");
      b.From("train.py", 7, "loss = model(batch)", "step");
    };
    const test::Tensor truth = Numbers(6, -3, 0.5, 9), small = Numbers(3, -1.5, 0.25, 4.5);
    if (elsewhere) scaled(0, 10, Numbers(1, -1, 0, 3), Numbers(0.5, -0.5, 0, 1.5));
    if (scales_truth) scaled(1, 11, truth, small);
    b.Call("Torch.g.0.forward").In(Numbers(0.5, -0.5, 0, 1.5)).In(scales_truth ? small : truth);
    b.Out(Numbers(scales_truth ? 4 : 5, -1, 0, 6)).At("net.py", 12, "return g(past, truth)");
    b.From("train.py", 7, "loss = model(batch)", "step");
    return b.Take();
  };
  const FirstDivergence missing = MustCompare(run(false), run(true)).first;
  EXPECT_EQ(missing.source_line, "net.py:3 in scaled: return x / self.std");
  EXPECT_EQ(missing.caller_line, "net.py:11 in forward: truth = self.scaled(truth)");
  const FirstDivergence added = MustCompare(run(true), run(false)).first;
  EXPECT_EQ(added.caller_line, "net.py:11 in forward: truth = self.scaled(truth)");
  // Of lines that the target has nowhere, the one that calls the others.
  const FirstDivergence alone = MustCompare(run(false, false), run(true, false)).first;
  EXPECT_EQ(alone.source_line, "net.py:3 in scaled: return x / self.std");
  EXPECT_EQ(alone.caller_line, "net.py:11 in forward: truth = self.scaled(truth)");
}

}  // namespace
}  // namespace msprobe::compare
