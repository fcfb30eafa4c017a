#include "engine/report_page/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/report_page/data_links.h"
#include "engine/report_page/element_differences.h"
#include "engine/report_page/page_calls.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_values.h"
#include "engine/report_page/source_text.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::report_page {
namespace {

using compare::Comparison;
using compare::test::DumpBuilder;
using compare::test::MustCompare;
using compare::test::Numbers;
using compare::test::Scaled;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kHostile[] = "Functional.<script>alert(1)</script>\"'&\xe2\x80\xae.0.forward";

TEST(PageData, Base64IsThatOfTheStandard) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("\xff\xfe\xfd\xfc"), "//79/A==");
}

TEST(PageData, BytesLieByTheirPlaceInANumber) {
  EXPECT_EQ(ByteColumns("ABCDEFGH", 4), "AEBFCGDH");
  EXPECT_EQ(ByteColumns("ABC", 1), "ABC");
  EXPECT_EQ(ByteColumns("", 4), "");
}

TEST(PageData, TextCannotBeMarkup) {
  EXPECT_EQ(HtmlText("<a b=\"c\">'&"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
  EXPECT_EQ(HtmlText("a\xe2\x80\xae z\xe2\x81\xa6"), "a\xef\xbf\xbd z\xef\xbf\xbd");
  EXPECT_EQ(HtmlText("a\nb\x01"), "a b ");
  EXPECT_EQ(HtmlText("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(HtmlText("\xe4\xb8\xad"), "\xe4\xb8\xad");
  const std::string cut = HtmlText(std::string(10000, 'x'), 100);
  EXPECT_LT(cut.size(), 200u);
  EXPECT_THAT(cut, HasSubstr("9900 characters"));
}

TEST(PageValues, CallsOfLowRankComeFirst) {
  const std::vector<uint32_t> costs = {10, 10, 10, 10, 10};
  const std::vector<uint8_t> ranks = {3, 1, 0, 3, 2};
  EXPECT_THAT(ChooseCalls(costs, ranks, 1000), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(ChooseCalls(costs, ranks, 25), ElementsAre(0, 1, 1, 0, 1));
  EXPECT_THAT(ChooseCalls(costs, ranks, 5), ElementsAre(0, 0, 1, 0, 0));
}

TEST(ModuleTree, IsMadeOfNames) {
  ModuleTree tree;
  const uint32_t mlp = tree.Of("Module.layers.3.mlp.LlamaMLP.forward.0");
  EXPECT_EQ(tree.Of("Module.layers.3.mlp.LlamaMLP.backward.7"), mlp);
  EXPECT_EQ(tree.labels()[mlp], "mlp");
  EXPECT_EQ(tree.classes()[mlp], "LlamaMLP");
  EXPECT_EQ(tree.labels()[tree.parents()[mlp]], "3");
  EXPECT_EQ(tree.classes()[tree.parents()[mlp]], "");
  EXPECT_EQ(tree.Of(""), 0u);
  EXPECT_EQ(tree.Of("Functional.linear.0.forward"), 0u);
  for (size_t node = 1; node < tree.parents().size(); ++node) EXPECT_LT(tree.parents()[node], node);
}

TEST(ModuleTree, DeepNamesStaySmall) {
  std::string name = "Module.";
  for (int i = 0; i < 100000; ++i) name += "a.";
  ModuleTree tree;
  tree.Of(name + "A.forward.0");
  EXPECT_LT(tree.parents().size(), 100u);
}

TEST(DataLinks, TheLastCallWithTheSameNumbersMadeAnInput) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward").In(Numbers(9, -9, 0, 20)).Out(Numbers(1, -1, 0, 5));
  b.Call("Module.m.M.forward.0").Out(Numbers(1, -1, 0, 5));
  b.Call("Torch.g.0.forward").In(Numbers(1, -1, 0, 5)).Out(Numbers(2, -2, 0, 7));
  b.Call("Torch.h.0.forward")
      .In(Numbers(1, -1, 0, 5))
      .In(Numbers(1, -1, 0, 5))
      .Out(Numbers(3, -3, 0, 8));
  const Dump dump = b.Take();
  const std::vector<int32_t> made_by = MakersOf(dump);
  EXPECT_THAT(made_by, ElementsAre(-1, -1, 0, 0, -1, 0, 0, -1));
  const Takers takers(dump, made_by);
  EXPECT_THAT(takers.Of(0), ElementsAre(2, 3));
  EXPECT_TRUE(takers.Of(3).empty());
}

TEST(DataLinks, EqualElementsIdentifyNothing) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward").Out(Numbers(1, 1, 1, 5));
  b.Call("Torch.g.0.forward").In(Numbers(1, 1, 1, 5));
  EXPECT_THAT(MakersOf(b.Take()), ElementsAre(-1, -1));
}

TEST(SourceText, OnlyPythonFilesWithTheNamedLineAreShown) {
  const TemporaryFolder folder;
  const std::string good = folder.path() + "/model.py", secret = folder.path() + "/secret.txt";
  ASSERT_TRUE(WriteFileAtomically(good, "import torch\ny = gelu(x)\nprint(y)\n").ok());
  ASSERT_TRUE(WriteFileAtomically(secret, "password\n").ok());
  const auto frame = [](const std::string& path, int line, const std::string& source) {
    SourceTexts texts;
    std::string json;
    texts.AppendFrame("File " + path + ", line " + std::to_string(line) + ", in f, \n " + source,
                      &json);
    return json;
  };
  EXPECT_THAT(frame(good, 2, "y = gelu(x)"),
              HasSubstr(",1,[\"import torch\",\"y = gelu(x)\",\"print(y)\"]]"));
  EXPECT_THAT(frame(good, 2, "y = relu(x)"), Not(HasSubstr("import")));
  EXPECT_THAT(frame(good, 9, "y = gelu(x)"), Not(HasSubstr("import")));
  EXPECT_THAT(frame(good, 2, ""), Not(HasSubstr("import")));
  EXPECT_THAT(frame(secret, 1, "password"), Not(HasSubstr(",1,[")));
}

TEST(CallColumns, KeepTheNamesOfPartnersFromTheFirstOtherName) {
  const Dump dump = DumpBuilder()
                        .Call("Torch.f.0.forward")
                        .Call("Torch.g.0.forward")
                        .Call("Torch.f.1.forward")
                        .Take();
  const std::vector<Record>& records = dump.records;
  CallColumns calls;
  calls.Add({.record = &records[0], .partner = &records[0]});
  EXPECT_TRUE(calls.partner_name.empty());
  calls.Add({.record = &records[1], .partner = &records[2]});
  calls.Add({.record = &records[2], .partner = nullptr});
  EXPECT_THAT(calls.name, ElementsAre(0, 1, 0));
  EXPECT_THAT(calls.partner_name, ElementsAre(kNoNumber, 0, kNoNumber));
  EXPECT_THAT(calls.partner_number, ElementsAre(kNoNumber, 1, kNoNumber));
}

Comparison Example(std::string_view name = "Functional.gelu.0.forward") {
  DumpBuilder target, golden;
  for (const bool wrong : {true, false}) {
    DumpBuilder& b = wrong ? target : golden;
    b.Call("Functional.linear.0.forward").In(Numbers(9, -9, 0, 20)).Out(Numbers(1, -1, 0, 5));
    b.Call(name).In(Numbers(1, -1, 0, 5)).Out(Scaled(Numbers(2, -2, 0, 7), wrong ? 0.1 : 0));
    b.At("train.py", 41, "y = <b>F.gelu(x)</b>");
    b.Call("Functional.linear.1.forward").In(Scaled(Numbers(2, -2, 0, 7), wrong ? 0.1 : 0));
  }
  return MustCompare(target.Take(), golden.Take());
}

std::string Whole(const PageText& page) {
  std::string whole;
  for (const std::string& piece : page) whole += piece;
  return whole;
}

std::string PageOf(const Comparison& comparison) {
  const std::vector<compare::RankResult> results = {compare::SummarizeRank(comparison, -1, -1)};
  std::vector<PagePart> parts = {PartOf(comparison, {})};
  return Whole(ComparisonPage(results, {"runs/new", "runs/good", {}}, parts));
}

// Two calls; the first element of the first result and two of the second one differ.
Comparison WithElements() {
  DumpBuilder target, golden;
  for (const bool wrong : {true, false}) {
    DumpBuilder& b = wrong ? target : golden;
    b.Call("Torch.f.0.forward").Out(Numbers(9, -9, 0, 20));
    b.last().value = wrong ? "[1.5, 2, 3, 4, 5, 6]" : "[1, 2, 3, 4, 5, 6]";
    b.Call("Torch.g.0.forward").Out(Numbers(2, -2, 0, 7));
    b.last().value = wrong ? "[1, 2, 3, 4, 5.25, 36]" : "[1, 2, 3, 4, 5, 6]";
  }
  compare::CompareOptions options;
  options.mode = compare::Mode::kTensor;
  return MustCompare(target.Take(), golden.Take(), options);
}

TEST(ElementDifferences, AreCountedUntilEnoughWasRead) {
  const Comparison c = WithElements();
  const auto json = [&](uint64_t bytes, uint32_t row) {
    std::string text;
    ElementDifferences(c, std::vector<uint32_t>{1, 0}, bytes).AppendJson(row, &text);
    return text;
  };
  EXPECT_EQ(json(1 << 20, 0),
            R"({"equal":5,"nonfinite":0,"from":-1,"counts":[1],"values":{"low":-9,"high":9,)"
            R"("target":[0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,0,1,1,1,0,0,0,0],)"
            R"("golden":[0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,0,1,1,1,0,0,0,0]},)"
            R"("first":[["[0, 0]",1.5,1]],"worst":[["[0, 0]",1.5,1]]})");
  EXPECT_EQ(json(1 << 20, 1), R"({"equal":4,"nonfinite":0,"from":-1,"counts":[1,0,1],)"
                              R"("values":{"low":-2,"high":2,)"
                              R"("target":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,5],)"
                              R"("golden":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,0,0,0,0,0,5]},)"
                              R"("first":[["[1, 1]",5.25,5],["[1, 2]",36,6]],)"
                              R"("worst":[["[1, 2]",36,6],["[1, 1]",5.25,5]]})");
  EXPECT_THAT(json(1, 1), HasSubstr("equal"));
  EXPECT_EQ(json(1, 0), "0");  // the second of the list
  EXPECT_EQ(json(0, 1), "0");
}

TEST(ElementDifferences, OfSamplesHaveNoPlaces) {
  Comparison c = WithElements();
  c.target.sampled = true;
  std::string text;
  ElementDifferences(c, std::vector<uint32_t>{0}, 1 << 20).AppendJson(0, &text);
  EXPECT_THAT(text, HasSubstr(R"({"equal":5,"nonfinite":0,"from":-1,"counts":[1],"values":{)"));
  EXPECT_THAT(text, Not(HasSubstr("first")));
  c.golden.sample_step = 2;
  text.clear();
  ElementDifferences(c, std::vector<uint32_t>{0}, 1 << 20).AppendJson(0, &text);
  EXPECT_EQ(text, "0");
}

TEST(ReportPage, SaysTheFindingWithoutJavaScript) {
  const std::string html = PageOf(Example());
  EXPECT_THAT(html, HasSubstr(">DIFFERS</strong>"));
  EXPECT_THAT(html, HasSubstr("<h1 translate=\"no\">Functional.gelu.0.forward</h1>"));
  EXPECT_THAT(html, HasSubstr("train.py:41 in forward: y = &lt;b&gt;F.gelu(x)&lt;/b&gt;"));
  EXPECT_THAT(html,
              HasSubstr("<td translate=\"no\">Functional.linear.1.forward</td><td>inherited</td>"));
  EXPECT_THAT(html, HasSubstr("id=\"end\" data-parts=\"1\""));
}

TEST(ReportPage, SaysThatAllAgrees) {
  DumpBuilder b, same;
  for (DumpBuilder* one : {&b, &same}) one->Call("Torch.f.0.forward").Out(Numbers(1, -1, 0, 5));
  const std::string html = PageOf(MustCompare(b.Take(), same.Take()));
  EXPECT_THAT(html, HasSubstr(">EQUAL</strong>"));
  EXPECT_THAT(html, HasSubstr("No divergence"));
}

TEST(ReportPage, NamesAreNeverMarkup) {
  const std::string html = PageOf(Example(kHostile));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("\xe2\x80\xae")));
}

TEST(ReportPage, IsTheSameEachTime) { EXPECT_EQ(PageOf(Example()), PageOf(Example())); }

TEST(ReportPage, APairThatFailedHasNoPart) {
  const Comparison comparison = Example();
  std::vector<compare::RankResult> results = {compare::SummarizeRank(comparison, 0, 0), {}};
  results[1].step = 0, results[1].rank = 1;
  results[1].failed = InvalidDump("dump.json", 7).Expected("<x>"_t).Found("y"_t);
  std::vector<PagePart> parts(2);
  parts[0] = PartOf(comparison, {.step = 0, .rank = 0});
  const std::string html = Whole(ComparisonPage(results, {"a", "b", {}}, parts));
  EXPECT_THAT(
      html,
      HasSubstr(
          "data-step=\"0\" data-rank=\"1\"><td>0</td><td>1</td><td data-zh=\"错误\">error</td>"));
  EXPECT_THAT(html, HasSubstr("expected &lt;x&gt;"));
  EXPECT_THAT(html, HasSubstr("id=\"p0-head\""));
  EXPECT_THAT(html, Not(HasSubstr("id=\"p1-head\"")));
}

TEST(ReportPage, OfOneDumpNamesTheFirstNaN) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward").Out(Numbers(1, -1, 0, 5));
  b.Call("Torch.g.0.forward").Out(Numbers(2, -1, 0, 5));
  const ElementCounts counts{.nan = 3, .pos_inf = 0, .neg_inf = 0, .zero = 0};
  b.last().counts = &counts;
  Dump dump = b.Take();
  PagePart part = PartOf(dump, {});
  EXPECT_THAT(Whole(DumpPage(dump, std::move(part))),
              HasSubstr("<h1 translate=\"no\">Torch.g.0.forward</h1>"));
}

std::string DumpPageOf(const Dump& dump) {
  std::string whole;
  for (const std::string& piece : DumpPage(dump, PartOf(dump, {}))) whole += piece;
  return whole;
}

TEST(ReportPage, OfOneDumpAnswersWhatAReaderAsks) {
  DumpBuilder b;
  b.Call("Torch.add.0.forward").In(Numbers(2, -2, 0, 3)).Out(Numbers(3, -1, 0, 3));
  b.Call("Torch.exp.0.forward").In(Numbers(6, -2, 0, 7)).Out(Numbers(403, 0, 9, 403));
  b.Call("Module.Net.forward.0").In(Numbers(2, -2, 0, 3)).Out(Numbers(403, 0, 9, 403));
  b.Call("Torch.where.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(1, -3.4e38, 0, 3.4e38));
  const std::string html = DumpPageOf(b.Take());
  EXPECT_THAT(html, HasSubstr("No NaN and no infinity was recorded."));
  EXPECT_THAT(
      html, ContainsRegex(
                "href=\"#call=1\">Torch.exp.0.forward</a> <span [^>]*>67.2 times: 6 becomes 403"));
  EXPECT_THAT(html, ContainsRegex("Torch.exp.0.forward</a> <span [^>]*>largest value 403"));
  EXPECT_THAT(html, Not(ContainsRegex("Module.Net.forward.0</a> <span[^>]*>202 times")));
  EXPECT_THAT(html, HasSubstr("1 calls return 1e30 and more, as masks have it"));
  EXPECT_THAT(html, HasSubstr("a dump has no times"));
}

TEST(ReportPage, OfOneDumpListsTheCallsWithNaN) {
  DumpBuilder b;
  const double nan = Leaf::kNaN;
  for (int i = 0; i < 7; ++i)
    b.Call("Torch.log." + std::to_string(i) + ".forward").Out(Numbers(nan, nan, nan, nan));
  const std::string html = DumpPageOf(b.Take());
  EXPECT_THAT(html,
              ContainsRegex("href=\"#call=0\">Torch.log.0.forward</a> <span [^>]*>in a result: "));
  EXPECT_THAT(html, HasSubstr("and 2 more calls"));
  EXPECT_THAT(html, HasSubstr("No numbers were recorded."));
}

TEST(ReportPage, OfADumpWithoutCalls) {
  const Dump dump;
  EXPECT_THAT(Whole(DumpPage(dump, PartOf(dump, {}))), HasSubstr("This dump has no call"));
}

}  // namespace
}  // namespace msprobe::report_page
