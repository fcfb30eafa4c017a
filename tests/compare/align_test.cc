#include "engine/compare/align/align.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "engine/compare/align/strangers.h"
#include "engine/compare/model/record_keys.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::Numbers;
using test::Tensor;

// One call of a synthetic run. Edits keep `truth`, so calls of two runs with equal `truth` are
// partners.
struct CallStep {
  std::string api, parent, shape;
  int line = 0;
  bool backward = false;  // whether it also has a backward call
  int truth = 0;
};

std::vector<CallStep> Network(int layers) {
  std::vector<CallStep> steps;
  int truth = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const std::string path = "Module.layers." + std::to_string(layer);
    const auto add = [&](std::string api, std::string block, std::string shape, int line) {
      steps.push_back({std::move(api), path + block, std::move(shape), line, true, truth++});
    };
    add("Functional.layer_norm", ".ln1.LayerNorm", "[4, 16, 64]", 10);
    for (int i = 0; i < 3; ++i) add("Functional.linear", ".attn.Attention", "[4, 16, 64]", 20 + i);
    add("Torch.matmul", ".attn.Attention", "[4, 8, 16, 16]", 24);
    add("Functional.softmax", ".attn.Attention", "[4, 8, 16, 16]", 25);
    add("Torch.matmul", ".attn.Attention", "[4, 8, 16, 8]", 26);
    add("Functional.linear", ".attn.Attention", "[4, 16, 64]", 27);
    add("Tensor.__add__", ".Block", "[4, 16, 64]", 40);
    add("Functional.linear", ".mlp.MLP", "[4, 16, 256]", 51);
    add("Functional.gelu", ".mlp.MLP", "[4, 16, 256]", 52);
    add("Functional.linear", ".mlp.MLP", "[4, 16, 64]", 53);
    add("Tensor.__add__", ".Block", "[4, 16, 64]", 41);
  }
  return steps;
}

struct Built {
  Dump dump;
  std::vector<int> truth;  // one for each record; for backward records truth + 1,000,000
};

// Numbers calls in order, as the tools do, and appends the backward pass in reverse.
Built Build(const std::vector<CallStep>& steps, bool stacks = true, bool parents = true) {
  Built out;
  DumpBuilder b;
  std::map<std::string, int> calls;
  std::vector<std::pair<std::string, int>> backward;
  for (const CallStep& s : steps) {
    const std::string call = s.api + "." + std::to_string(calls[s.api]++);
    Tensor t = Numbers(1 + s.truth, -1, 0.25, 3 + s.truth);
    b.Call(call + ".forward").In(t.Shape(s.shape)).Out(t);
    if (parents) b.Parent(s.parent + ".forward.0");
    if (stacks) b.At("model.py", s.line, "line " + std::to_string(s.line));
    out.truth.push_back(s.truth);
    if (s.backward) backward.emplace_back(call + ".backward", s.truth);
  }
  for (auto it = backward.rbegin(); it != backward.rend(); ++it) {
    b.Call(it->first).In(Numbers(1, -1, 0, it->second)).Out(Numbers(2, -1, 0, it->second));
    out.truth.push_back(it->second + 1000000);
  }
  out.dump = b.Take();
  return out;
}

struct Score {
  int right = 0, wrong = 0, missed = 0;
  double share() const { return static_cast<double>(right) / std::max(1, right + wrong + missed); }
};

Score Check(const Built& target, const Built& golden, const CompareOptions& options = {}) {
  const std::vector<Partner> partners = AlignRecords(target.dump, golden.dump, options);
  std::map<int, int> golden_of;
  for (size_t g = 0; g < golden.truth.size(); ++g) golden_of[golden.truth[g]] = static_cast<int>(g);
  Score score;
  for (size_t t = 0; t < partners.size(); ++t) {
    const auto it = golden_of.find(target.truth[t]);
    const int expected = it == golden_of.end() ? -1 : it->second;
    if (partners[t].golden == expected) {
      ++score.right;
    } else {
      ++(partners[t].golden < 0 ? score.missed : score.wrong);
    }
  }
  return score;
}

TEST(AlignTest, EqualNamesPairByPosition) {
  const Built a = Build(Network(3)), b = Build(Network(3));
  EXPECT_EQ(Check(a, b).share(), 1);
  for (const Partner& p : AlignRecords(a.dump, b.dump, {})) EXPECT_EQ(p.confidence, 1);
}

// Our dumps omit frames that dumps of msprobe 26 have. The scripts differ too.
TEST(AlignTest, AStackIsKnownWithoutTheFramesOfModuleCalls) {
  const auto key = [](std::vector<std::string_view> frames) {
    Dump dump;
    dump.stacks = {std::move(frames)};
    return RecordKeys(dump, {.stacks = true}, nullptr).Stack({.stack = 0});
  };
  const std::string_view forward = "File linear.py, line 9, in forward, \n return F.linear(x)";
  const std::string_view helper = "File net.py, line 3, in act, \n return gelu(x)";
  const std::string_view wrapped = "File module.py, line 1, in _wrapped_call_impl, \n return";
  const std::string_view call = "File module.py, line 2, in _call_impl, \n return forward_call()";
  EXPECT_EQ(key({forward, call, wrapped, helper}),
            key({forward, "File train.py, line 1, in loss"}));
  EXPECT_EQ(key({helper, forward, call, wrapped}), key({helper, forward, helper}));
  EXPECT_NE(key({helper, forward}), key({forward}));
  EXPECT_NE(key({helper, helper}), key({helper}));
}

// After an insertion, Functional.linear.5 of one run is Functional.linear.6 of the other.
TEST(AlignTest, AnInsertedCallDoesNotShiftTheRest) {
  std::vector<CallStep> steps = Network(6), more = steps;
  more.insert(more.begin() + 17,
              {"Functional.linear", "Module.layers.1.extra.Linear", "[4, 16, 64]", 99, true, -7});
  const Built target = Build(more), golden = Build(steps);
  EXPECT_EQ(Check(target, golden).share(), 1);
  const Score by_name = Check(target, golden, {.alignment = Alignment::kNames});
  EXPECT_GT(by_name.wrong, 20);  // what the older tools did
}

TEST(AlignTest, WithoutStacksAndModulesToo) {
  std::vector<CallStep> steps = Network(6), more = steps;
  more.insert(more.begin() + 17, {"Functional.linear", "", "[4, 16, 8]", 99, true, -7});
  EXPECT_EQ(Check(Build(more, false, false), Build(steps, false, false)).share(), 1);
}

// Without stacks and modules all layers look alike: only values show which layer was removed.
TEST(AlignTest, ARemovedLayerIsFoundByItsValues) {
  const std::vector<CallStep> steps = Network(12);
  for (const int layer : {0, 4, 11}) {
    std::vector<CallStep> less = steps;
    less.erase(less.begin() + layer * 13, less.begin() + (layer + 1) * 13);
    EXPECT_GE(Check(Build(less, false, false), Build(steps, false, false)).share(), 0.99) << layer;
    EXPECT_GE(Check(Build(steps, false, false), Build(less, false, false)).share(), 0.99) << layer;
  }
}

// By keys alone the second run of the block, which nobody edited, looks more like the golden's.
TEST(AlignTest, OfARepeatedBlockTheEditedRunIsFoundByItsValues) {
  const std::vector<CallStep> golden = Network(2);
  std::vector<CallStep> target = golden, again(golden.begin(), golden.begin() + 13);
  for (CallStep& step : again) step.truth = -1000 - step.truth;
  target.erase(target.begin() + 4);
  target[8].api = "Torch.qwxj";
  target.insert(target.begin() + 12, again.begin(), again.end());
  EXPECT_GE(Check(Build(target), Build(golden)).share(), 0.9);
  EXPECT_GE(Check(Build(golden), Build(target)).share(), 0.9);
}

// Two calls that have no partner, each with a backward record that looks like the other one. A loop
// over experts: expert `first + i` gets the tokens `i`, of `count` experts. An expert without
// tokens is not called.
Dump NumberedExperts(int first, int count) {
  DumpBuilder b;
  const auto tensor = [](const std::string& name, int id) {
    return Numbers(1 + id, -1 - id, 0.5 * id, 3 + id).Print(name + std::to_string(id));
  };
  for (int i = 0; i < count; ++i) {
    const int expert = first + i;
    b.Call("Functional.linear." + std::to_string(i) + ".forward");
    b.In(tensor("tokens", i)).In(tensor("weights", 10 + expert));
    b.Out(tensor("result", 20 + i + 5 * expert)).At("moe.py", 7, "y = expert(x)");
  }
  return b.Take();
}

// With a wrong router the tokens are those of another expert; its weights tell which expert it is.
TEST(AlignTest, OfALoopTheOwnArgumentsTellWhichPassItIs) {
  const Dump target = NumberedExperts(1, 3), golden = NumberedExperts(0, 4);
  const std::vector<Partner> partners = AlignRecords(target, golden, {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(partners[i].golden, i + 1) << i;
}

TEST(AlignTest, ABackwardCallIsNotPairedWhereItsForwardCallIsNot) {
  std::vector<CallStep> golden = Network(2), target = golden;
  target.erase(target.begin() + 7);
  CallStep inserted = golden[7];
  inserted.line = 900, inserted.truth = -7;
  target.insert(target.begin() + 20, inserted);
  const Built t = Build(target, true, false), g = Build(golden, true, false);
  EXPECT_EQ(Check(t, g).wrong, 0);
}

TEST(AlignTest, RandomEditsAreUndone) {
  std::mt19937 random(5);
  Score all;
  for (int round = 0; round < 60; ++round) {
    const std::vector<CallStep> golden = Network(8);
    std::vector<CallStep> target = golden;
    for (int edit = 0; edit < 6; ++edit) {
      const size_t at = random() % target.size();
      switch (random() % 3) {
        case 0:
          target.erase(target.begin() + at);
          break;
        case 1: {
          CallStep inserted = target[random() % target.size()];
          inserted.truth = -1 - edit - 10 * round;
          inserted.line = 900 + edit;
          target.insert(target.begin() + at, inserted);
          break;
        }
        case 2:
          target[at].api = target[at].api.substr(0, target[at].api.find('.')) + ".fast_" +
                           target[at].api.substr(target[at].api.find('.') + 1);
          break;
      }
    }
    const Score s = Check(Build(target), Build(golden));
    all.right += s.right, all.wrong += s.wrong, all.missed += s.missed;
  }
  EXPECT_GE(all.share(), 0.99) << all.wrong << " wrong, " << all.missed << " missed of "
                               << all.right;
}

TEST(AlignTest, AnotherBatchSizeStillAligns) {
  std::vector<CallStep> golden = Network(4), target = golden;
  for (CallStep& s : target) s.shape.replace(1, 1, "9");
  target.erase(target.begin() + 20);
  EXPECT_GE(Check(Build(target), Build(golden)).share(), 0.99);
}

TEST(AlignTest, AnEditedSourceFileStillAligns) {
  std::vector<CallStep> golden = Network(4), target = golden;
  for (CallStep& s : target) s.line += 100;  // other text in every frame
  target.erase(target.begin() + 20);
  EXPECT_GE(Check(Build(target), Build(golden)).share(), 0.99);
}

TEST(AlignTest, ARenamedModuleTreeStillAligns) {
  std::vector<CallStep> golden = Network(4), target = golden;
  for (CallStep& s : target) s.parent = "Module.module." + s.parent.substr(7);
  target.erase(target.begin() + 20);
  EXPECT_GE(Check(Build(target), Build(golden)).share(), 0.99);
}

TEST(AlignTest, ARenamedCallIsPairedWithLessConfidence) {
  std::vector<CallStep> golden = Network(2), target = golden;
  target[10].api = "Functional.fast_gelu";
  const Built t = Build(target), g = Build(golden);
  const auto partners = AlignRecords(t.dump, g.dump, {});
  EXPECT_EQ(partners[10].golden, 10);
  EXPECT_LT(partners[10].confidence, 1);
  EXPECT_GT(partners[10].confidence, 0.3);
}

// layer_norm and gelu against one fused call: neither of the two is its partner.
TEST(AlignTest, AFusedCallHasNoPartner) {
  std::vector<CallStep> golden = Network(2), target = golden;
  target.erase(target.begin() + 4, target.begin() + 7);  // matmul, softmax, matmul
  target.insert(target.begin() + 4,
                {"Functional.scaled_dot_product_attention", "Module.layers.0.attn.Attention",
                 "[4, 16, 64]", 24, true, -1});
  const Built t = Build(target), g = Build(golden);
  EXPECT_EQ(AlignRecords(t.dump, g.dump, {})[4].golden, -1);
  EXPECT_EQ(Check(t, g).share(), 1);
}

TEST(AlignTest, BackwardFollowsItsForwardInAnyOrder) {
  const std::vector<CallStep> steps = Network(2);
  Built t = Build(steps), g = Build(steps);
  // Swap two backward calls of the target: a branch that autograd ran first.
  const size_t n = steps.size();
  std::swap(t.dump.records[n + 3], t.dump.records[n + 9]);
  std::swap(t.truth[n + 3], t.truth[n + 9]);
  EXPECT_EQ(Check(t, g).share(), 1);
}

TEST(AlignTest, CallsInAnotherOrderArePairedByTheirSite) {
  std::vector<CallStep> golden = Network(3), target = golden;
  std::rotate(target.begin() + 13, target.begin() + 14,
              target.begin() + 18);  // one call of layer 1 runs later
  EXPECT_EQ(Check(Build(target), Build(golden)).share(), 1);
}

// Checkpointing: the forward runs again during backward and the backward calls carry the new
// numbers.
TEST(AlignTest, RecomputedBackwardIsPairedByOrder) {
  DumpBuilder t, g;
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i), again = std::to_string(4 + i);
    t.Call("Functional.linear." + n + ".forward").In(Numbers(i, 0, 0, 1)).Out(Numbers(i, 0, 0, 2));
    g.Call("Functional.linear." + n + ".forward").In(Numbers(i, 0, 0, 1)).Out(Numbers(i, 0, 0, 2));
  }
  for (int i = 3; i >= 0; --i) {
    t.Call("Functional.linear." + std::to_string(4 + i) + ".backward")
        .In(Numbers(i, 0, 0, 3))
        .Out(Numbers(i, 0, 0, 4));
    g.Call("Functional.linear." + std::to_string(i) + ".backward")
        .In(Numbers(i, 0, 0, 3))
        .Out(Numbers(i, 0, 0, 4));
  }
  const Dump target = t.Take(), golden = g.Take();
  const auto partners = AlignRecords(target, golden, {});
  for (int i = 0; i < 8; ++i) EXPECT_EQ(partners[i].golden, i);
}

TEST(AlignTest, GradientsOfParametersFollowNamesNotOrder) {
  DumpBuilder t, g;
  t.Call("Module.a.Linear.parameters_grad.0").Grad("weight", Numbers(1, 0, 0, 1));
  t.Call("Module.b.Linear.parameters_grad.0").Grad("weight", Numbers(1, 0, 0, 1));
  g.Call("Module.b.Linear.parameters_grad.0").Grad("weight", Numbers(1, 0, 0, 1));
  g.Call("Module.a.Linear.parameters_grad.0").Grad("weight", Numbers(1, 0, 0, 1));
  g.dump().records[0].call = -1;  // an older generation does not number them
  const Dump target = t.Take(), golden = g.Take();
  const auto partners = AlignRecords(target, golden, {});
  EXPECT_EQ(partners[0].golden, 1);
  EXPECT_EQ(partners[1].golden, 0);
}

TEST(AlignTest, EveryRecordAndLeafAppearsOnce) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<CallStep> a = Network(3), b = a;
    for (int i = 0; i < 8; ++i) a.erase(a.begin() + random() % a.size());
    for (int i = 0; i < 8; ++i) b.erase(b.begin() + random() % b.size());
    const Built t = Build(a), g = Build(b);
    const AlignedDumps aligned = AlignDumps(t.dump, g.dump, {});
    std::vector<int> records_t(t.dump.records.size(), 0), records_g(g.dump.records.size(), 0);
    std::vector<int> leaves_t(t.dump.leaves.size(), 0), leaves_g(g.dump.leaves.size(), 0);
    int32_t last = -1;
    uint32_t next_row = 0;
    for (const RecordPair& p : aligned.pairs) {
      if (p.target >= 0) {
        EXPECT_GT(p.target, last);  // the target's order is kept
        last = p.target;
        ++records_t[p.target];
      }
      if (p.golden >= 0) ++records_g[p.golden];
      EXPECT_EQ(p.first_row, next_row);
      next_row += p.row_count;
    }
    EXPECT_EQ(next_row, aligned.rows.size());
    for (const Row& r : aligned.rows) {
      if (r.target >= 0) ++leaves_t[r.target];
      if (r.golden >= 0) ++leaves_g[r.golden];
    }
    for (const auto& counts : {records_t, records_g, leaves_t, leaves_g}) {
      EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST(AlignTest, GoldenOnlyCallsStandAtTheirPlace) {
  DumpBuilder t, g;
  t.Call("Torch.a.0.forward")
      .Out(Numbers(1, 0, 0, 1))
      .Call("Torch.c.0.forward")
      .Out(Numbers(3, 0, 0, 1));
  g.Call("Torch.a.0.forward")
      .Out(Numbers(1, 0, 0, 1))
      .Call("Torch.bbbbbb.0.forward")
      .Out(Numbers(2, 0, 0, 1).Shape("[7]"));
  g.Call("Torch.c.0.forward").Out(Numbers(3, 0, 0, 1));
  const Dump target = t.Take(), golden = g.Take();
  const AlignedDumps a = AlignDumps(target, golden, {});
  ASSERT_EQ(a.pairs.size(), 3u);
  EXPECT_EQ(a.pairs[1].match, Match::kGoldenOnly);
  EXPECT_EQ(a.pairs[1].golden, 1);
}

TEST(AlignLeavesTest, PositionAgainstKeyword) {
  DumpBuilder t, g;
  t.Call("Functional.linear.0.forward")
      .In(Numbers(1, 0, 0, 1))
      .In(Numbers(2, 0, 0, 1).Shape("[3]"));
  g.Call("Functional.linear.0.forward")
      .In(Numbers(1, 0, 0, 1))
      .Kwarg("bias", Numbers(2, 0, 0, 1).Shape("[3]"));
  const Dump target = t.Take(), golden = g.Take();
  const AlignedDumps a = AlignDumps(target, golden, {});
  ASSERT_EQ(a.rows.size(), 2u);
  EXPECT_EQ(a.rows[1].match, Match::kAligned);
  EXPECT_LT(a.rows[1].confidence, 1);
}

TEST(AlignLeavesTest, OneSidedLeavesAreShown) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  g.Call("Torch.f.0.forward")
      .In(Numbers(1, 0, 0, 1))
      .Out(Numbers(1, 0, 0, 1))
      .Out(Numbers(1, 0, 0, 1).Shape("[9]"));
  const Dump target = t.Take(), golden = g.Take();
  const AlignedDumps a = AlignDumps(target, golden, {});
  ASSERT_EQ(a.rows.size(), 3u);
  EXPECT_EQ(a.rows[2].match, Match::kGoldenOnly);
}

TEST(AlignTest, MappedModulesPair) {
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  t.Call("Cell.net.fc.Dense.forward.0").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  t.Call("Mint.abs.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  g.Call("Torch.abs.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  g.Call("Module.net.linear.Linear.forward.0").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  g.Call("Torch.abs.1.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
  CompareOptions options;
  options.mapping.apis = {{"Cell.net.fc.Dense", "Module.net.linear.Linear"}};
  const Dump target = t.Take(), golden = g.Take();
  const auto partners = AlignRecords(target, golden, options);
  EXPECT_EQ(partners[0].golden, 1);
  EXPECT_EQ(partners[1].golden, 2);
}

Tensor Content(int number) { return Numbers(number + 1, -number, 0.5, 2 * number + 3); }

// The program calls fused_norm for norm, and a new norm beside it.
TEST(AlignTest, ACallThatTakesAndMakesTheSameValuesGoesBeforeOneOfTheSameName) {
  const auto dump = [](bool target) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Content(0)).Out(Content(1));
    if (target) {
      b.Call("Functional.norm.0.forward").In(Content(20)).Out(Content(21));
      b.Call("Functional.fused_norm.0.forward").In(Content(1)).Out(Content(2));
    } else {
      b.Call("Functional.norm.0.forward").In(Content(1)).Out(Content(2));
    }
    b.Call("Functional.relu.0.forward").In(Content(2)).Out(Content(3));
    return b.Take();
  };
  const Dump target = dump(true), golden = dump(false);
  std::vector<Partner> partners = AlignRecords(target, golden, {});
  EXPECT_EQ(partners[1].golden, -1);
  EXPECT_EQ(partners[2].golden, 1);
  partners = AlignRecords(golden, target, {});
  EXPECT_EQ(partners[1].golden, 2);
}

// An expert that runs once more is not told by the tokens it takes: its place in the loop decides.
TEST(AlignTest, ValuesDoNotPairRepeatedCallsOfOneFunction) {
  const auto dump = [](bool target) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Content(0)).Out(Content(1));
    for (int i = 0; i < 2; ++i) {
      b.Call(i == 0 ? "Tensor.nonzero.0.forward" : "Tensor.nonzero.1.forward");
      b.In(Content(target ? 30 - 10 * i : 20)).Out(Content(target ? 31 - 10 * i : 21));
      if (!target) break;
    }
    b.Call("Functional.relu.0.forward").In(Content(1)).Out(Content(3));
    return b.Take();
  };
  std::vector<Partner> partners(4);
  PartStrangers(dump(true), dump(false), {}, {}, &partners);  // without calls: nothing to do
  const Dump target = dump(true), golden = dump(false);
  const std::vector<uint32_t> calls{0, 1, 2, 3}, golden_calls{0, 1, 2};
  partners[0].golden = 0, partners[1].golden = 1, partners[3].golden = 2;
  PartStrangers(target, golden, calls, golden_calls, &partners);
  EXPECT_EQ(partners[1].golden, 1);
  EXPECT_EQ(partners[2].golden, -1);
}

// Where the call was split in two, the new one of its name is not its partner.
TEST(AlignTest, PartsOfACallGoBeforeOneOfTheSameName) {
  const auto dump = [](bool target, bool parts) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Content(0)).Out(Content(1));
    b.Call("Functional.norm.0.forward").In(Content(target ? 20 : 1)).Out(Content(target ? 21 : 2));
    if (parts) {
      b.Call("Torch.mean.0.forward").In(Content(1)).Out(Content(11));
      b.Call("Torch.div.0.forward").In(Content(11)).Out(Content(2));
    }
    b.Call("Functional.relu.0.forward").In(Content(2)).Out(Content(3));
    return b.Take();
  };
  const Dump golden = dump(false, false), split = dump(true, true), wrong = dump(true, false);
  EXPECT_EQ(AlignRecords(split, golden, {})[1].golden, -1);
  // Without them nothing contradicts the pair: the call takes other values.
  EXPECT_EQ(AlignRecords(wrong, golden, {})[1].golden, 1);
}

// Of three layers the target runs the second compiled. The norms' weights are all ones, and no
// value of the third layer agrees.
TEST(AlignTest, ModulesTellRepetitionsApart) {
  const auto run = [](bool compiled) {
    DumpBuilder b;
    for (int layer = 0, call = 0; layer < 3; ++layer) {
      if (compiled && layer == 1) continue;
      const std::string print = fmt::format("{}{}", layer, compiled && layer == 2 ? "t" : "g");
      const std::string module = fmt::format("Module.{}.norm.LayerNorm", layer);
      const double max = compiled && layer == 2 ? 9 : layer;
      b.Call(fmt::format("Functional.layer_norm.{}.forward", call))
          .In(Numbers(max, -1, 0, 3).Print("x" + print))
          .In(Numbers(1, 1, 1, 2).Print("ones"))
          .Out(Numbers(max, -2, 0, 5).Print("y" + print))
          .InModule(module);
      b.Call(fmt::format("Functional.linear.{}.forward", call++))
          .In(Numbers(max, -2, 0, 5).Print("y" + print))
          .In(Numbers(1, -1, 0, 2).Print(fmt::format("w{}", layer)))
          .Out(Numbers(max, -3, 0, 5).Print("z" + print));
    }
    return b.Take();
  };
  const Dump target = run(true), golden = run(false);
  const auto partners = AlignRecords(target, golden, {});
  ASSERT_EQ(partners.size(), 4u);
  EXPECT_EQ(partners[2].golden, 4);
  EXPECT_EQ(partners[3].golden, 5);
}

}  // namespace
}  // namespace msprobe::compare
