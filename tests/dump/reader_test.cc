#include "engine/dump/read/reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/dump/read/leaf_parser.h"
#include "engine/model/parameter_names.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"
#include "tests/dump/recorded_dumps.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadDump, RowsAreThoseOfTheTableThatMsprobe26Wrote) {
  const Result<Dump> dump = ReadDump(kDumps + "/26.2.0/mix_statistics/pert/step0");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  std::string rows;
  for (const Leaf& leaf : dump->leaves) rows += Row(leaf) + "\n";
  EXPECT_EQ(rows, ReadWhole(MSPROBE_TEST_DATA "/dumps/rows_26.2.0.txt"));
}

// Numbers that are parsed later are those that are parsed at once.
TEST(ReadDump, ParsesNumbersLater) {
  const TemporaryFolder folder;
  const std::string text = R"("shape": [2, 3], "Max": 0.1, "Min": -Infinity, "Mean": NaN, )"
                           R"("Norm": null})";
  folder.Write(
      "own/dump.json",
      Ours({R"("Torch.f.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": )"
            R"("torch.float32", )" +
            text +
            R"(, {"type": "torch.Tensor", "dtype": "torch.bool", "shape": [2], "Max": true, )"
            R"("Min": false, "Mean": 0.5, "Norm": 1e400, "fp": "xQBMBhBckKU"}, )"
            R"({"type": "float", "value": 0.1}], "output": [{"type": "torch.Tensor", )"
            R"("dtype": "torch.float64", )" +
            text + "]}"}));
  for (const std::string& path :
       {folder.path() + "/own", kDumps + "/1.0.4/mix_statistics/pert/step0/rank",
        kDumps + "/8.3.3/mix_statistics/base/step0",
        kDumps + "/26.2.0/mix_statistics/pert/step0"}) {
    const Result<Dump> at_once = ReadDump(path);
    Result<Dump> later = ReadDump(path, nullptr, {.parse_numbers = false});
    ASSERT_TRUE(at_once.ok() && later.ok()) << path;
    EXPECT_FALSE(later->numbers_parsed);
    ParseNumbers(&*later);
    ASSERT_EQ(later->leaves.size(), at_once->leaves.size());
    for (size_t i = 0; i < later->leaves.size(); ++i) {
      const Leaf &a = at_once->leaves[i], &b = later->leaves[i];
      EXPECT_EQ(Row(a), Row(b));
      EXPECT_EQ(a.has_stats, b.has_stats) << a.name.view();
      EXPECT_EQ(a.counts->nan, b.counts->nan) << a.name.view();
      const double numbers[][2] = {{a.max_value, b.max_value},
                                   {a.min_value, b.min_value},
                                   {a.mean_value, b.mean_value},
                                   {a.norm_value, b.norm_value}};
      for (const auto& [there, here] : numbers)
        EXPECT_TRUE(there == here || (std::isnan(there) && std::isnan(here))) << a.name.view();
    }
  }
}

struct Recorded {
  const char* path;
  const char* dialect;
  Level level;
  size_t records, leaves, stacks;
  bool has_checksums;
};

TEST(ReadDump, EveryGeneration) {
  const Recorded cases[] = {
      {"1.0.4/L0_statistics/base", "msprobe 1.0", Level::kL0, 12, 27, 6, false},
      {"1.0.4/L1_md5/base/step0", "msprobe 1.0", Level::kL1, 24, 100, 13, true},
      {"1.0.4/mix_statistics/pert/step0/rank", "msprobe 1.0", Level::kMix, 47, 160, 30, false},
      {"1.2.2/L0_statistics/base/step0", "msprobe 1.2", Level::kL0, 17, 51, 6, false},
      {"1.2.2/L1_md5/base/step0", "msprobe 1.2", Level::kL1, 24, 100, 13, true},
      {"1.2.2/mix_statistics/base/step0", "msprobe 1.2", Level::kMix, 52, 184, 30, false},
      {"8.3.3/L0_statistics/base/step0", "msprobe 8", Level::kL0, 17, 51, 4, false},
      {"8.3.3/L1_md5/base/step0", "msprobe 8", Level::kL1, 24, 100, 12, true},
      {"8.3.3/mix_statistics/base/step0", "msprobe 8", Level::kMix, 41, 151, 16, false},
      {"26.2.0/L0_statistics/base/step0", "msprobe 26", Level::kL0, 17, 51, 4, false},
      {"26.2.0/L1_md5/base/step0", "msprobe 26", Level::kL1, 17, 64, 9, true},
      {"26.2.0/L1_tensor/base/step0", "msprobe 26", Level::kL1, 17, 64, 9, false},
      {"26.2.0/mix_statistics/base/step0/proc1001/dump.json", "msprobe 26", Level::kMix, 34, 115,
       13, false},
      {"26.2.0/debug/step1", "msprobe 26", Level::kDebug, 2, 4, 0, false},
  };
  for (const Recorded& c : cases) {
    const Result<Dump> dump = ReadDump(kDumps + "/" + c.path);
    ASSERT_TRUE(dump.ok()) << dump.status().ToString();
    EXPECT_EQ(dump->DialectName(), c.dialect) << c.path;
    EXPECT_EQ(dump->level, c.level) << c.path;
    EXPECT_EQ(dump->records.size(), c.records) << c.path;
    EXPECT_EQ(dump->leaves.size(), c.leaves) << c.path;
    EXPECT_EQ(dump->stacks.size(), c.stacks) << c.path;
    EXPECT_EQ(dump->has_checksums, c.has_checksums) << c.path;
    EXPECT_TRUE(dump->complete) << c.path;
    EXPECT_EQ(dump->note, "") << c.path;
    EXPECT_EQ(dump->framework, "pytorch");
    uint32_t next = 0;
    for (size_t r = 0; r < dump->records.size(); ++r) {
      EXPECT_EQ(dump->records[r].first_leaf, next);
      next += dump->records[r].leaf_count;
      for (const Leaf& leaf : dump->LeavesOf(dump->records[r])) EXPECT_EQ(leaf.record, r);
    }
    EXPECT_EQ(next, dump->leaves.size());
  }
}

TEST(ReadDump, TensorFilesOfMsprobe26) {
  const Result<Dump> none = ReadDump(kDumps + "/26.2.0/mix_statistics/base");
  ASSERT_TRUE(none.ok()) << none.status().ToString();
  EXPECT_EQ(none->tensor_folder, "");
  const Result<Dump> tensors = ReadDump(kDumps + "/26.2.0/L1_tensor/base/step0");
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(tensors->task, Task::kTensor);
  EXPECT_THAT(tensors->tensor_folder, HasSubstr("proc1001/dump_tensor_data"));
  for (const Leaf& leaf : tensors->leaves) {
    if (leaf.data_name.empty()) continue;
    EXPECT_EQ(std::string(leaf.name) + ".pt", leaf.data_name);
  }
}

TEST(ReadDump, OurDialect) {
  TemporaryFolder folder;
  folder.Write("stack.json",
               "{\n\"3\": [[\"Torch.f.0.forward\"], [\"File a.py, line 3, in f, \\n y\"]],\n\"9\": "
               "[[\"Torch.g.0.forward\"], [\"File b.py\"]]\n}\n");
  folder.Write("construct.json",
               "{\n\"Torch.f.0.forward\": \"Module.m.M.forward.0\",\n\"Torch.g.0.forward\": "
               "[\"Module.n.N.forward.0\", 2],\n"
               "\"megatron_micro_step_number\": 2,\n\"x\": null\n}\n");
  const Result<Dump> read = ReadDump(folder.Write(
      "dump.json",
      Ours({EntryMember("Torch.f.0.forward", ", \"stack\": 3"),
            EntryMember("Torch.g.0.forward", ", \"stack\": \"3\", \"exception\": \"RuntimeError\""),
            EntryMember("Torch.g.1.forward")})));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const Dump& dump = *read;
  EXPECT_EQ(dump.dialect, Dialect::kMsprobe27);
  EXPECT_TRUE(dump.complete);
  ASSERT_EQ(dump.records.size(), 3u);
  EXPECT_EQ(dump.records[0].stack, 0);
  EXPECT_EQ(dump.records[1].stack, 0);  // its own key wins over the group that lists it
  EXPECT_EQ(dump.records[2].stack, -1);
  EXPECT_THAT(dump.stacks[0], ElementsAre("File a.py, line 3, in f, \n y"));
  EXPECT_EQ(dump.records[0].parent, "Module.m.M.forward.0");
  EXPECT_EQ(dump.records[1].parent, "Module.n.N.forward.0");
  EXPECT_EQ(dump.records[1].exception, "RuntimeError");
  const Leaf& leaf = dump.leaves[0];
  EXPECT_EQ(leaf.fingerprint, "0123456789abcdef");
  EXPECT_EQ(leaf.counts->nan, 2);
  EXPECT_EQ(leaf.counts->pos_inf, 0);         // ours, and not mentioned
  EXPECT_EQ(dump.leaves[1].counts->nan, -1);  // not a tensor
  EXPECT_EQ(leaf.counts->zero, 1);
  EXPECT_EQ(leaf.max_value, 1.5);
  EXPECT_TRUE(leaf.has_stats);
}

TEST(ReadDump, ModesModulesAndNamesOfParameters) {
  TemporaryFolder folder;
  folder.Write("signatures.json",
               "{\n\"Torch.max\":[\"input\",\"\",\"keepdim\"],\n\"Torch.f\":[\"x\"],\n\"Torch.h\":"
               "[[\"a: Tensor\"],[\"b: int/str\",\"c...\"]]}\n");
  const Result<Dump> read = ReadDump(folder.Write(
      "dump.json",
      Ours({EntryMember("Module.m.M.forward.0", ", \"training\": true"),
            EntryMember("Module.m.M.forward.1", ", \"training\": false"),
            EntryMember("Module.m.M.forward.2", ", \"training\": \"yes\", \"module\": 3"),
            EntryMember("Torch.f.0.forward", ", \"module\": \"Module.m.M\"")})));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->records[0].training, Record::Mode::kTrain);
  EXPECT_EQ(read->records[1].training, Record::Mode::kEval);
  EXPECT_EQ(read->records[2].training, Record::Mode::kUnknown);
  EXPECT_EQ(read->records[3].module, "Module.m.M");
  EXPECT_EQ(ParameterName(*read, read->records[3], 0), "x");
  EXPECT_EQ(ParameterName(*read, read->records[3], 1), "");
  EXPECT_EQ(ParameterName(*read, read->records[0], 0), "");
  ASSERT_EQ(read->signatures.size(), 3u);
  EXPECT_EQ(read->signatures[1].api, "Torch.h");
  ASSERT_EQ(read->signatures[1].overloads.size(), 2u);
  EXPECT_EQ(read->signatures[1].overloads[1][0].name, "b");
  EXPECT_EQ(read->signatures[1].overloads[1][0].types, "int/str");
  EXPECT_TRUE(read->signatures[1].overloads[1][1].takes_rest);
  EXPECT_EQ(read->signatures[2].overloads[0][1].name, "");
}

// In our present spelling, and in the spelling of our first dumps and of the older tools.
TEST(ReadDump, NumbersOfNarrowFloatsAndFingerprintsInBothSpellings) {
  TemporaryFolder folder;
  const auto leaf_of = [&](std::string_view dtype, std::string_view numbers) {
    const std::string tensor = fmt::format(
        R"({{"type": "torch.Tensor", "dtype": "{}", "shape": [2], {}}})", dtype, numbers);
    const Result<Dump> dump = ReadDump(folder.Write(
        "dump.json", Ours({R"("Torch.f.0.forward": {"input_args": [)" + tensor + "]}"})));
    EXPECT_TRUE(dump.ok()) << dump.status().ToString();
    const Leaf& leaf = dump->leaves[0];
    return std::tuple(leaf.max_value, leaf.min_value, leaf.mean_value, leaf.norm_value,
                      std::string(leaf.fingerprint));
  };
  const std::string_view now =
      R"("Max": 4.5626955, "Min": 0.1, "Mean": -0.0011109667, "Norm": 1e+300, "fp": "ASNFZ4mrze8")";
  const std::string_view before =
      R"("Max": 4.562695503234863, "Min": 0.10000000149011612, "Mean": -0.0011109666459075337,
         "Norm": 1e+300, "fingerprint": "0123456789abcdef")";
  for (const std::string_view dtype : {"torch.float32", "float32", "torch.bfloat16"}) {
    EXPECT_EQ(leaf_of(dtype, now), leaf_of(dtype, before)) << dtype;
    EXPECT_EQ(leaf_of(dtype, now),
              std::tuple(4.562695503234863, 0.10000000149011612,
                         static_cast<double>(-0.0011109667f), 1e300, "0123456789abcdef"))
        << dtype;
  }
  EXPECT_EQ(std::get<1>(leaf_of("torch.float64", now)), 0.1);
  EXPECT_EQ(std::get<4>(leaf_of("torch.float32", R"("fp": "neither")")), "neither");
}

TEST(ReadDump, FindsTheDump) {
  TemporaryFolder folder;
  EXPECT_EQ(ReadDump(folder.path() + "/nowhere").status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(ReadDump(folder.path()).status().message(), HasSubstr("holds no dump"));
  const std::string text = Ours({EntryMember("Torch.f.0.forward")});
  folder.Write("step10/rank0/dump.json", text);
  EXPECT_TRUE(ReadDump(folder.path()).ok());
  folder.Write("step2/rank10/dump.json", text);
  folder.Write("step2/rank9/dump.json", text);
  folder.Write("step2/other/dump.json", text);
  const Result<Dump> many = ReadDump(folder.path());
  EXPECT_EQ(many.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(many.status().message(), HasSubstr("expected one dump, found 3: "));
  const Result<std::vector<DumpLocation>> found = FindDumps(folder.path());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ((*found)[0].step, 2);
  EXPECT_EQ((*found)[0].rank, 9);
  EXPECT_EQ((*found)[1].rank, 10);
  EXPECT_EQ((*found)[2].step, 10);
  const Result<std::vector<DumpLocation>> one = FindDumps(folder.path() + "/step2/rank10");
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].rank, 10);
  EXPECT_EQ((*one)[0].step, 2);
}

TEST(ReadDump, DumpMovesWithItsText) {
  TemporaryFolder folder;
  Result<Dump> read = ReadDump(folder.Write("dump.json", Ours({EntryMember("Torch.f.0.forward")})));
  ASSERT_TRUE(read.ok());
  const Dump moved = std::move(*read);
  EXPECT_EQ(moved.leaves[0].name, "Torch.f.0.forward.input.0");
  EXPECT_EQ(moved.leaves[0].dtype, "torch.float32");
}

}  // namespace
}  // namespace msprobe::dump
