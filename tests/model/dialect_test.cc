#include "engine/model/dialect.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/base/messages/message.h"
#include "engine/model/table.h"

namespace msprobe {
namespace {

TEST(Dialect, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDialectCount; ++i) {
    const DialectFacts& facts = FactsOf(static_cast<Dialect>(i));
    EXPECT_EQ(facts.dialect, static_cast<Dialect>(i));
    EXPECT_TRUE(names.insert(facts.name).second) << facts.name;
  }
}

TEST(Dialect, OfATool) {
  EXPECT_EQ(DialectOfTool("msprobe 27.0.0"), Dialect::kMsprobe27);
  EXPECT_EQ(DialectOfTool("msprobe 27"), Dialect::kMsprobe27);
  EXPECT_EQ(DialectOfTool("msprobe 270.1"), Dialect::kOtherOurs);
  EXPECT_EQ(DialectOfTool("msprobe 28.1"), Dialect::kOtherOurs);
  EXPECT_EQ(DialectOfTool("msprobe"), Dialect::kNone);
  EXPECT_EQ(DialectOfTool("ptdbg_ascend 6"), Dialect::kNone);
  EXPECT_EQ(DialectOfTool(""), Dialect::kNone);
}

TEST(Dialect, NameOfADump) {
  Dump dump;
  EXPECT_EQ(dump.DialectName(), "");
  dump.dialect = Dialect::kPtdbg1To4;
  EXPECT_EQ(dump.DialectName(), "ptdbg_ascend 1 to 4");
  dump.dialect = Dialect::kCheckpoint;
  dump.dialect_detail = "safetensors, 3 files"_t;
  EXPECT_EQ(dump.DialectName(), "checkpoint: safetensors, 3 files");
}

}  // namespace
}  // namespace msprobe
