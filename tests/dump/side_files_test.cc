#include "engine/dump/read/side_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/read/reader.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"
#include "tests/dump/recorded_dumps.h"

namespace msprobe::dump {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ReadDump, StacksAndParentsOfMsprobe26) {
  const Result<Dump> dump = ReadDump(kDumps + "/26.2.0/mix_statistics/base");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  const Record& conv = dump->records[0];
  EXPECT_EQ(conv.name, "Functional.conv2d.0.forward");
  EXPECT_EQ(conv.parent, "Module.conv.Conv2d.forward.0");
  ASSERT_GE(conv.stack, 0);
  EXPECT_THAT(std::string(dump->stacks[static_cast<size_t>(conv.stack)].front()),
              HasSubstr("in _conv_forward, \n return F.conv2d("));
  EXPECT_EQ(dump->records[1].parent, "");
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

TEST(ReadDump, DamagedSideFilesAreReported) {
  TemporaryFolder folder;
  folder.Write("dump.json", Ours({EntryMember("Torch.f.0.forward")}));
  folder.Write("stack.json", "{\"0\": 5}");
  EXPECT_THAT(ReadDump(folder.path()).status().message(), HasSubstr("stack.json:6: expected '['"));
  folder.Write("stack.json", "{\"0\": [[\"Torch.f.0.forward\"], [\"fr");
  const Result<Dump> open = ReadDump(folder.path());
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(open->complete);
  EXPECT_EQ(open->note, "stack.json has no closing brace, 0 entries read");
  EXPECT_EQ(open->stacks.size(), 0u);
}

}  // namespace
}  // namespace msprobe::dump
