#include "engine/compare/align/mapping.h"

#include <gmock/gmock.h>

#include "engine/compare/align/mapping_files.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/align/rename.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

NameMapping MustBuild(const MappingRequest& request, const Dump& target, const Dump& golden) {
  Result<NameMapping> mapping = BuildMapping(request, target, golden);
  EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
  return mapping.ok() ? std::move(*mapping) : NameMapping();
}

TEST(Rename, AsSedHasIt) {
  const auto apply = [](const char* expression, const char* name) {
    const Result<Rename> rename = Rename::Parse(expression);
    EXPECT_TRUE(rename.ok()) << rename.status().ToString();
    return rename.ok() ? rename->Apply(name) : "";
  };
  EXPECT_EQ(apply("s/a/b/", "Module.a.a"), "Module.b.a");
  EXPECT_EQ(apply("s/a/b/g", "xaxa"), "xbxb");
  EXPECT_EQ(apply("s/A/b/gi", "xaxA"), "xbxb");
  EXPECT_EQ(apply("s|a/b|c|", "a/b"), "c");
  EXPECT_EQ(apply("s/a\\/b/c/", "a/b"), "c");
  EXPECT_EQ(apply("s/layers\\.([0-9]+)/blocks.\\1/", "m.layers.12.fc"), "m.blocks.12.fc");
  EXPECT_EQ(apply("s/x/[&]$\\&/", "x"), "[x]$&");
  EXPECT_EQ(apply("s/(x)/\\10/", "x"), "x0");
  EXPECT_EQ(apply("s/x//", "axb"), "ab");
  const std::string long_name(900, 'a');  // must not take exponential time
  EXPECT_EQ(apply("s/(a*)*b/c/", long_name.c_str()), long_name);
}

TEST(Rename, ErrorsNameTheMistakeAndItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "character 1"},
      {"a/b/c/", "character 1: expected s/from/to/"},
      {"sab", "character 2"},
      {"s/a", "character 4: expected '/' after the expression"},
      {"s/a/b", "character 6"},
      {"s//b/", "character 3: expected an expression"},
      {"s/a/b/x", "character 7: expected g, i or the end"},
      {"s/a(b/c/", "character 4"},
      {"s/ab)/c/", "character 5"},
      {"s/a[b/c/", "character 4"},
      {"s/*a/c/", "character 3"},
      {"s/(a)/\\2/", "which has 1"},
      {"s/(a)\\1/b/", "a regular expression"},
  };
  for (const auto& [expression, text] : cases) {
    const Status status = Rename::Parse(expression).status();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << expression;
    EXPECT_THAT(status.message(), HasSubstr(text)) << expression;
  }
}

TEST(MappingFiles, RefusedWithTheLine) {
  const TemporaryFolder folder;
  const auto flat = [&](const char* text) {
    return ReadNamePairs(folder.Write("m.yaml", text)).status().message();
  };
  EXPECT_THAT(flat("a: b\nc: [d]\n"), HasSubstr("m.yaml:2: expected a name, a colon"));
  EXPECT_THAT(flat("a: b\n\na: c\n"), HasSubstr("m.yaml:3: expected each name once"));
  EXPECT_THAT(flat("- a\n"), HasSubstr("m.yaml:1: expected a mapping of names"));
  EXPECT_THAT(flat("a: [b\n"), HasSubstr("m.yaml:"));
  const auto api = [&](const char* text) {
    return ReadApiMapping(folder.Write("m.yaml", text)).status().message();
  };
  EXPECT_THAT(api("- ms_api: a\n  pt_apj: b\n"), HasSubstr("m.yaml:2: expected ms_api, pt_api"));
  EXPECT_THAT(api("ms_api: a\n"), HasSubstr("each the name of an API"));
  EXPECT_THAT(api("ms_api: a\npt_api: b\nms_args: [0]\n"),
              HasSubstr("m.yaml:3: expected the list"));
  EXPECT_THAT(api("ms_api: a\npt_api: b\nms_args: 0\npt_args: 1\n"), HasSubstr("m.yaml:3"));
  const auto layer = [&](const char* text) {
    return ReadLayerMapping(folder.Write("m.yaml", text)).status().message();
  };
  EXPECT_THAT(layer("Top:\n  - a\n"), HasSubstr("m.yaml:2: expected children"));
  EXPECT_THAT(layer("Cell: {a: b}\nTopLayer: {c: d}\n"),
              HasSubstr("m.yaml:2: expected each class"));
}

TEST(MappingFiles, BothFormsOfAnApiMapping) {
  const TemporaryFolder folder;
  const char* one =
      "ms_api: Functional.f\npt_api: Torch.f\nms_output: [0, 1]\npt_outputs: [1, 0]\n";
  const Result<ApiMapping> single = ReadApiMapping(folder.Write("one.yaml", one));
  ASSERT_TRUE(single.ok()) << single.status().ToString();
  EXPECT_THAT(single->apis[0].outputs.pairs, ElementsAre(Pair("0", "1"), Pair("1", "0")));
  const Result<ApiMapping> list = ReadApiMapping(folder.Write(
      "list.yaml",
      "- ms_api: Functional.f\n  pt_api: Torch.f\n  ms_args: [0, 1]\n  pt_args: [1, 0]\n"
      "- {ms_api: Functional.g, pt_api: Torch.g, ms_output: [0], pt_output: [1]}\n"
      "- {ms_api: Functional.h, pt_api: Torch.h, ms_args: [0], pt_args: []}\n"));
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  ASSERT_EQ(list->apis.size(), 2u);
  EXPECT_THAT(list->apis[0].inputs.pairs, ElementsAre(Pair("0", "1"), Pair("1", "0")));
  EXPECT_THAT(list->apis[1].outputs.pairs, ElementsAre(Pair("0", "1")));
  ASSERT_EQ(list->skipped.size(), 1u);
  EXPECT_THAT(list->skipped[0].English(), HasSubstr("list.yaml:6: 1 of ms_args and 0 of pt_args"));
}

TEST(MindSporeApis, NamesOfTheOtherFramework) {
  EXPECT_EQ(PyTorchApiOf("Functional.abs", {}), "Torch.abs");
  EXPECT_EQ(PyTorchApiOf("Functional.relu", {}), "Functional.relu");
  EXPECT_EQ(PyTorchApiOf("Mint.add", {}), "Torch.add");
  EXPECT_EQ(PyTorchApiOf("MintFunctional.linear", {}), "Functional.linear");
  EXPECT_EQ(PyTorchApiOf("Functional.batch_matmul", {}), "Torch.bmm");
  EXPECT_EQ(PyTorchApiOf("Functional.batch_matmul", {"Torch.matmul"}), "Torch.matmul");
  EXPECT_EQ(MindSporeApiOf("Torch.abs", {}), "Functional.abs");
  EXPECT_EQ(MindSporeApiOf("Torch.add", {"Mint.add"}), "Mint.add");
}

TEST(Mapping, CellsByWholeNameAndByFragment) {
  const TemporaryFolder folder;
  DumpBuilder t, g;
  t.dump().framework = "mindspore";
  t.Call("Cell.net.fc.Dense.forward.0").Out(Numbers(1, 0, 0, 1));
  t.Call("Cell.encoder.0.Block.forward.0").Out(Numbers(2, 0, 0, 1));
  g.Call("Module.net.fc.Linear.forward.0").Out(Numbers(1, 0, 0, 1));
  const Dump target = t.Take(), golden = g.Take();
  const std::string file =
      folder.Write("cells.yaml", "net.fc.Dense: net.fc.Linear\nencoder: backbone\n");
  EXPECT_THAT(MustBuild({.cell_file = file}, target, golden).apis,
              ElementsAre(Pair("Cell.encoder.0.Block", "Module.backbone.0.Block"),
                          Pair("Cell.net.fc.Dense", "Module.net.fc.Linear")));
  EXPECT_THAT(MustBuild({.cell_file = ""}, target, golden).apis,
              testing::Contains(Pair("Cell.net.fc.Dense", "Module.net.fc.Linear")));
  EXPECT_THAT(
      MustBuild({.cell_file = folder.Write("no.yaml", "decoder: x\n"), .renames = {"s/zzz/y/"}},
                target, golden)
          .notes,
      ElementsAre("the cell mapping names nothing in the target",
                  "--rename s/zzz/y/ changes no name of the target"));
}

TEST(Mapping, ArgumentsOfAnApi) {
  const TemporaryFolder folder;
  DumpBuilder t, g;
  t.Call("Functional.f.0.forward")
      .In(Numbers(1, 0, 0, 1))
      .In(Numbers(2, 0, 0, 1))
      .Out(Numbers(3, 0, 0, 1));
  g.Call("Torch.f.0.forward")
      .In(Numbers(2, 0, 0, 1))
      .In(Numbers(9, 0, 0, 1))
      .Out(Numbers(3, 0, 0, 1));
  Dump target = t.Take(), golden = g.Take();
  const std::string file = folder.Write(
      "api.yaml", "ms_api: Functional.f\npt_api: Torch.f\nms_args: [1]\npt_args: [0]\n");
  const NameMapping mapping = MustBuild({.api_file = file}, target, golden);
  const Comparison c = MustCompare(std::move(target), std::move(golden), {.mapping = mapping});
  ASSERT_EQ(c.rows.size(), 4u);
  for (const Row& row : c.rows) {
    const std::string name = row.target < 0 ? "" : std::string(c.target.leaves[row.target].name);
    if (name.ends_with("input.0")) {
      EXPECT_LT(row.golden, 0);  // not listed
    } else if (name.ends_with("input.1")) {
      ASSERT_GE(row.golden, 0);
      EXPECT_EQ(c.golden.leaves[row.golden].max_value, 2);
    }
  }
}

TEST(Mapping, ValuesOfOtherCalls) {
  const TemporaryFolder folder;
  DumpBuilder t, g;
  t.Call("Torch.fused.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(5, 0, 0, 1));
  g.Call("Torch.mul.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(4, 0, 0, 1));
  g.Call("Torch.add.0.forward").In(Numbers(4, 0, 0, 1)).Out(Numbers(5, 0, 0, 1));
  Dump target = t.Take(), golden = g.Take();
  const std::string file =
      folder.Write("data.yaml",
                   "Torch.fused.0.forward.input.0: Torch.mul.0.forward.input.0\n"
                   "Torch.fused.0.forward.output.0: Torch.add.0.forward.output.0\n");
  const NameMapping mapping = MustBuild({.data_file = file}, target, golden);
  const Comparison c = MustCompare(std::move(target), std::move(golden), {.mapping = mapping});
  int paired = 0;
  std::vector<int> seen(c.golden.leaves.size(), 0);
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    if (row.golden >= 0) ++seen[row.golden];
    if (row.target < 0 || row.golden < 0) continue;
    ++paired;
    EXPECT_EQ(c.target.leaves[row.target].max_value, c.golden.leaves[row.golden].max_value);
    EXPECT_EQ(c.measures[i].verdict, RowVerdict::kEqual);
  }
  EXPECT_EQ(paired, 2);
  EXPECT_THAT(seen, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(DataMappingYaml(c),
              HasSubstr("\"Torch.fused.0.forward.output.0\": \"Torch.add.0.forward.output.0\"\n"));
}

TEST(Mapping, LayersByClass) {
  const TemporaryFolder folder;
  DumpBuilder t, g;
  t.dump().folder = g.dump().folder = folder.path();
  t.Call("Module.backbone.Net.forward.0").Out(Numbers(1, 0, 0, 1));
  t.Call("Module.backbone.0.Block.forward.0").Out(Numbers(1, 0, 0, 1));
  t.Call("Module.backbone.0.attn.qkv.Dense.forward.0").Out(Numbers(1, 0, 0, 1));
  g.Call("Module.model.0.attention.linear_qkv.Linear.forward.0").Out(Numbers(1, 0, 0, 1));
  const Dump target = t.Take(), golden = g.Take();
  const std::string file = folder.Write(
      "layers.yaml", "TopLayer:\n  backbone: model\nBlock:\n  attn.qkv: attention.linear_qkv\n");
  EXPECT_THAT(BuildMapping({.layer_file = file}, target, golden).status().message(),
              HasSubstr("construct.json beside it"));
  folder.Write("construct.json", "{}");
  folder.Write("stack.json", "{}");
  EXPECT_THAT(MustBuild({.layer_file = file}, target, golden).apis,
              testing::Contains(Pair("Module.backbone.0.attn.qkv.Dense",
                                     "Module.model.0.attention.linear_qkv.Linear")));
}

TEST(Mapping, LayersOfAPipelineStageCountFromTheGoldensFirst) {
  const TemporaryFolder folder;
  folder.Write("construct.json", "{}");
  folder.Write("stack.json", "{}");
  const auto stage = [&](std::initializer_list<int> layers) {
    DumpBuilder b;
    b.dump().folder = folder.path();
    for (const int layer : layers) {
      b.Call("Module.net.layers." + std::to_string(layer) + ".Block.forward.0")
          .Out(Numbers(1, 0, 0, 1));
    }
    return b.Take();
  };
  const NameMapping shifted = MustBuild({.layer_file = ""}, stage({4, 5}), stage({0, 1}));
  EXPECT_THAT(shifted.apis,
              ElementsAre(Pair("Module.net.layers.4.Block", "Module.net.layers.0.Block"),
                          Pair("Module.net.layers.5.Block", "Module.net.layers.1.Block")));
  EXPECT_THAT(shifted.notes,
              ElementsAre("net.layers.4 and on are net.layers.0 and on in the golden"));
  // A stage against the whole model, or layers with a gap: numbers are used without an offset.
  EXPECT_TRUE(MustBuild({.layer_file = ""}, stage({2, 3}), stage({0, 1, 2, 3})).apis.empty());
  EXPECT_TRUE(MustBuild({.layer_file = ""}, stage({2, 4}), stage({0, 1})).apis.empty());
}

}  // namespace
}  // namespace msprobe::compare
