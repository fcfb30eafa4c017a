#include "engine/dump/read/entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/dump/read/reader.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;

// A dump with one record that has these values.
Result<Dump> ReadValues(const TemporaryFolder& folder, std::string_view values) {
  return ReadDump(folder.Write("dump.json", Ours({"\"Torch.f.0.forward\": {\"input_args\": [" +
                                                  std::string(values) + "]}"})));
}

TEST(ReadDump, EqualApisShareOneText) {
  TemporaryFolder folder;
  const Result<Dump> dump =
      ReadDump(folder.Write("dump.json", Ours({"\"Torch.f.0.forward\": {\"input_args\": []}",
                                               "\"Torch.g.0.forward\": {\"input_args\": []}",
                                               "\"Torch.f.1.forward\": {\"input_args\": []}"})));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  ASSERT_EQ(dump->records.size(), 3u);
  const auto api = [&](size_t i) { return dump->records[i].api.view(); };
  EXPECT_EQ(api(0), "Torch.f");
  EXPECT_EQ(api(1), "Torch.g");
  EXPECT_EQ(api(2), "Torch.f");
  EXPECT_EQ(api(0).data(), api(2).data());
}

TEST(ReadDump, ValuesOfEveryKind) {
  struct Value {
    const char* json;
    const char* row;
  };
  const Value values[] = {
      {"{\"type\": \"int\", \"value\": 3}", "<class 'int'>|[]|N/A|3|3|3|3"},
      {"{\"type\": \"float\", \"value\": 1e-05}", "<class 'float'>|[]|N/A|1e-05|1e-05|1e-05|1e-05"},
      {"{\"type\": \"float\", \"value\": -Infinity}",
       "<class 'float'>|[]|N/A|-Infinity|-Infinity|-Infinity|-Infinity"},
      {"{\"type\": \"bool\", \"value\": true}", "<class 'bool'>|[]|N/A|True|True|True|True"},
      {"{\"type\": \"str\", \"value\": \"a\\tb\"}", "<class 'str'>|[]|N/A|a\tb|a\tb|a\tb|a\tb"},
      {"{\"type\": \"slice\", \"value\": [0, null, 2]}",
       "slice|(3,)|N/A|[0, None, 2]|[0, None, 2]|[0, None, 2]|[0, None, 2]"},
      {"{\"type\": \"ellipsis\", \"value\": \"...\"}", "ellipsis|[]|N/A|...|...|...|..."},
      {"{\"type\": \"torch.Size\", \"value\": [2, 3]}",
       "torch.Size|[2, 3]|N/A|None|None|None|None"},
      {"{\"type\": \"torch.dtype\", \"value\": \"torch.float16\"}",
       "<class 'str'>|[]|N/A|torch.float16|torch.float16|torch.float16|torch.float16"},
      {"{\"type\": \"torch.memory_format\", \"format\": \"channels_last\"}",
       "<class 'NoneType'>|[]|N/A|None|None|None|None"},
      {"{\"type\": \"torch.ProcessGroup\", \"group_ranks\": [0, 1], \"group_id\": \"a\"}",
       "torch.ProcessGroup|[]|N/A|[0, 1]|[0, 1]|[0, 1]|[0, 1]"},
      {"{\"type\": \"torch.Tensor\", \"dtype\": \"torch.bool\", \"shape\": [], \"Max\": true, "
       "\"Min\": false, \"Mean\": null, \"Norm\": null, "
       "\"requires_grad\": false}",
       "torch.bool|[]|False|True|False|None|None"},
      {"{\"type\": \"mindspore.Tensor\", \"dtype\": \"Float32\", \"shape\": [ 2,\n 3 ], \"Max\": "
       "NaN, \"Min\": 1, \"Mean\": 1, \"Norm\": 1}",
       "Float32|[2, 3]|N/A|NaN|1|1|1"},
      {"{\"dtype\": \"Float32\", \"shape\": [7], \"Max\": 1.0, \"type\": \"mindspore.Tensor\"}",
       "Float32|[7]|N/A|1.0|||"},
      {"null", "N/A|N/A|N/A|None|None|None|None"},
      {"7", "<class 'int'>|[]|N/A|7|7|7|7"},
  };
  TemporaryFolder folder;
  for (const Value& value : values) {
    const Result<Dump> dump = ReadValues(folder, value.json);
    ASSERT_TRUE(dump.ok()) << value.json << "\n" << dump.status().ToString();
    ASSERT_EQ(dump->leaves.size(), 1u) << value.json;
    EXPECT_EQ(Row(dump->leaves[0]), "Torch.f.0.forward.input.0|" + std::string(value.row));
  }
}

TEST(ReadDump, ContainersMakeNamesAndEmptyOnesNoRow) {
  TemporaryFolder folder;
  const Result<Dump> dump =
      ReadValues(folder,
                 "[], {}, [[1, {\"a\\u00e9\": 2, \"type\": {\"type\": \"int\", \"value\": 5}}]], "
                 "{\"class_type\": \"torch.distributed.P2POp\", \"tensor\": " +
                     std::string(kTensor) + ", \"op\": \"isend\", \"peer\": 1}");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  std::vector<std::string> names;
  for (const Leaf& leaf : dump->leaves) names.push_back(std::string(leaf.name.substr(18)));
  EXPECT_THAT(names, ElementsAre("input.2.0.0", "input.2.0.1.a\xc3\xa9", "input.2.0.1.type",
                                 "input.3", "input.3.op", "input.3.peer"));
}

TEST(ReadDump, TableOrderIsInputsKeywordsParametersOutputs) {
  TemporaryFolder folder;
  const std::string t(kTensor);
  const Result<Dump> dump = ReadDump(folder.Write(
      "dump.json",
      Ours({"\"Module.m.M.forward.0\": {\"output\": " + t + ", \"parameters\": {\"w\": " + t +
                "}, \"input_kwargs\": {\"k\": " + t +
                ", \"src\": {\"type\": \"int\", \"value\": 1}}, \"input_args\": [" + t +
                "], \"is_recompute\": false}",
            "\"Module.m.M.parameters_grad.0\": {\"w\": [" + t + "], \"b\": [null, 2]}",
            "\"x.0.debug\": {\"h\": " + t + "}"})));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  std::vector<std::string> names;
  for (const Leaf& leaf : dump->leaves) names.emplace_back(leaf.name);
  EXPECT_THAT(names, ElementsAre("Module.m.M.forward.0.input.0", "Module.m.M.forward.0.input.k",
                                 "Module.m.M.forward.0.input.src",
                                 "Module.m.M.forward.0.parameters.w", "Module.m.M.forward.0.output",
                                 "Module.m.M.parameters_grad.0.w", "Module.m.M.parameters_grad.0.b",
                                 "Module.m.M.parameters_grad.0.b.1", "x.0.debug.h"));
  EXPECT_EQ(dump->leaves[2].dtype, "int");
  EXPECT_EQ(dump->leaves[5].slot, Slot::kParameterGrad);
  EXPECT_EQ(dump->leaves[8].slot, Slot::kDebug);
}

// What only few values have: strides, memory that nobody wrote, numbers without the extremes. Many
// values, so that the file is read in pieces.
TEST(ReadDump, FactsOfSingleValuesBelongToTheirLeaves) {
  const std::string head = R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3])";
  std::string values;
  for (int i = 0; i < 9000; ++i) {
    values += i == 0 ? "" : ", ";
    values += head;
    if (i == 4) values += R"(, "stride": [1, 2])";
    if (i == 7) values += R"(, "unwritten": "Torch.empty.0.forward")";
    if (i == 5) values += R"(, "sk": "P_AAAAAAAAAQAAAAAAAAAAQBQAAAAAAAAQAgAAAAAAAAQBAAAAAAAAA")";
    if (i == 6) values += R"(, "sk": "P_AAAAAAAAAQAAAAAAAAAAQ")";  // cut short
    if (i == 7) values += R"(, "sk": [1, 2])";
    if (i == 8) values += R"(, "vmap": [0], "unreadable": "meta tensor")";
    if (i == 8999)
      values += R"(, "extremes": 2, "rest_max": 1.5, "rest_min": -2.0, "rest_norm": 2.5)";
    values += "}";
  }
  const TemporaryFolder folder;
  const Result<Dump> dump = ReadValues(folder, values);
  ASSERT_TRUE(dump.ok());
  ASSERT_EQ(dump->leaves.size(), 9000u);
  EXPECT_EQ(dump->StridesOf(4), "[1, 2]");
  EXPECT_EQ(dump->StridesOf(5), "");
  EXPECT_EQ(dump->AllocationOf(7), "Torch.empty.0.forward");
  EXPECT_EQ(dump->UnreadableOf(8), "meta tensor");
  EXPECT_EQ(dump->UnreadableOf(7), "");
  EXPECT_EQ(dump->AllocationOf(4), "");
  EXPECT_EQ(dump->SketchOf(5), (kernels::Sketch{.rows = {1, 2}, .wave = {3, 4}, .squares = 5}));
  for (const int32_t leaf : {4, 6, 7, 8999}) EXPECT_EQ(dump->SketchOf(leaf), std::nullopt);
  const LeafRest* rest = dump->RestOf(8999);
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(rest->extremes, 2);
  EXPECT_EQ(rest->max, 1.5);
  EXPECT_EQ(rest->min, -2);
  EXPECT_EQ(rest->norm, 2.5);
  EXPECT_EQ(dump->RestOf(0), nullptr);
}

// A file has a module's parameters after its output; leaves are in the order of tables.
TEST(ReadDump, FactsOfSingleValuesFollowTheirLeaves) {
  const auto tensor = [](const std::string& facts) {
    return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], )" + facts + "}";
  };
  const std::string entry =
      R"("Module.fc.Linear.forward.0": {"input_args": [)" + tensor(R"("stride": [1, 2])") +
      R"(], "output": [)" +
      tensor(R"("sk": "P_AAAAAAAAAQAAAAAAAAAAQBQAAAAAAAAQAgAAAAAAAAQBAAAAAAAAA")") + ", " +
      tensor(R"("extremes": 2, "rest_max": 1.5, "rest_min": -2.0, "rest_norm": 2.5)") +
      R"(], "parameters": {"bias": )" + tensor(R"("unwritten": "Torch.empty.0.forward")") +
      R"(, "weight": )" + tensor(R"("unreadable": "meta tensor")") + "}}";
  const TemporaryFolder folder;
  const Result<Dump> dump = ReadDump(folder.Write("dump.json", Ours({entry})));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  ASSERT_EQ(dump->leaves.size(), 5u);
  std::map<std::string, int32_t> of;
  for (int32_t i = 0; i < 5; ++i) of[std::string(dump->leaves[i].name.view())] = i;
  const std::string call = "Module.fc.Linear.forward.0.";
  EXPECT_LT(of[call + "parameters.weight"], of[call + "output.0"]);
  for (const auto& [name, leaf] : of) {
    EXPECT_EQ(dump->StridesOf(leaf), name == call + "input.0" ? "[1, 2]" : "") << name;
    EXPECT_EQ(dump->SketchOf(leaf).has_value(), name == call + "output.0") << name;
    EXPECT_EQ(dump->RestOf(leaf) != nullptr, name == call + "output.1") << name;
    EXPECT_EQ(dump->AllocationOf(leaf) != "", name == call + "parameters.bias") << name;
    EXPECT_EQ(dump->UnreadableOf(leaf) != "", name == call + "parameters.weight") << name;
  }
}

TEST(ReadDump, HostileNestingEnds) {
  // Each object names its type last: reading it twice at every level would take 2^400 steps.
  std::string value = "1";
  for (int i = 0; i < 400; ++i)
    value = "{\"a\": " + value + ", \"class_type\": \"x\", \"type\": \"y\"}";
  TemporaryFolder folder;
  const Result<Dump> dump = ReadValues(folder, value);
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->leaves.size(), 1u);
}

}  // namespace
}  // namespace msprobe::dump
