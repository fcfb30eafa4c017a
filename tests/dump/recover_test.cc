#include "engine/dump/read/recover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/read/reader.h"
#include "engine/formats/text/json.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kEntries[] = {
    "\"Torch.f.0.forward\": {\"input_args\": [{\"type\": \"int\", \"value\": 3}], \"output\": [], "
    "\"stack\": 0}",
    "\"Torch.f.1.forward\": {\"input_args\": [{\"type\": \"int\", \"value\": 4}], \"output\": [], "
    "\"stack\": 0}",
    "\"Torch.g.0.forward\": {\"input_args\": [{\"type\": \"torch.Tensor\", \"dtype\": "
    "\"torch.int8\", \"shape\": [], \"Max\": 1, \"Min\": 1, "
    "\"Mean\": 1.0, \"Norm\": 1.0, \"requires_grad\": false, \"data_name\": "
    "\"Torch.g.0.forward.input.0.pt\"}], \"stack\": 1}"};

std::string OpenDump(size_t entries = 3) {
  std::string text =
      "{\"task\": \"tensor\", \"level\": \"L1\", \"framework\": \"pytorch\", \"dump_data_dir\": "
      "\"x\", \"tool\": \"msprobe 27.0.0\", \"data\": {\n";
  for (size_t i = 0; i < entries; ++i) text += (i > 0 ? ",\n" : "") + kEntries[i];
  return text;
}

bool IsJson(const std::string& path) {
  const std::string text = ReadWhole(path);
  formats::JsonCursor json(text);
  json.Skip();
  json.Peek();
  return !json.failed() && json.offset() == text.size();
}

TEST(RecoverDump, ClosesAllThreeFilesAndKeepsEveryWholeEntry) {
  TemporaryFolder folder;
  const std::string dump = folder.Write("dump.json", OpenDump() + ",\n\"Torch.h.0.fo");
  const std::string stack =
      folder.Write("stack.json",
                   "{\n\"0\": [[\"Torch.f.0.forward\"], [\"frame \\\"a\\\"\"]],\n\"1\": "
                   "[[\"Torch.g.0.forward\"], [\"frame b\"]],\n\"2\": [[\"To");
  const std::string construct = folder.Write(
      "construct.json",
      "{\n\"Torch.f.0.forward\": null,\n\"Torch.f.1.forward\": \"Module.m.M.forward.0\"");
  const Result<RecoveredDump> r = RecoverDump(folder.path());
  ASSERT_TRUE(r.ok()) << r.status().ToString();
  EXPECT_EQ(r->path, dump);
  EXPECT_EQ(r->records, 3);
  EXPECT_EQ(r->dropped_bytes, 13u + 10u);
  EXPECT_THAT(r->closed, ElementsAre(dump, stack, construct));
  ASSERT_THAT(r->missing, SizeIs(2));
  EXPECT_THAT(r->missing[0].English(), HasSubstr("stop was never reached"));
  EXPECT_THAT(r->missing[1].English(), HasSubstr("1 tensor file is named but not in"));
  EXPECT_EQ(ReadWhole(dump), OpenDump() + "\n}, \"cut_short\": true}\n");
  for (const std::string& path : {dump, stack, construct}) EXPECT_TRUE(IsJson(path)) << path;
  // The second call of f would have been listed at stop(); other tools read only this list.
  EXPECT_THAT(ReadWhole(stack),
              HasSubstr(",\n\"2\": [[\"Torch.f.1.forward\"], [\"frame \\\"a\\\"\"]]\n}\n"));

  const Result<Dump> read = ReadDump(folder.path());
  ASSERT_TRUE(read.ok());
  // What comes after the last record is not observed: no comparison may call it missing.
  EXPECT_FALSE(read->complete);
  EXPECT_EQ(read->note, "the run was killed, and msprobe recover closed its dump; 3 records kept");
  EXPECT_EQ(read->records.size(), 3u);
  EXPECT_EQ(read->records[1].parent, "Module.m.M.forward.0");

  const std::string before = ReadWhole(dump) + ReadWhole(stack) + ReadWhole(construct);
  const Result<RecoveredDump> again = RecoverDump(dump);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->closed, IsEmpty());
  EXPECT_EQ(again->dropped_bytes, 0u);
  EXPECT_EQ(again->records, 3);
  EXPECT_EQ(ReadWhole(dump) + ReadWhole(stack) + ReadWhole(construct), before);
}

TEST(RecoverDump, CutAtEveryByte) {
  const std::string whole = OpenDump() + "\n}}\n";
  const size_t header = OpenDump(0).size() - 1;  // without its newline
  const size_t ends[] = {OpenDump(1).size(), OpenDump(2).size(), OpenDump(3).size()};
  TemporaryFolder folder;
  for (size_t n = header; n <= whole.size(); ++n) {
    const std::string path = folder.Write("dump.json", whole.substr(0, n));
    const Result<RecoveredDump> r = RecoverDump(path);
    ASSERT_TRUE(r.ok()) << n << " " << r.status().ToString();
    int64_t expected = 0;
    for (const size_t end : ends) expected += n >= end;
    EXPECT_EQ(r->records, expected) << n;
    EXPECT_TRUE(IsJson(path)) << n << "\n" << ReadWhole(path);
    const Result<Dump> read = ReadDump(path);
    ASSERT_TRUE(read.ok()) << n;
    EXPECT_EQ(read->complete, n >= whole.size() - 2) << n;  // with the brace of "data"
    EXPECT_EQ(static_cast<int64_t>(read->records.size()), expected) << n;
  }
}

TEST(RecoverDump, SideFilesCutAtEveryByte) {
  const std::string whole =
      "{\n\"0\": [[\"Torch.f.0.forward\"], [\"a\"]],\n\"1\": [[\"Torch.g.0.forward\"], "
      "[\"b\\n\"]]\n}\n";
  TemporaryFolder folder;
  for (size_t n = 0; n <= whole.size(); ++n) {
    folder.Write("dump.json", OpenDump() + "\n}}\n");
    const std::string stack = folder.Write("stack.json", whole.substr(0, n));
    ASSERT_TRUE(RecoverDump(folder.path()).ok()) << n;
    EXPECT_TRUE(IsJson(stack)) << n << "\n" << ReadWhole(stack);
    const Result<Dump> read = ReadDump(folder.path());
    ASSERT_TRUE(read.ok()) << n << read.status().ToString();
    EXPECT_TRUE(read->complete) << n;
  }
}

// Found by fuzzing: the second call of a group without frames was written as [["..."], ].
TEST(RecoverDump, AGroupWithoutFramesGetsNoMoreCalls) {
  TemporaryFolder folder;
  folder.Write("dump.json", OpenDump());
  const std::string stack = folder.Write("stack.json", "{\n\"0\": [[\"Torch.f.0.forward\"]]");
  ASSERT_TRUE(RecoverDump(folder.path()).ok());
  EXPECT_TRUE(IsJson(stack)) << ReadWhole(stack);
  EXPECT_TRUE(ReadDump(folder.path()).ok());
}

TEST(RecoverDump, TouchesNoFileWhenAnotherIsDamaged) {
  TemporaryFolder folder;
  const std::string dump = folder.Write("dump.json", OpenDump());
  folder.Write("stack.json", "{\n\"0\": \"no group\"\n}\n");
  const Result<RecoveredDump> r = RecoverDump(folder.path());
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.status().message(), HasSubstr("stack.json"));
  EXPECT_EQ(ReadWhole(dump), OpenDump());
}

TEST(RecoverDump, DoesNotChangeAHeaderWithoutData) {
  TemporaryFolder folder;
  const std::string text = "{\"task\": \"structure\", \"level\": \"mix\"}\n";
  const std::string dump = folder.Write("dump.json", text);
  const Result<RecoveredDump> r = RecoverDump(folder.path());
  ASSERT_TRUE(r.ok()) << r.status().ToString();
  EXPECT_THAT(r->closed, IsEmpty());
  EXPECT_EQ(ReadWhole(dump), text);
}

TEST(RecoverDump, DoesNotChangeDamagedFiles) {
  TemporaryFolder folder;
  std::string text = OpenDump();
  text[text.find("input_args") - 1] = '?';
  const std::string path = folder.Write("dump.json", text);
  EXPECT_EQ(RecoverDump(path).status().code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(ReadWhole(path), text);
  // Nothing is written when a side file is damaged.
  folder.Write("dump.json", OpenDump());
  folder.Write("stack.json", "{\"0\" 1}");
  EXPECT_EQ(RecoverDump(path).status().code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(ReadWhole(path), OpenDump());
  EXPECT_EQ(RecoverDump(folder.path() + "/nowhere").status().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::dump
