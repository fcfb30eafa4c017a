// MindSpore against PyTorch: which calls and values are paired, and what counts as a difference.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>

#include "engine/compare/align/align.h"
#include "engine/compare/align/mapping.h"
#include "engine/compare/align/mindspore_apis.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using ::testing::Contains;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A tensor that is recognised by its numbers: those of another `seed` are another tensor.
test::Tensor Seeded(int seed, const char* shape) {
  return Numbers(1 + seed, -2 - seed, 0.1 * seed, 5 + seed).Shape(shape);
}

Comparison CompareFrameworks(Dump target, Dump golden) {
  CompareOptions options;
  Result<NameMapping> mapping = BuildMapping({}, target, golden);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  options.mapping = *mapping;
  return MustCompare(std::move(target), std::move(golden), options);
}

// "Target call" -> "golden call" of all pairs; of values likewise.
std::multimap<std::string, std::string> PairedCalls(const Comparison& c) {
  std::multimap<std::string, std::string> out;
  for (const RecordPair& pair : c.pairs) {
    if (!pair.matched()) continue;
    out.emplace(c.target.records[pair.target].name, c.golden.records[pair.golden].name);
  }
  return out;
}
std::multimap<std::string, std::string> PairedValues(const Comparison& c) {
  std::multimap<std::string, std::string> out;
  for (const Row& row : c.rows) {
    if (row.target < 0 || row.golden < 0) continue;
    out.emplace(c.target.leaves[row.target].name, c.golden.leaves[row.golden].name);
  }
  return out;
}
int64_t Differing(const Comparison& c) {
  return std::count_if(c.measures.begin(), c.measures.end(),
                       [](const Measure& m) { return m.verdict == RowVerdict::kDiffers; });
}
// Every leaf of both dumps is in a row, and none twice without need.
void ExpectWhole(const Comparison& c) {
  std::vector<int> target(c.target.leaves.size()), golden(c.golden.leaves.size());
  for (const Row& row : c.rows) {
    if (row.target >= 0) ++target[row.target];
    if (row.golden >= 0) ++golden[row.golden];
  }
  for (size_t i = 0; i < target.size(); ++i)
    EXPECT_GE(target[i], 1) << c.target.leaves[i].name.view();
  for (size_t j = 0; j < golden.size(); ++j)
    EXPECT_GE(golden[j], 1) << c.golden.leaves[j].name.view();
}

// x [4, 4], weight [4, 4], bias [4]: shapes alone do not tell x from the weight.
Dump MindSporeDense(double error = 0) {
  DumpBuilder b;
  b.dump().framework = "mindspore";
  const auto x = Seeded(1, "[4, 4]"), w = Seeded(2, "[4, 4]"), bias = Seeded(3, "[4]"),
             y = Seeded(4, "[4, 4]"), z = Scaled(Seeded(5, "[4, 4]"), error);
  const char* module = "Cell.fc.Dense.forward.0";
  b.Call("Primitive.shape_op.Shape.0.forward").In(x).Parent(module);
  b.Call("Primitive.matmul.MatMul.0.forward").In(x).In(w).Out(y).Parent(module);
  b.Call("Primitive.bias_add.BiasAdd.0.forward").In(y).In(bias).Out(z).Parent(module);
  b.Call(module).In(x).Out(z).Parameter("weight", w).Parameter("bias", bias);
  const auto dz = Seeded(6, "[4, 4]"), dx = Seeded(7, "[4, 4]"), dw = Seeded(8, "[4, 4]"),
             db = Seeded(9, "[4]");
  // Gradients in the order in which they arrive.
  b.Call("Primitive.bias_add.BiasAdd.0.backward").In(dz).Out(db).Out(dz);
  b.Call("Primitive.matmul.MatMul.0.backward").In(dz).Out(dw).Out(dx);
  Dump dump = b.Take();
  dump.dialect = Dialect::kMsprobe26;
  return dump;
}

Dump PyTorchLinear(double error = 0) {
  DumpBuilder b;
  const auto x = Seeded(1, "[4, 4]"), w = Seeded(2, "[4, 4]"), bias = Seeded(3, "[4]"),
             z = Scaled(Seeded(5, "[4, 4]"), error);
  b.Call("Functional.linear.0.forward")
      .In(x)
      .In(w)
      .In(bias)
      .Out(z)
      .Parent("Module.fc.Linear.forward.0");
  b.Call("Module.fc.Linear.forward.0").In(x).Out(z).Parameter("weight", w).Parameter("bias", bias);
  b.Call("Functional.linear.0.backward")
      .In(Seeded(6, "[4, 4]"))
      .Out(Seeded(7, "[4, 4]"))
      .Out(Seeded(8, "[4, 4]"))
      .Out(Seeded(9, "[4]"));
  Dump dump = b.Take();
  dump.dialect = Dialect::kMsprobe27;
  return dump;
}

TEST(MindSporeApis, Relations) {
  EXPECT_EQ(RelationOf("Primitive.conv2d.Conv2D", "Functional.conv1d"), Relation::kSame);
  EXPECT_EQ(RelationOf("Primitive.layer_norm.LayerNorm", "Functional.layer_norm"), Relation::kSame);
  EXPECT_EQ(RelationOf("Mint.tanh", "Torch.tanh"), Relation::kSame);
  EXPECT_EQ(RelationOf("Functional.greater", "Torch.gt"), Relation::kSame);
  EXPECT_EQ(RelationOf("Tensor.__truediv__", "Torch.div"), Relation::kSame);
  EXPECT_EQ(RelationOf("Primitive.bias_add.BiasAdd", "Functional.linear"), Relation::kEndsGolden);
  EXPECT_EQ(RelationOf("Functional.mse_loss", "Functional.mean"), Relation::kEndsTarget);
  EXPECT_EQ(RelationOf("Functional.relu", "Torch.tanh"), Relation::kNone);
  // Two names of linear's list; but a sum of products is not always one with a bias.
  EXPECT_EQ(RelationOf("Functional.linear", "Torch.bmm"), Relation::kNone);
  EXPECT_EQ(PyTorchClassOf("Dense"), "Linear");
  EXPECT_EQ(MindSporeClassOf("ConvTranspose2d"), "Conv2dTranspose");
  EXPECT_EQ(PyTorchClassOf("MyBlock"), "MyBlock");
}

TEST(Frameworks, OneCallAgainstItsParts) {
  const Comparison c = CompareFrameworks(MindSporeDense(), PyTorchLinear());
  EXPECT_THAT(PairedCalls(c),
              UnorderedElementsAre(
                  Pair("Primitive.matmul.MatMul.0.forward", "Functional.linear.0.forward"),
                  Pair("Primitive.bias_add.BiasAdd.0.forward", "Functional.linear.0.forward"),
                  Pair("Cell.fc.Dense.forward.0", "Module.fc.Linear.forward.0"),
                  Pair("Primitive.bias_add.BiasAdd.0.backward", "Functional.linear.0.backward"),
                  Pair("Primitive.matmul.MatMul.0.backward", "Functional.linear.0.backward")));
  const auto values = PairedValues(c);
  const auto one = [](const char* target, const char* golden) {
    return Contains(Pair(std::string(target), std::string(golden)));
  };
  EXPECT_THAT(values, one("Primitive.matmul.MatMul.0.forward.input.0",
                          "Functional.linear.0.forward.input.0"));
  EXPECT_THAT(values, one("Primitive.matmul.MatMul.0.forward.input.1",
                          "Functional.linear.0.forward.input.1"));
  EXPECT_THAT(values, one("Primitive.bias_add.BiasAdd.0.forward.input.1",
                          "Functional.linear.0.forward.input.2"));
  // The gradient of the weight arrives first.
  EXPECT_THAT(values, one("Primitive.matmul.MatMul.0.backward.output.0",
                          "Functional.linear.0.backward.output.1"));
  EXPECT_THAT(values, one("Primitive.matmul.MatMul.0.backward.output.1",
                          "Functional.linear.0.backward.output.0"));
  EXPECT_EQ(values.count("Primitive.bias_add.BiasAdd.0.forward.input.0"), 0u);
  EXPECT_EQ(Differing(c), 0);
  EXPECT_EQ(c.first.pair, -1);
  ExpectWhole(c);
}

TEST(Frameworks, TheOtherWayRound) {
  const Comparison c = CompareFrameworks(PyTorchLinear(), MindSporeDense());
  EXPECT_EQ(PairedCalls(c).size(), 5u);
  EXPECT_THAT(PairedValues(c), Contains(Pair("Functional.linear.0.backward.output.1",
                                             "Primitive.matmul.MatMul.0.backward.output.0")));
  EXPECT_EQ(Differing(c), 0);
  ExpectWhole(c);
}

TEST(Frameworks, AWrongResultIsIntroducedWhereThePartsEnd) {
  for (const bool mindspore : {true, false}) {
    const Comparison c = mindspore ? CompareFrameworks(MindSporeDense(0.1), PyTorchLinear())
                                   : CompareFrameworks(PyTorchLinear(0.1), MindSporeDense());
    ASSERT_GE(c.first.pair, 0);
    const RecordPair& pair = c.pairs[c.first.pair];
    // Of the two calls that stand for a linear layer the first makes nothing that the other run
    // has.
    EXPECT_EQ(c.target.records[pair.target].name,
              mindspore ? "Primitive.matmul.MatMul.0.forward" : "Functional.linear.0.forward");
    EXPECT_EQ(c.classes[c.first.pair], CallClass::kIntroduced);
  }
}

// A call number says nothing: relu is a Primitive in one framework, and an API in the other.
TEST(Frameworks, CallsArePairedInTheirModules) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto small = [](int seed) { return Seeded(seed, "[2, 8]"); };
  t.Call("Primitive.relu.ReLU.0.forward")
      .In(small(1))
      .Out(small(2))
      .Parent("Cell.act.ReLU.forward.0");
  t.Call("Cell.act.ReLU.forward.0").In(small(1)).Out(small(2));
  t.Call("MintFunctional.relu.0.forward").In(small(3)).Out(small(4));
  g.Call("Functional.relu.0.forward")
      .In(small(1))
      .Out(small(2))
      .Parent("Module.act.ReLU.forward.0");
  g.Call("Module.act.ReLU.forward.0").In(small(1)).Out(small(2));
  g.Call("Functional.relu.1.forward").In(small(3)).Out(small(4));
  const Comparison c = CompareFrameworks(t.Take(), g.Take());
  EXPECT_THAT(
      PairedCalls(c),
      UnorderedElementsAre(Pair("Primitive.relu.ReLU.0.forward", "Functional.relu.0.forward"),
                           Pair("Cell.act.ReLU.forward.0", "Module.act.ReLU.forward.0"),
                           Pair("MintFunctional.relu.0.forward", "Functional.relu.1.forward")));
}

TEST(Frameworks, ParametersUnderTheirNames) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  t.Call("Cell.bn.BatchNorm2d.forward.0")
      .Out(Seeded(0, "[2, 4]"))
      .Parameter("moving_mean", Seeded(1, "[4]"))
      .Parameter("moving_variance", Seeded(2, "[4]"))
      .Parameter("gamma", Seeded(3, "[4]"))
      .Parameter("beta", Seeded(4, "[4]"));
  t.Call("Cell.own.Scale.forward.0").Out(Seeded(0, "[2, 4]")).Parameter("w", Seeded(5, "[4]"));
  g.Call("Module.bn.BatchNorm2d.forward.0")
      .Out(Seeded(0, "[2, 4]"))
      .Parameter("weight", Seeded(3, "[4]"))
      .Parameter("bias", Seeded(4, "[4]"));
  g.Call("Module.own.Scale.forward.0").Out(Seeded(0, "[2, 4]")).Parameter("w", Seeded(5, "[4]"));
  const Comparison c = CompareFrameworks(t.Take(), g.Take());
  const auto values = PairedValues(c);
  EXPECT_THAT(values, Contains(Pair("Cell.bn.BatchNorm2d.forward.0.parameters.gamma",
                                    "Module.bn.BatchNorm2d.forward.0.parameters.weight")));
  EXPECT_THAT(values, Contains(Pair("Cell.own.Scale.forward.0.parameters.w",
                                    "Module.own.Scale.forward.0.parameters.w")));
  EXPECT_EQ(Differing(c), 0);
  int one_framework = 0;
  for (const Measure& m : c.measures) one_framework += m.reason == Reason::kOneFramework;
  EXPECT_EQ(one_framework, 2);  // moving_mean, moving_variance
}

TEST(Frameworks, AMatrixAndItsTranspose) {
  for (const double error : {0.0, 0.1}) {
    DumpBuilder t, g;
    t.dump().framework = "mindspore";
    t.Call("Mint.matmul.0.forward")
        .In(Seeded(1, "[2, 3]"))
        .In(Seeded(2, "[3, 4]"))
        .Out(Seeded(3, "[2, 4]"));
    g.Call("Torch.matmul.0.forward")
        .In(Seeded(1, "[2, 3]"))
        .In(Seeded(2, "[3, 4]"))
        .Out(Seeded(3, "[2, 4]"));
    t.Call("Mint.matmul.0.backward")
        .In(Seeded(4, "[2, 4]"))
        .Out(Seeded(5, "[2, 3]"))
        .Out(Seeded(6, "[3, 4]"));
    g.Call("Torch.matmul.0.backward")
        .In(Seeded(4, "[2, 4]"))
        .Out(Seeded(5, "[2, 3]"))
        .Out(Scaled(Seeded(6, "[4, 3]"), error));
    const Comparison c = CompareFrameworks(t.Take(), g.Take());
    EXPECT_EQ(Differing(c), error == 0 ? 0 : 1);
    EXPECT_EQ(std::count_if(c.measures.begin(), c.measures.end(),
                            [](const Measure& m) { return m.reason == Reason::kTransposed; }),
              1);
  }
}

// axis and dim are no difference while the results agree.
TEST(Frameworks, OtherArgumentsCountWhereTheResultDiffers) {
  for (const double error : {0.0, 0.1}) {
    DumpBuilder t, g;
    t.dump().framework = "mindspore";
    t.Call("Tensor.transpose.0.forward")
        .In(Seeded(1, "[2, 3]"))
        .Value("1", "int", "1")
        .Out(Seeded(2, "[3, 2]"));
    g.Call("Tensor.transpose.0.forward")
        .In(Seeded(1, "[2, 3]"))
        .Value("1", "int", "0")
        .Out(Scaled(Seeded(2, "[3, 2]"), error));
    const Comparison c = CompareFrameworks(t.Take(), g.Take());
    EXPECT_EQ(c.first.pair >= 0, error > 0);
  }
}

// Two calls of one operation: the one that takes the same shapes is the partner.
TEST(Frameworks, AnInsertedCallHasNoPartner) {
  for (const bool target : {true, false}) {
    DumpBuilder t, g;
    t.dump().framework = "mindspore";
    const auto x = Seeded(1, "[2, 8]"), y = Seeded(2, "[2, 8]"), scaled = Seeded(3, "[2, 8]"),
               out = Seeded(4, "[2, 8]");
    if (target) t.Call("Tensor.__mul__.0.forward").In(x).Value("1", "float", "1.01").Out(scaled);
    t.Call("Functional.mul.0.forward")
        .In(target ? scaled : x)
        .In(y)
        .Out(target ? out : Seeded(5, "[2, 8]"));
    if (!target) g.Call("Tensor.__mul__.0.forward").In(x).Value("1", "float", "1.01").Out(scaled);
    g.Call("Torch.mul.0.forward")
        .In(target ? x : scaled)
        .In(y)
        .Out(target ? Seeded(5, "[2, 8]") : out);
    const Comparison c = CompareFrameworks(t.Take(), g.Take());
    EXPECT_THAT(PairedCalls(c),
                UnorderedElementsAre(Pair("Functional.mul.0.forward", "Torch.mul.0.forward")));
    ASSERT_GE(c.first.pair, 0);
    EXPECT_FALSE(c.pairs[c.first.pair].matched());
  }
}

// Without a module around them, and with other numbers than those of the golden.
TEST(Frameworks, PairsDoNotDependOnTheValues) {
  Dump target = MindSporeDense(0.5);
  Dump golden = PyTorchLinear();
  for (Dump* dump : {&target, &golden}) {
    for (Record& r : dump->records) r.parent = TextRef();
  }
  const Comparison c = CompareFrameworks(std::move(target), std::move(golden));
  EXPECT_THAT(PairedCalls(c), Contains(Pair("Primitive.bias_add.BiasAdd.0.forward",
                                            "Functional.linear.0.forward")));
}

TEST(Frameworks, BatchNormTakesItsTensorsInAnotherOrder) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto x = Seeded(1, "[2, 4]"), gamma = Seeded(2, "[4]"), beta = Seeded(3, "[4]"),
             mean = Seeded(4, "[4]"), var = Seeded(5, "[4]"), y = Seeded(6, "[2, 4]");
  t.Call("Primitive.bn_train.BatchNorm.0.forward").In(x).In(gamma).In(beta).In(mean).In(var).Out(y);
  g.Call("Functional.batch_norm.0.forward").In(x).In(mean).In(var).In(gamma).In(beta).Out(y);
  Dump target = t.Take(), golden = g.Take();
  EXPECT_EQ(Differing(CompareFrameworks(std::move(target), std::move(golden))), 0);
}

// MindSpore returns more than PyTorch, which changes its running statistics: two different things.
TEST(Frameworks, RunningStatisticsAreNoPartnerOfResults) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto x = Seeded(1, "[2, 4]"), a = Seeded(2, "[4]"), y = Seeded(6, "[2, 4]");
  t.Call("Primitive.bn_train.BatchNorm.0.forward").In(x).In(a).In(a).In(a).In(a);
  t.Value("is_training", "bool", "False").Out(y).Out(Seeded(7, "[4]")).Out(Seeded(8, "[4]"));
  g.Call("Functional.batch_norm.0.forward").In(x).In(a).In(a).In(a).In(a);
  g.Value("training", "bool", "True").Out(Scaled(y, 0.1)).Changed("input.1", Seeded(9, "[4]"));
  const Comparison c = CompareFrameworks(t.Take(), g.Take());
  EXPECT_THAT(PairedValues(c),
              Contains(Pair(std::string("Primitive.bn_train.BatchNorm.0.forward.input.is_training"),
                            std::string("Functional.batch_norm.0.forward.input.training"))));
  EXPECT_EQ(Differing(c), 2);  // the result, and the flag
}

TEST(Frameworks, AGradientThatOnlyOneComputesIsNoDifference) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto x = Seeded(1, "[2, 4]"), y = Seeded(2, "[2, 4]");
  t.Call("Cell.norm.LayerNorm.forward.0").In(x).Out(y);
  t.Call("Cell.norm.LayerNorm.backward.0").In(y).Out(Seeded(3, "[2, 4]"));
  g.Call("Module.norm.LayerNorm.forward.0").In(x).Out(y);
  g.Call("Module.norm.LayerNorm.backward.0").In(y).Null(Slot::kOutput);
  EXPECT_EQ(Differing(CompareFrameworks(t.Take(), g.Take())), 0);
}

TEST(Frameworks, StepsOfOptimizersArePairedByNames) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto a = Seeded(1, "[4]"), b = Seeded(2, "[4]"), m = Seeded(3, "[4]");
  t.Call("Optimizer.Adam.step.0.forward").Value("param_groups.0.lr", "float", "0.1");
  t.Kwarg("weights.norm.beta", b).Kwarg("weights.norm.gamma", a);
  t.Kwarg("state.norm.gamma.moment1", m);
  g.Call("Optimizer.AdamW.step.0.forward").Value("param_groups.0.lr", "float", "0.2");
  g.Kwarg("weights.norm.weight", a).Kwarg("weights.norm.bias", b);
  g.Kwarg("state.norm.weight.exp_avg", m);
  const Comparison c = CompareFrameworks(t.Take(), g.Take());
  EXPECT_EQ(PairedValues(c).size(), 4u);
  EXPECT_EQ(c.measures[0].reason, Reason::kWithoutEffect);  // the rate, which moved nothing
}

// MindSpore keeps a moment that it does not use, PyTorch counts steps for each weight: the shapes
// are the same but for an extent of 1.
TEST(Frameworks, AMomentThatOneOptimizerKeepsHasNoPartner) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  const auto w = Seeded(1, "[1]"), unused = Seeded(3, "[1]"), steps = Seeded(4, "[]");
  t.Call("Optimizer.AdamW.step.0.forward").Kwarg("weights.fc.bias", w);
  t.OutAt("0.weights.fc.bias", w).OutAt("0.state.fc.bias.max_exp_avg_sq", unused);
  g.Call("Optimizer.AdamW.step.0.forward").Kwarg("weights.fc.bias", w);
  g.OutAt("0.weights.fc.bias", w).OutAt("0.state.fc.bias.step", steps);
  EXPECT_EQ(Differing(CompareFrameworks(t.Take(), g.Take())), 0);
}

// The names of weights.json: a name that the other program has, too, stays.
TEST(Frameworks, WeightsUnderTheNamesOfPyTorch) {
  const auto names = [](std::vector<std::string_view> mindspore,
                        std::vector<std::string_view> pytorch) {
    Dump t, g;
    t.framework = "mindspore";
    for (const std::string_view name : mindspore) t.weights.push_back({name, "fp"});
    for (const std::string_view name : pytorch) g.weights.push_back({name, "fp"});
    NameWeightsAlike(&t, &g);
    std::vector<std::string> out;
    for (const Weight& weight : t.weights) out.emplace_back(weight.name);
    return out;
  };
  EXPECT_THAT(names({"bn.gamma", "bn.moving_mean", "fc.weight", "alone.beta"},
                    {"bn.weight", "bn.running_mean", "fc.weight"}),
              testing::ElementsAre("bn.weight", "bn.running_mean", "fc.weight", "alone.beta"));
  EXPECT_THAT(names({"x.gamma"}, {"x.gamma", "x.weight"}), testing::ElementsAre("x.gamma"));
}

TEST(Frameworks, ADataMappingThatNamesNothingIsSaid) {
  const TemporaryFolder folder;
  const std::string path =
      folder.Write("names.yaml", "Torch.no.0.forward.input.0: Torch.no.0.forward.input.0\n");
  const Dump target = MindSporeDense(), golden = PyTorchLinear();
  const Result<NameMapping> mapping = BuildMapping({.data_file = path}, target, golden);
  ASSERT_TRUE(mapping.ok());
  EXPECT_THAT(mapping->notes, testing::ElementsAre("the data mapping names nothing in the target"));
}

}  // namespace
}  // namespace msprobe::compare
