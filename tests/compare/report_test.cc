// The two reports of a comparison: JSON for programs, one screen of text for people.
#include <gmock/gmock.h>
#include <simdjson.h>

#include <algorithm>
#include <set>

#include "engine/base/display_width.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/report/report_terminal.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::kNaN;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using ::testing::HasSubstr;
using ::testing::Not;

// Many calls with long names: all except the first few are wrong, some are only on one side.
Dump Large(double error, bool target) {
  DumpBuilder b;
  for (int i = 0; i < 60; ++i) {
    const double e = i > 5 ? error : 0;
    const std::string name = "Module.encoder.layers." + std::to_string(i) +
                             ".self_attention.with_a_name_that_goes_on.Attention.forward.0";
    b.Call(name)
        .In(Scaled(Numbers(i, -1, 0.5, 9 + i), i > 6 ? error : 0))
        .Out(Scaled(Numbers(i + 1, -1, 0.5, 8 + i), e));
    b.At("/home/somebody/a/very/long/path/to/the/training/script/of/a/model/train.py", 41,
         "y = self.layers[index](x, mask=mask)");
    if (i % 9 == 0) {
      b.Call(std::string(target ? "Torch.only_here." : "Tensor.something_else.") +
             std::to_string(i) + ".forward")
          .Out(Numbers(99, 0, 1, i).Shape(target ? "[7]" : "[8, 8]"));
    }
  }
  b.dump().path = "/runs/a/very/long/folder/name/that/does/not/fit/anywhere/step0/rank0/dump.json";
  return b.Take();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::string_view line : Split(text, '\n')) lines.emplace_back(line);
  EXPECT_TRUE(lines.back().empty());
  lines.pop_back();
  return lines;
}

simdjson::dom::element Parse(simdjson::dom::parser& parser, const std::string& text) {
  simdjson::dom::element document;
  EXPECT_EQ(parser.parse(text).get(document), simdjson::SUCCESS) << text;
  return document;
}

// The text of a report without line ends, and without what stands before continued lines.
std::string JoinedLines(const std::string& report) {
  std::string text;
  for (const std::string& line : Lines(report)) {
    const size_t begin = line.find_first_not_of(" |");
    if (begin != line.npos) text += line.substr(begin);
  }
  return text;
}

TEST(TerminalReportTest, FitsOneScreen) {
  for (const bool complete : {true, false}) {
    Dump target = Large(0.1, true), golden = Large(0, false);
    target.complete = complete;
    target.note = std::string(200, 'x') + " words " + std::string(200, 'y');
    const Comparison c = MustCompare(std::move(target), std::move(golden));
    for (const int width : {60, 80, 100, 300}) {
      const std::string report = TerminalReport(c, {.width = width});
      const auto lines = Lines(report);
      EXPECT_LE(lines.size(), width == 60 ? 27u : 24u) << report;  // 60: the finding needs them
      for (const std::string& line : lines) {
        EXPECT_LE(Columns(line), std::min(width, 100)) << line;
        for (const char ch : line) EXPECT_TRUE(ch >= ' ' && ch < 0x7f) << line;
      }
    }
  }
}

TEST(TerminalReportTest, NamesAndPlacesAreNeverCut) {
  const Comparison c = MustCompare(Large(0.1, true), Large(0, false));
  for (const int width : {60, 80, 100}) {
    const std::string report = TerminalReport(c, {.width = width, .lines = 40});
    const std::string text = JoinedLines(report);
    for (const char* name :
         {"encoder.layers.6.self_attention.with_a_name_that_goes_on.Attention.forward.0",
          "encoder.layers.7.self_attention.with_a_name_that_goes_on.Attention.forward.0",
          "/home/somebody/a/very/long/path/to/the/training/script/of/a/model/train.py:41",
          "Torch.only_here.0.forward", "Tensor.something_else.0.forward"})
      EXPECT_THAT(text, HasSubstr(name)) << report;
  }
}

TEST(TerminalReportTest, NothingIsCutInAFile) {
  Dump target = Large(0.1, true);
  target.complete = false;
  target.note = std::string(200, 'x') + " words " + std::string(200, 'y');
  const Comparison c = MustCompare(std::move(target), Large(0, false));
  const std::string text = TerminalReport(c, {.width = 60, .lines = 5, .whole = true});
  EXPECT_THAT(text, Not(HasSubstr("...")));
  for (const std::string& whole :
       {std::string("Module.encoder.layers.6.self_attention.with_a_name_that_goes_on.Attention"),
        std::string("Module.encoder.layers.14.self_attention.with_a_name_that_goes_on.Attention"),
        std::string(
            "/home/somebody/a/very/long/path/to/the/training/script/of/a/model/train.py:41"),
        std::string("/runs/a/very/long/folder/name/that/does/not/fit/anywhere/step0/rank0 "),
        std::string(200, 'x'), std::string(200, 'y')})
    EXPECT_THAT(text, HasSubstr(whole));
}

TEST(TerminalReportTest, WordsOfTheReportAreExplained) {
  const std::string differs = TerminalReport(MustCompare(Large(0.1, true), Large(0, false)));
  EXPECT_THAT(JoinedLines(differs), HasSubstr("legend   introduced: "));
  EXPECT_THAT(differs, HasSubstr("inherited: an input is"));
  EXPECT_THAT(differs, HasSubstr("rounding: the"));
  EXPECT_THAT(TerminalReport(MustCompare(Large(0, false), Large(0, false))),
              Not(HasSubstr("legend")));
  EXPECT_EQ(Legend("3 within rounding"), "rounding: the dtype's error in one operation");
}

TEST(TerminalReportTest, WideCharactersKeepTheColumns) {
  const auto dump = [](double error) {
    DumpBuilder b;
    for (int i = 0; i < 6; ++i) {
      const std::string name =
          (i % 2 == 0 ? "Module.编码器.注意力." : "Module.encoder.mlp.") + std::to_string(i);
      b.Call(name + ".Linear.forward.0")
          .In(Scaled(Numbers(i, -1, 0.5, 9 + i), i > 1 ? error : 0))
          .Out(Scaled(Numbers(i + 1, -1, 0.5, 8 + i), i > 0 ? error : 0));
    }
    b.dump().path = "/数据/实验/模型/step0/rank0/dump.json";
    return b.Take();
  };
  const Comparison c = MustCompare(dump(0.1), dump(0));
  for (const int width : {60, 80, 100}) {
    std::set<int> begins;  // where the second column begins
    std::string two_columns[2];
    for (const std::string& line : Lines(TerminalReport(c, {.width = width}))) {
      EXPECT_LE(DisplayWidth(line), width) << line;
      if (const size_t at = line.find("inherited   "); at != line.npos)
        begins.insert(DisplayWidth(line.substr(0, at)));
      for (const int side : {0, 1}) {
        if (line.starts_with(side == 0 ? "  target  " : "  golden  ")) two_columns[side] = line;
      }
    }
    EXPECT_EQ(begins.size(), 1u) << TerminalReport(c, {.width = width});
    EXPECT_EQ(DisplayWidth(two_columns[0]), DisplayWidth(two_columns[1]));
  }
}

TEST(TerminalReportTest, SaysWhatWhereAndWhy) {
  const std::string text = TerminalReport(MustCompare(Large(0.1, true), Large(0, false)));
  EXPECT_THAT(text, HasSubstr("DIFFERS"));
  EXPECT_THAT(text, HasSubstr("FIRST DIVERGENCE"));
  EXPECT_THAT(text, HasSubstr("Attention.forward.0"));
  EXPECT_THAT(text, HasSubstr("confidence"));
  EXPECT_THAT(text, HasSubstr("only in the target: 7 calls"));
  EXPECT_THAT(text, HasSubstr("only in the golden: 7 calls"));
  EXPECT_THAT(text, HasSubstr("no backward pass was recorded"));
}

TEST(TerminalReportTest, ColorsOnlyWhenAsked) {
  const Comparison c = MustCompare(Large(0.1, true), Large(0, false));
  EXPECT_THAT(TerminalReport(c), Not(HasSubstr("\x1b")));
  EXPECT_THAT(TerminalReport(c, {.colors = true}), HasSubstr("\x1b[1;31mDIFFERS"));
}

// A dump of one call.
Dump DumpOfOneCall(std::string_view name, Level level, double scale) {
  DumpBuilder b;
  b.Call(std::string(name)).In(Numbers(scale, 0, scale / 2, 2)).Out(Numbers(scale, 0, scale, 4));
  Dump dump = b.Take();
  dump.level = level;
  return dump;
}

TEST(SummaryTest, NothingJudgedIsAnErrorThatNamesTheCause) {
  const auto check = [](Dump target, Dump golden) {
    const Comparison c = MustCompare(std::move(target), std::move(golden));
    return CheckSomethingWasJudged(c);
  };
  const auto linear = [](Level level) { return DumpOfOneCall("Torch.linear.0.forward", level, 1); };
  EXPECT_TRUE(check(linear(Level::kL1), linear(Level::kL1)).ok());

  const Status empty = check(Dump(), linear(Level::kL1));
  EXPECT_EQ(empty.message(),
            "nothing was compared: a dump without records says nothing about a run");
  EXPECT_THAT(empty.hint(), HasSubstr("has no records"));
  EXPECT_THAT(check(linear(Level::kL1), Dump()).hint(), HasSubstr("has no records"));
  EXPECT_THAT(check(Dump(), Dump()).hint(), HasSubstr("neither"));

  const Status levels =
      check(DumpOfOneCall("Module.norm.LayerNorm.forward.0", Level::kL0, 7), linear(Level::kL1));
  EXPECT_EQ(
      levels.message(),
      "nothing of dump.json and dump.json was compared: no value has a partner and a number on "
      "both sides");
  EXPECT_THAT(levels.hint(), HasSubstr("at level L0, the golden at level L1"));
  // The same calls, but both dumps have the same level.
  const Status names =
      check(DumpOfOneCall("Module.norm.LayerNorm.forward.0", Level::kMix, 7), linear(Level::kMix));
  EXPECT_EQ(names.message(), levels.message());
  EXPECT_THAT(names.hint(), HasSubstr("-cm, -am and -dm"));
}

TEST(TerminalReportTest, UnknownIsNotAPass) {
  DumpBuilder t, g;
  for (DumpBuilder* b : {&t, &g}) {
    b->Call("Torch.f.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(kNaN, kNaN, kNaN, kNaN));
  }
  const std::string text = TerminalReport(MustCompare(t.Take(), g.Take()));
  EXPECT_THAT(text, HasSubstr("UNKNOWN"));
  EXPECT_THAT(text, HasSubstr("not a pass"));
  EXPECT_THAT(text, HasSubstr("NaN on both sides"));
}

TEST(TerminalReportTest, HostileNamesCannotDriveTheTerminal) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Torch.\x1b[2J\nevil.0.forward").In(Numbers(1, 0, 0, 1));
    b.Out(Scaled(Numbers(1, 0, 0, 1), error));
    return b.Take();
  };
  const std::string text = TerminalReport(MustCompare(build(0.5), build(0)));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("Torch.?[2J evil.0.forward"));
}

TEST(JsonReportTest, FirstDivergenceAndCounts) {
  simdjson::dom::parser parser;
  const auto doc = Parse(parser, JsonReport(MustCompare(Large(0.1, true), Large(0, false))));
  EXPECT_EQ(std::string_view(doc["schema"]), kJsonReportSchema);
  EXPECT_EQ(std::string_view(doc["verdict"]), "differs");
  EXPECT_EQ(std::string_view(doc["first_divergence"]["class"]), "introduced");
  EXPECT_GT(double(doc["first_divergence"]["confidence"]), 0.5);
  EXPECT_THAT(std::string(std::string_view(doc["first_divergence"]["source_line"])),
              HasSubstr("train.py:41 in forward"));
  const auto norm = doc["first_divergence"]["worst"]["statistics"]["norm"];
  EXPECT_NEAR(double(norm["relative"]), 0.1, 1e-9);
  EXPECT_EQ(int64_t(doc["calls"]["target_only"]), 7);
  EXPECT_EQ(int64_t(doc["calls"]["golden_only"]), 7);
  EXPECT_EQ(doc["unmatched"]["target"].get_array().size(), 7u);
  EXPECT_GT(int64_t(doc["rows"]["differs"]), 50);
}

TEST(JsonReportTest, StaysStrictWithNonFiniteNumbersAndHostileText) {
  DumpBuilder t, g;
  t.Call("Torch.\"q\\.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(kNaN, kNaN, kNaN, kNaN));
  g.Call("Torch.\"q\\.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1 / 0.0, -1 / 0.0, 0, 1));
  simdjson::dom::parser parser;
  const auto doc = Parse(parser, JsonReport(MustCompare(t.Take(), g.Take())));
  const auto worst = doc["first_divergence"]["worst"];
  EXPECT_EQ(std::string_view(worst["severity"]), "Infinity");
  EXPECT_EQ(std::string_view(worst["statistics"]["max"]["target"]), "NaN");
  EXPECT_EQ(std::string_view(worst["statistics"]["min"]["golden"]), "-Infinity");
  EXPECT_EQ(std::string_view(doc["first_divergence"]["target_name"]), "Torch.\"q\\.0.forward");
}

TEST(JsonReportTest, NothingComparedIsUnknown) {
  simdjson::dom::parser parser;
  const auto doc = Parse(parser, JsonReport(MustCompare(Dump(), Dump())));
  EXPECT_EQ(std::string_view(doc["verdict"]), "unknown");
  EXPECT_TRUE(doc["first_divergence"].is_null());
}

using Text = std::vector<std::string>;

TEST(TextLayoutTest, CutsAndWraps) {
  EXPECT_EQ(CutRight("abcdefgh", 6), "abc...");
  EXPECT_EQ(CutMiddle("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(CutMiddle("/runs/of/today/step0/rank0", 19), "/runs...step0/rank0");
  EXPECT_EQ(CutMiddle("abcdefgh", 6), "abc...");
  EXPECT_EQ(CutRight("äöüäöüäö", 6), "äöü...");
  EXPECT_EQ(Pad("ä", 3), "ä  ");
  EXPECT_EQ(Wrap("one two three", 7, 5), (Text{"one two", "three"}));
  EXPECT_EQ(Wrap("one two three four", 7, 2), (Text{"one two", "thre..."}));
  EXPECT_EQ(Wrap("abcdefghij", 4), (Text{"abcd", "efgh", "ij"}));
  EXPECT_EQ(Wrap("Module.layers.10.fc.Linear", 16), (Text{"Module.layers.", "10.fc.Linear"}));
  EXPECT_EQ(Wrap("at a/longfoldername/b", 12), (Text{"at", "a/longfolder", "name/b"}))
      << "a part near the beginning of the line is no place to break";
}

TEST(TextLayoutTest, WordsStayWhole) {
  EXPECT_EQ(WrapWords("one two three", 7), (Text{"one two", "three"}));
  EXPECT_EQ(WrapWords("a Module.layers.10 b  c", 5), (Text{"a", "Module.layers.10", "b  c"}));
  EXPECT_EQ(WrapWords("Module.layers.10", 5), (Text{"Module.layers.10"}));
  EXPECT_EQ(WrapWords("", 5), Text{});
}

TEST(TextLayoutTest, OfASourceLineTheCodeIsCut) {
  const char* line = "/home/me/deep/run/train.py:41 in forward: y = gelu(x, approximate=True)";
  EXPECT_EQ(SourceLines(line, 80, false), Text{line});
  EXPECT_EQ(
      SourceLines(line, 28, false),
      (Text{"/home/me/deep/run/", "train.py:41 in forward: y =", "gelu(x, approximate=True)"}));
  EXPECT_EQ(SourceLines("/home/me/train.py:41 in f: a = b + c + d + e + f + g + h + i", 24, false),
            (Text{"/home/me/train.py:41 in", "f: a = b + c + d + e + f", "+ g + h + i"}));
  EXPECT_EQ(SourceLines("train.py:41 in f: a = b + c + d + e + f + g + h + i", 24, false),
            (Text{"train.py:41 in f: a = b", "+ c + d + e + f + g +..."}));
  EXPECT_EQ(SourceLines(line, 10, true)[0], "/home/me/deep/run/train.py:41");
  EXPECT_EQ(SourceLines("", 80, false), Text{});
}

TEST(TextLayoutTest, ChineseCharactersTakeTwoColumns) {
  EXPECT_EQ(Columns("模型/a"), 6);
  EXPECT_EQ(Pad("模型", 5), "模型 ");
  EXPECT_EQ(CutRight("模型训练数据", 12), "模型训练数据");
  EXPECT_EQ(CutRight("模型训练数据", 8), "模型...");
  EXPECT_EQ(CutMiddle("模型训练数据", 9), "模...数据");
  EXPECT_EQ(Wrap("模型 训练数据", 8, 9), (Text{"模型 训", "练数据"}));
  EXPECT_EQ(Wrap("模型训练", 5, 9), (Text{"模型", "训练"}));
  EXPECT_EQ(Wrap("模型", 1, 9), (Text{"模", "型"}));
}

}  // namespace
}  // namespace msprobe::compare
