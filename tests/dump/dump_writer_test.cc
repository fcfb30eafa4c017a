#include "engine/dump/write/dump_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/read/reader.h"
#include "tests/base/temporary_folder.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;

class DumpWriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<DumpWriter> Create() {
    Result<std::unique_ptr<DumpWriter>> writer =
        DumpWriter::Create(folder_, {.tool = "msprobe test"});
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    return std::move(writer).value();
  }
  std::string Text(const char* name) const { return ReadWhole(JoinPath(folder_, name)); }
  std::vector<std::string> RecordNames(bool* complete) const {
    Result<Dump> dump = ReadDump(folder_);
    EXPECT_TRUE(dump.ok()) << dump.status().message();
    *complete = dump->complete;
    std::vector<std::string> names;
    for (const Record& record : dump->records) names.emplace_back(record.name);
    return names;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path() + "/rank0";  // the writer must create it
};

std::string EntryLine(const std::string& name) {
  return "\"" + name + R"(": {"input_args":[],"input_kwargs":{},"output":[]})";
}

Entry OneEntry(const std::string& name) { return test::ParseEntry(EntryLine(name)); }

TEST_F(DumpWriterTest, WritesOneEntryALine) {
  auto writer = Create();
  ASSERT_TRUE(writer->Write(OneEntry("Torch.a.0.forward")).ok());
  ASSERT_TRUE(writer->Write(OneEntry("Torch.b.0.forward")).ok());
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(Text("dump.json"),
            "{\"task\": \"statistics\", \"level\": \"L1\", \"framework\": \"pytorch\", "
            "\"dump_data_dir\": null, \"tool\": \"msprobe test\", \"data\": {\n" +
                EntryLine("Torch.a.0.forward") + ",\n" + EntryLine("Torch.b.0.forward") + "\n}}\n");
}

TEST_F(DumpWriterTest, EveryAppendIsOnDiskBeforeItReturns) {
  auto writer = Create();
  ASSERT_TRUE(writer->Write(OneEntry("Torch.a.0.forward")).ok());
  bool complete;  // not closed, as after a kill
  EXPECT_THAT(RecordNames(&complete), ElementsAre("Torch.a.0.forward"));
  EXPECT_FALSE(complete);
}

TEST_F(DumpWriterTest, ReopenGoesOnWhereCloseLeft) {
  auto writer = Create();
  ASSERT_TRUE(writer->Write(OneEntry("Torch.a.0.forward")).ok());
  ASSERT_TRUE(writer->Close().ok());
  ASSERT_TRUE(writer->Close().ok());  // idempotent
  ASSERT_TRUE(writer->Reopen().ok());
  ASSERT_TRUE(writer->Write(OneEntry("Torch.b.0.forward")).ok());
  ASSERT_TRUE(writer->Close().ok());
  bool complete;
  EXPECT_THAT(RecordNames(&complete), ElementsAre("Torch.a.0.forward", "Torch.b.0.forward"));
  EXPECT_TRUE(complete);
}

TEST_F(DumpWriterTest, LaterNamesOfAStackJoinTheFirstAtClose) {
  auto writer = Create();
  const std::string frames = R"x(["File x.py, line 1, in f, \n a()"])x";
  ASSERT_TRUE(writer->AddStack("Torch.a.0.forward", {"File x.py, line 1, in f, \n a()"}).ok());
  ASSERT_TRUE(writer->AddStack("Torch.b.0.forward", {}).ok());
  ASSERT_TRUE(writer->NoteStack(0, "Torch.a.1.forward").ok());
  // Another call site with the same text.
  EXPECT_EQ(*writer->AddStack("Torch.a.2.forward", {"File x.py, line 1, in f, \n a()"}), 0);
  // After a kill at this point, the file has each stack once.
  EXPECT_EQ(Text("stack.json"), "{\n\"0\":[[\"Torch.a.0.forward\"]," + frames +
                                    "],\n\"1\":[[\"Torch.b.0.forward\"],[]]");
  ASSERT_TRUE(writer->Close().ok());
  const std::string first =
      "{\n\"0\":[[\"Torch.a.0.forward\",\"Torch.a.1.forward\",\"Torch.a.2.forward\"]," + frames +
      "],\n\"1\":[[\"Torch.b.0.forward\"],[]]";
  EXPECT_EQ(Text("stack.json"), first + "\n}\n");
  // After this the group is not rewritten: the names of later calls get a new group.
  ASSERT_TRUE(writer->Reopen().ok());
  ASSERT_TRUE(writer->NoteStack(0, "Torch.a.3.forward").ok());
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(Text("stack.json"), first + ",\n\"2\":[[\"Torch.a.3.forward\"]," + frames + "]\n}\n");
}

TEST_F(DumpWriterTest, ManyWaitingNamesAreWrittenBeforeClose) {
  auto writer = Create();
  const Result<int64_t> id = writer->AddStack("first", {"frame"});
  ASSERT_TRUE(id.ok());
  const std::string name(1000, 'n');
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(writer->NoteStack(*id, name).ok());
  EXPECT_GT(Text("stack.json").size(), 4u << 20);
}

TEST_F(DumpWriterTest, ConstructHasNullForNoParent) {
  auto writer = Create();
  ASSERT_TRUE(writer->AppendConstruct("Module.a.A.forward.0", "").ok());
  ASSERT_TRUE(writer->AppendConstruct("Torch.b.0.forward", "Module.a.A.forward.0").ok());
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(
      Text("construct.json"),
      "{\n\"Module.a.A.forward.0\":null,\n\"Torch.b.0.forward\":\"Module.a.A.forward.0\"\n}\n");
}

TEST_F(DumpWriterTest, AnUnwritablePlaceIsOneClearError) {
  temporary_.Write("rank0", "a file where the folder should be");
  const auto writer = DumpWriter::Create(folder_ + "/below", {});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), ErrorCode::kIo);
  EXPECT_NE(writer.status().message().find(folder_), std::string::npos);
}

// The folder may hold a previous run, whose files would be taken for files of this run.
TEST_F(DumpWriterTest, WithoutExtraInfoNoOldStackStays) {
  ASSERT_TRUE(Create()->Close().ok());
  ASSERT_TRUE(IsRegularFile(JoinPath(folder_, "stack.json")));
  ASSERT_TRUE(DumpWriter::Create(folder_, {.tool = "msprobe test", .extra_info = false}).ok());
  EXPECT_FALSE(Exists(JoinPath(folder_, "stack.json")));
  EXPECT_FALSE(Exists(JoinPath(folder_, "construct.json")));
  EXPECT_TRUE(IsRegularFile(JoinPath(folder_, "dump.json")));
}

}  // namespace
}  // namespace msprobe::dump
