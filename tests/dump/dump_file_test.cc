#include "engine/dump/read/dump_file.h"

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

TEST(ReadDump, DamageIsReportedWithItsPlace) {
  TemporaryFolder folder;
  const auto message = [&](std::string_view bytes) {
    const Result<Dump> dump = ReadDump(folder.Write("dump.json", bytes));
    EXPECT_FALSE(dump.ok());
    EXPECT_EQ(dump.status().code(), ErrorCode::kInvalidDump);
    return dump.status().ok() ? "" : dump.status().message();
  };
  EXPECT_THAT(message("not json at all"),
              HasSubstr("dump.json: expected '{', found \"not json at all\""));
  EXPECT_THAT(message(""), HasSubstr("dump.json: expected '{', found the end of the file"));
  EXPECT_THAT(message("{}"), HasSubstr("expected the key \"data\" of a dump"));
  EXPECT_THAT(message("{\"task\": \"stat"), HasSubstr("found the end of the file"));
  std::string damaged = Ours({EntryMember("Torch.f.0.forward"), EntryMember("Torch.g.0.forward")});
  const size_t at = damaged.rfind("\"dtype\": ") + 7;
  damaged[at] = ';';
  EXPECT_THAT(message(damaged),
              HasSubstr("dump.json:" + std::to_string(at) + ": expected ':' after a key"));
  EXPECT_THAT(message(Ours({EntryMember("Torch.f.0.forward") + EntryMember("Torch.g.0.forward")})),
              HasSubstr("expected ',' or '}'"));
  EXPECT_THAT(message(Ours({EntryMember("Torch.f.0.forward")}) + "x"),
              HasSubstr("nothing after the document"));
  std::string counts = EntryMember("Torch.f.0.forward");
  counts.replace(counts.find("\"nan\": 2"), 8, "\"nan\": -2");
  EXPECT_THAT(message(Ours({counts})), HasSubstr("a count of elements"));
  EXPECT_THAT(message(std::string(kHeader) + std::string(100000, '[')), HasSubstr("expected"));
}

TEST(ReadDump, HeaderMembersMayFollowTheData) {
  TemporaryFolder folder;
  std::string entry = EntryMember("Torch.f.0.forward");
  entry.insert(entry.find("\"fingerprint\""), "\"data_name\": \"named.by.file.pt\", ");
  const Result<Dump> dump = ReadDump(folder.Write(
      "dump.json", "{\"data\": {" + entry + "}, \"task\": \"tensor\", \"level\": \"L0\"}"));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->task, Task::kTensor);
  EXPECT_EQ(dump->level, Level::kL0);
  EXPECT_EQ(dump->leaves[0].name, "named.by.file");
  EXPECT_EQ(dump->leaves[0].counts->pos_inf, -1);  // a dump of an older tool: not known
  EXPECT_EQ(dump->dialect, Dialect::kMsprobe1);
}

TEST(ReadDump, AnotherVersionOfOursIsReadAsOurs) {
  TemporaryFolder folder;
  const Result<Dump> dump = ReadDump(
      folder.Write("dump.json", "{\"tool\": \"msprobe 28.1\", \"level\": \"L0\", \"data\": {" +
                                    EntryMember("Torch.f.0.forward") + "}}"));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->dialect, Dialect::kOtherOurs);
  EXPECT_EQ(dump->DialectName(), "msprobe 28");
  EXPECT_EQ(dump->leaves[0].counts->pos_inf, 0);  // omitted in the file: 0
}

// Every leaf of a cut file is equal to the leaf of the whole file.
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
    // A copy of exactly this size, so that the address sanitizer reports reads beyond its end.
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
    EXPECT_THAT(cut.dump.note.English(),
                StartsWith("the run was killed or could not write: no closing braces; "))
        << n;
    EXPECT_EQ(cut.stack_keys.size(), cut.dump.records.size()) << n;
    EXPECT_LE(cut.layout.keep, n);
    ASSERT_NO_FATAL_FAILURE(ExpectPrefix(cut.dump, whole.dump)) << n;
  }
  EXPECT_GT(answers, text.size() / 2);
}

TEST(ReadDump, CutAtEveryByteOurs) {
  CutAtEveryByte(Ours(
      {EntryMember("Torch.f.0.forward", ", \"stack\": 17"), EntryMember("Torch.g\\u00e9.0.forward"),
       "\"Module.m.M.parameters_grad.0\": {\"w\": [" + std::string(kTensor) + "]}",
       "\"x.0.debug\": null", "\"Torch.n.0.forward\": null", EntryMember("Torch.h.0.forward")}));
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
      Ours({EntryMember("Torch.f.0.forward"), EntryMember("Torch.g.0.forward")}, /*closed=*/false);
  const Result<Dump> dump = ReadDump(folder.Write("dump.json", text + ",\n\"Tensor.ad"));
  ASSERT_TRUE(dump.ok());
  EXPECT_FALSE(dump->complete);
  EXPECT_EQ(dump->note,
            "the run was killed or could not write: no closing braces; 2 records kept, 10 bytes of "
            "an unfinished "
            "entry ignored");
  const Result<Dump> clean = ReadDump(folder.Write("dump.json", text));
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ(clean->note,
            "the run was killed or could not write: no closing braces; 2 records kept");
  const Result<Dump> none = ReadDump(folder.Write("dump.json", kHeader));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->note, "the run was killed or could not write: no closing braces; 0 records kept");
}

// A file that is so large that it is read in pieces gives the same dump as reading in order.
TEST(ReadDump, PiecesJoinSeamlessly) {
  for (const bool indented : {false, true}) {
    std::string text(indented
                         ? "{\n \"task\": \"statistics\",\n \"level\": \"L1\",\n \"data\": {\n  "
                         : kHeader);
    constexpr int kEntries = 6000;
    for (int i = 0; i < kEntries; ++i) {
      if (i > 0) text += indented ? ",\n  " : ",\n";
      std::string entry = EntryMember("Torch.f." + std::to_string(i) + ".forward",
                                      ", \"stack\": " + std::to_string(i));
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

    // Damage in the middle is reported with its offset.
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

}  // namespace
}  // namespace msprobe::dump
