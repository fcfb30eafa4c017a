#include "engine/dump/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/dump_file.h"
#include "tests/dump/temporary_folder.h"

namespace msprobe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kDumps = MSPROBE_TEST_DATA "/dumps";

constexpr std::string_view kHeader =
    "{\"task\": \"statistics\", \"level\": \"mix\", \"framework\": \"pytorch\", \"dump_data_dir\": "
    "null, "
    "\"tool\": \"msprobe 27.0.0\", \"data\": {\n";
constexpr std::string_view kTensor =
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, 3], \"Max\": 1.5, "
    "\"Min\": -0.5, \"Mean\": 0.25, "
    "\"Norm\": 2.0, \"requires_grad\": true, \"fingerprint\": \"0123456789abcdef\", \"nan\": 2, "
    "\"zero\": 1}";

std::string Entry(std::string_view name, std::string_view more = "") {
  return "\"" + std::string(name) + "\": {\"input_args\": [" + std::string(kTensor) +
         ", {\"type\": \"int\", \"value\": 3}], \"input_kwargs\": {}, \"output\": [" +
         std::string(kTensor) + "]" + std::string(more) + "}";
}

std::string Ours(std::initializer_list<std::string> entries, bool closed = true) {
  std::string text(kHeader);
  bool first = true;
  for (const std::string& entry : entries) {
    if (!first) text += ",\n";
    first = false;
    text += entry;
  }
  if (closed) text += "\n}}\n";
  return text;
}

// The leaves of the only record.
Result<Dump> ReadValues(const TemporaryFolder& folder, std::string_view values) {
  return ReadDump(folder.Write("dump.json", Ours({"\"Torch.f.0.forward\": {\"input_args\": [" +
                                                  std::string(values) + "]}"})));
}

// One line of a table, spelled as the tables of msprobe 26 are.
std::string Row(const Leaf& leaf) {
  const auto cell = [](std::string_view text) {
    return std::string(text == "null" ? "None" : text);
  };
  std::string row;
  for (const std::string_view text : {leaf.name, leaf.dtype, leaf.shape})
    row += std::string(text) + "|";
  row += leaf.requires_grad.empty() ? "N/A" : std::string(leaf.requires_grad);
  for (const std::string_view text : {leaf.max, leaf.min, leaf.mean, leaf.norm})
    row += "|" + cell(text);
  return row;
}

TEST(ReadDump, RowsAreThoseOfTheTableThatMsprobe26Wrote) {
  const Result<Dump> dump = ReadDump(kDumps + "/26.2.0/mix_statistics/pert/step0");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  std::string rows;
  for (const Leaf& leaf : dump->leaves) rows += Row(leaf) + "\n";
  EXPECT_EQ(rows, ReadWhole(kDumps + "/26.2.0/mix_statistics/rows_pert.txt"));
}

struct Recorded {
  const char* path;
  const char* dialect;
  Level level;
  size_t records, leaves, stacks;
  bool has_md5;
};

TEST(ReadDump, EveryGeneration) {
  const Recorded cases[] = {
      {"1.0.4/L0_statistics/base", "msprobe 1.0", Level::kL0, 12, 27, 6, false},
      {"1.0.4/L1_md5/base/step0", "msprobe 1.0", Level::kL1, 24, 100, 13, true},
      {"1.0.4/mix_statistics/pert/step0/rank", "msprobe 1.0", Level::kMix, 47, 160, 30, false},
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
    EXPECT_EQ(dump->dialect, c.dialect) << c.path;
    EXPECT_EQ(dump->level, c.level) << c.path;
    EXPECT_EQ(dump->records.size(), c.records) << c.path;
    EXPECT_EQ(dump->leaves.size(), c.leaves) << c.path;
    EXPECT_EQ(dump->stacks.size(), c.stacks) << c.path;
    EXPECT_EQ(dump->has_md5, c.has_md5) << c.path;
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

TEST(ReadDump, StacksParentsAndFilesOfMsprobe26) {
  const Result<Dump> dump = ReadDump(kDumps + "/26.2.0/mix_statistics/base");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  const Record& conv = dump->records[0];
  EXPECT_EQ(conv.name, "Functional.conv2d.0.forward");
  EXPECT_EQ(conv.parent, "Module.conv.Conv2d.forward.0");
  ASSERT_GE(conv.stack, 0);
  EXPECT_THAT(std::string(dump->stacks[static_cast<size_t>(conv.stack)].front()),
              HasSubstr("in _conv_forward, \n return F.conv2d("));
  EXPECT_EQ(dump->records[1].parent, "");
  EXPECT_EQ(dump->tensor_folder, "");

  const Result<Dump> tensors = ReadDump(kDumps + "/26.2.0/L1_tensor/base/step0");
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(tensors->task, Task::kTensor);
  EXPECT_THAT(tensors->tensor_folder, HasSubstr("proc1001/dump_tensor_data"));
  for (const Leaf& leaf : tensors->leaves) {
    if (leaf.data_name.empty()) continue;
    EXPECT_EQ(std::string(leaf.name) + ".pt", leaf.data_name);
  }
}

TEST(ReadDump, FramesOfMsprobe1AreFoundByEntry) {
  const Result<Dump> dump = ReadDump(kDumps + "/1.0.4/L1_md5/base");
  ASSERT_TRUE(dump.ok());
  size_t with_stack = 0;
  for (const Record& record : dump->records) with_stack += record.stack >= 0;
  EXPECT_EQ(with_stack, 13u);
  EXPECT_THAT(std::string(dump->stacks[static_cast<size_t>(dump->records[0].stack)][0]),
              StartsWith("File "));
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
      Ours({Entry("Torch.f.0.forward", ", \"stack\": 3"),
            Entry("Torch.g.0.forward", ", \"stack\": \"3\", \"exception\": \"RuntimeError\""),
            Entry("Torch.g.1.forward")})));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  const Dump& dump = *read;
  EXPECT_EQ(dump.dialect, "msprobe 27");
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
  EXPECT_EQ(leaf.nan_count, 2);
  EXPECT_EQ(leaf.pos_inf_count, 0);         // ours, and not mentioned
  EXPECT_EQ(dump.leaves[1].nan_count, -1);  // not a tensor
  EXPECT_EQ(leaf.zero_count, 1);
  EXPECT_EQ(leaf.max_value, 1.5);
  EXPECT_TRUE(leaf.has_stats);
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

TEST(ReadDump, DamageIsReportedWithItsPlace) {
  TemporaryFolder folder;
  const auto message = [&](std::string_view bytes) {
    const Result<Dump> dump = ReadDump(folder.Write("dump.json", bytes));
    EXPECT_FALSE(dump.ok());
    EXPECT_EQ(dump.status().code(), ErrorCode::kInvalidDump);
    return dump.status().ok() ? "" : dump.status().message();
  };
  EXPECT_THAT(message("not json at all"),
              HasSubstr("dump.json:0: expected '{', found \"not json at all\""));
  EXPECT_THAT(message(""), HasSubstr("dump.json:0: expected '{', found the end of the file"));
  EXPECT_THAT(message("{}"), HasSubstr("expected the key \"data\" of a dump"));
  EXPECT_THAT(message("{\"task\": \"stat"), HasSubstr("found the end of the file"));
  std::string damaged = Ours({Entry("Torch.f.0.forward"), Entry("Torch.g.0.forward")});
  const size_t at = damaged.rfind("\"dtype\": ") + 7;
  damaged[at] = ';';
  EXPECT_THAT(message(damaged),
              HasSubstr("dump.json:" + std::to_string(at) + ": expected ':' after a key"));
  EXPECT_THAT(message(Ours({Entry("Torch.f.0.forward") + Entry("Torch.g.0.forward")})),
              HasSubstr("expected ',' or '}'"));
  EXPECT_THAT(message(Ours({Entry("Torch.f.0.forward")}) + "x"),
              HasSubstr("nothing after the document"));
  for (const char* name : {"../../etc/passwd", "a/b.pt", "..", "a\\u0000.pt"}) {
    std::string entry = Entry("Torch.f.0.forward");
    entry.insert(entry.find("\"fingerprint\""), "\"data_name\": \"" + std::string(name) + "\", ");
    EXPECT_THAT(message(Ours({entry})), HasSubstr("the name of a tensor file, without a folder"))
        << name;
  }
  std::string counts = Entry("Torch.f.0.forward");
  counts.replace(counts.find("\"nan\": 2"), 8, "\"nan\": -2");
  EXPECT_THAT(message(Ours({counts})), HasSubstr("a count of elements"));
  EXPECT_THAT(message(std::string(kHeader) + std::string(100000, '[')), HasSubstr("expected"));
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

TEST(ReadDump, DamagedSideFilesAreReported) {
  TemporaryFolder folder;
  folder.Write("dump.json", Ours({Entry("Torch.f.0.forward")}));
  folder.Write("stack.json", "{\"0\": 5}");
  EXPECT_THAT(ReadDump(folder.path()).status().message(), HasSubstr("stack.json:6: expected '['"));
  folder.Write("stack.json", "{\"0\": [[\"Torch.f.0.forward\"], [\"fr");
  const Result<Dump> open = ReadDump(folder.path());
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(open->complete);
  EXPECT_EQ(open->note, "stack.json has no closing brace, 0 entries read");
  EXPECT_EQ(open->stacks.size(), 0u);
}

TEST(ReadDump, FindsTheDump) {
  TemporaryFolder folder;
  EXPECT_EQ(ReadDump(folder.path() + "/nowhere").status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(ReadDump(folder.path()).status().message(), HasSubstr("holds no dump"));
  const std::string text = Ours({Entry("Torch.f.0.forward")});
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

// Every leaf that a cut file keeps is the leaf of the whole file.
void ExpectPrefix(const Dump& cut, const Dump& whole) {
  ASSERT_LE(cut.records.size(), whole.records.size());
  ASSERT_LE(cut.leaves.size(), whole.leaves.size());
  for (size_t i = 0; i < cut.records.size(); ++i) {
    EXPECT_EQ(cut.records[i].name, whole.records[i].name);
    EXPECT_EQ(cut.records[i].leaf_count, whole.records[i].leaf_count);
  }
  for (size_t i = 0; i < cut.leaves.size(); ++i) {
    ASSERT_EQ(Row(cut.leaves[i]), Row(whole.leaves[i]));
    ASSERT_EQ(cut.leaves[i].value, whole.leaves[i].value);
    ASSERT_EQ(cut.leaves[i].fingerprint, whole.leaves[i].fingerprint);
  }
}

void CutAtEveryByte(const std::string& text) {
  struct Read {
    Dump dump;
    std::vector<std::string_view> stack_keys;
    DumpFileLayout layout;
  };
  Read whole;
  ASSERT_TRUE(ReadDumpFile("d.json", text, &whole.dump, &whole.stack_keys, &whole.layout).ok());
  const size_t end = text.find_last_of('}');
  size_t answers = 0;
  for (size_t n = 0; n <= end; ++n) {
    // A copy of exactly this size: reading beyond its end is an error that the address sanitizer
    // sees.
    const std::vector<char> bytes(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
    Read cut;
    const Status status =
        ReadDumpFile("d.json", {bytes.data(), n}, &cut.dump, &cut.stack_keys, &cut.layout);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << n;
      EXPECT_EQ(answers, 0u) << "an error after an answer, at " << n;
      continue;
    }
    ++answers;
    EXPECT_FALSE(cut.dump.complete) << n;
    EXPECT_THAT(cut.dump.note, StartsWith("the run was killed: no closing braces; ")) << n;
    EXPECT_EQ(cut.stack_keys.size(), cut.dump.records.size()) << n;
    EXPECT_LE(cut.layout.keep, n);
    ASSERT_NO_FATAL_FAILURE(ExpectPrefix(cut.dump, whole.dump)) << n;
  }
  EXPECT_GT(answers, text.size() / 2);
}

TEST(ReadDump, CutAtEveryByteOurs) {
  CutAtEveryByte(
      Ours({Entry("Torch.f.0.forward", ", \"stack\": 17"), Entry("Torch.g\\u00e9.0.forward"),
            "\"Module.m.M.parameters_grad.0\": {\"w\": [" + std::string(kTensor) + "]}",
            "\"x.0.debug\": null", "\"Torch.n.0.forward\": null", Entry("Torch.h.0.forward")}));
}

TEST(ReadDump, CutAtEveryByteMsprobe26) {
  CutAtEveryByte(ReadWhole(kDumps + "/26.2.0/debug/step1/proc1001/debug.json"));
  const std::string text =
      ReadWhole(kDumps + "/26.2.0/L0_statistics/base/step0/proc1001/dump.json");
  CutAtEveryByte(text);
}

TEST(ReadDump, KilledRunSaysWhatIsKept) {
  TemporaryFolder folder;
  const std::string text =
      Ours({Entry("Torch.f.0.forward"), Entry("Torch.g.0.forward")}, /*closed=*/false);
  const Result<Dump> dump = ReadDump(folder.Write("dump.json", text + ",\n\"Tensor.ad"));
  ASSERT_TRUE(dump.ok());
  EXPECT_FALSE(dump->complete);
  EXPECT_EQ(dump->note,
            "the run was killed: no closing braces; 2 records kept, 10 bytes of an unfinished "
            "entry ignored");
  const Result<Dump> clean = ReadDump(folder.Write("dump.json", text));
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ(clean->note, "the run was killed: no closing braces; 2 records kept");
  const Result<Dump> none = ReadDump(folder.Write("dump.json", kHeader));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->note, "the run was killed: no closing braces; 0 records kept");
}

// Large enough to be read in pieces: the answer is that of reading from front to back.
TEST(ReadDump, PiecesJoinSeamlessly) {
  for (const bool indented : {false, true}) {
    std::string text(indented
                         ? "{\n \"task\": \"statistics\",\n \"level\": \"L1\",\n \"data\": {\n  "
                         : kHeader);
    constexpr int kEntries = 6000;
    for (int i = 0; i < kEntries; ++i) {
      if (i > 0) text += indented ? ",\n  " : ",\n";
      std::string entry =
          Entry("Torch.f." + std::to_string(i) + ".forward", ", \"stack\": " + std::to_string(i));
      if (indented) {
        for (size_t at = 0; (at = entry.find("{\"type\"", at)) != std::string::npos; at += 8)
          entry.replace(at, 1, "{\n     ");
      }
      text += entry;
    }
    const std::string open = text;
    text += "\n}}\n";
    ASSERT_GT(text.size(), 2u << 20);
    TemporaryFolder folder;
    const Result<Dump> dump = ReadDump(folder.Write("dump.json", text));
    ASSERT_TRUE(dump.ok()) << dump.status().ToString();
    ASSERT_EQ(dump->records.size(), static_cast<size_t>(kEntries));
    ASSERT_EQ(dump->leaves.size(), 3u * kEntries);
    for (int i = 0; i < kEntries; ++i) {
      const Record& record = dump->records[static_cast<size_t>(i)];
      ASSERT_EQ(record.name, "Torch.f." + std::to_string(i) + ".forward");
      ASSERT_EQ(record.first_leaf, static_cast<uint32_t>(3 * i));
      ASSERT_EQ(record.leaf_count, 3u);
      ASSERT_EQ(dump->LeavesOf(record)[2].record, static_cast<uint32_t>(i));
      ASSERT_EQ(dump->LeavesOf(record)[2].name, std::string(record.name) + ".output.0");
    }
    const Result<Dump> cut = ReadDump(folder.Write("dump.json", open.substr(0, open.size() - 5)));
    ASSERT_TRUE(cut.ok());
    EXPECT_EQ(cut->records.size(), static_cast<size_t>(kEntries - 1));

    // Damage in the middle is found, with its own offset.
    std::string damaged = text;
    const size_t at = damaged.find("\"dtype\"", damaged.size() / 2) + 7;
    damaged[at] = '?';
    const Result<Dump> refused = ReadDump(folder.Write("dump.json", damaged));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().offset(), at);
  }
}

// Lines that look like entries but lie inside one must not be taken for entries.
TEST(ReadDump, MisleadingLayoutIsReadFromFrontToBack) {
  std::string text = "{\"task\": \"statistics\", \"level\": \"L1\", \"data\": {\n";
  for (int i = 0; i < 300; ++i) {
    if (i > 0) text += ",\n";
    text += "\"Torch.f." + std::to_string(i) + ".forward\": {\"input_kwargs\": {\n";
    for (int k = 0; k < 100; ++k) {
      if (k > 0) text += ",\n";
      text += "\"k" + std::to_string(k) +
              "\": {\"type\": \"int\", \"value\": " + std::to_string(k) + "}" +
              std::string(60, ' ');
    }
    text += "}}";
  }
  text += "}}";
  ASSERT_GT(text.size(), 2u << 20);
  TemporaryFolder folder;
  const Result<Dump> dump = ReadDump(folder.Write("dump.json", text));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->records.size(), 300u);
  EXPECT_EQ(dump->leaves.size(), 30000u);
}

TEST(ReadDump, HeaderMembersMayFollowTheData) {
  TemporaryFolder folder;
  std::string entry = Entry("Torch.f.0.forward");
  entry.insert(entry.find("\"fingerprint\""), "\"data_name\": \"named.by.file.pt\", ");
  const Result<Dump> dump = ReadDump(folder.Write(
      "dump.json", "{\"data\": {" + entry + "}, \"task\": \"tensor\", \"level\": \"L0\"}"));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->task, Task::kTensor);
  EXPECT_EQ(dump->level, Level::kL0);
  EXPECT_EQ(dump->leaves[0].name, "named.by.file");
  EXPECT_EQ(dump->leaves[0].pos_inf_count, -1);  // an earlier tool: not known
  EXPECT_EQ(dump->dialect, "msprobe 1.0");
}

TEST(ReadDump, DumpMovesWithItsText) {
  TemporaryFolder folder;
  Result<Dump> read = ReadDump(folder.Write("dump.json", Ours({Entry("Torch.f.0.forward")})));
  ASSERT_TRUE(read.ok());
  const Dump moved = std::move(*read);
  EXPECT_EQ(moved.leaves[0].name, "Torch.f.0.forward.input.0");
  EXPECT_EQ(moved.leaves[0].dtype, "torch.float32");
}

}  // namespace
}  // namespace msprobe
