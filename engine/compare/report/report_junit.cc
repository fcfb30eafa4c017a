#include <fmt/format.h>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/report_ci.h"
#include "engine/formats/tables/xlsx_text.h"

namespace msprobe::compare {
namespace {

std::string Xml(std::string_view text) {
  std::string out;
  formats::AppendXmlText(&out, formats::XlsxText(text));
  return out;
}

std::string SuiteName(const RankResult& r) {
  std::string name = r.step >= 0 ? fmt::format("step{}", r.step) : "";
  if (r.rank >= 0) name += fmt::format("{}rank{}", name.empty() ? "" : ".", r.rank);
  return name.empty() ? "compare" : name;
}

class Suite {
 public:
  Suite(const RankResult& r, int32_t first_wrong_step)
      : r_(r), inherited_(InheritedFrom(r, first_wrong_step)), name_(SuiteName(r)) {}

  std::string Write() {
    Whole();
    for (const FailHit& hit : r_.hits) {
      Case("fail-on " + hit.condition, "failure", DescribeHit(hit).Shown(), "");
    }
    for (const ApiTally& api : r_.details.apis) {
      if (api.differ > 0) {
        Case(api.name, "failure",
             "{} of {} calls differ"_t(api.differ, api.differ + api.agree + api.unknown).Shown(),
             api.first.Shown());
      } else if (api.agree == 0) {
        Case(api.name, "skipped", "nothing could be judged"_t.Shown(), "");
      } else {
        Case(api.name, "", "", "");
      }
    }
    return fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n"
        "    <properties>\n{}    </properties>\n{}  </testsuite>\n",
        Xml(name_), tests, failures, errors, skipped, Properties(), body_);
  }

  int64_t tests = 0, failures = 0, errors = 0, skipped = 0;

 private:
  std::string Properties() const {
    std::vector<LabelledText> all{{"target"_t, r_.target}, {"golden"_t, r_.golden}};
    if (r_.failed.ok()) {
      Message part = DescribeCompared(r_.summary);
      all.push_back({"compared"_t, part.empty() ? "all values"_t : std::move(part)});
      for (auto& more : {ConditionsOf(r_), CountsOf(r_)})
        all.insert(all.end(), more.begin(), more.end());
    }
    std::string text;
    for (const LabelledText& property : all) {
      text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", property.label.English(),
                          Xml(property.text.English()));
    }
    return text;
  }

  void Whole() {
    if (!r_.failed.ok()) return Case("compare", "error", r_.failed.ShownMessage(), "");
    switch (r_.summary.verdict) {
      case RunVerdict::kEqual:
      case RunVerdict::kNoise:
        return Case("compare", "", "", "");
      case RunVerdict::kStructure:
        return Case("compare", "skipped",
                    "all values agree, but the calls are not the same"_t.Shown(), "");
      case RunVerdict::kUnknown:
        return Case("compare", "skipped", "something recorded could not be judged"_t.Shown(), "");
      case RunVerdict::kDiffers:
        break;
    }
    if (r_.first.pair < 0) return Case("compare", "failure", "the two differ"_t.Shown(), "");
    if (!inherited_.empty())
      return Case("compare", "failure",
                  Message::Joined({inherited_, "first seen at {}"_t(r_.first_name)}, ", ").Shown(),
                  r_.first.source_line);
    const FirstDivergence& f = r_.first;
    std::string text;
    if (!f.module.empty()) text += "in {}"_t(f.module).Shown() + "\n";
    if (!f.source_line.empty()) text += f.source_line + "\n";
    if (!f.caller_line.empty()) text += "called from {}"_t(f.caller_line).Shown() + "\n";
    if (!f.golden_line.empty()) text += "in the golden: {}"_t(f.golden_line).Shown() + "\n";
    text += f.why.Shown();
    if (!r_.first_bits.empty()) text += "\n" + r_.first_bits.Shown();
    if (!f.advice.empty()) text += "\n" + "next: {}"_t(f.advice).Shown();
    Case("compare", "failure", "first divergence: {}"_t(r_.first_name).Shown(), text);
  }

  // `kind`: "failure", "error" or "skipped"; "" for a test that passes.
  void Case(std::string_view name, std::string_view kind, std::string_view message,
            std::string_view text) {
    ++tests;
    failures += kind == "failure";
    errors += kind == "error";
    skipped += kind == "skipped";
    body_ +=
        fmt::format("    <testcase classname=\"msprobe.{}\" name=\"{}\"", Xml(name_), Xml(name));
    if (kind.empty()) {
      body_ += "/>\n";
      return;
    }
    body_ += fmt::format(">\n      <{} message=\"{}\"", kind, Xml(message));
    body_ += text.empty() ? "/>\n" : fmt::format(">{}</{}>\n", Xml(text), kind);
    body_ += "    </testcase>\n";
  }

  const RankResult& r_;
  const Message inherited_;
  const std::string name_;
  std::string body_;
};

}  // namespace

std::string JUnitReport(std::span<const RankResult> results) {
  int64_t tests = 0, failures = 0, errors = 0, skipped = 0;
  std::string suites;
  const int32_t first_wrong_step = FirstWrongStep(results);
  for (const RankResult& r : results) {
    Suite suite(r, first_wrong_step);
    suites += suite.Write();
    tests += suite.tests, failures += suite.failures, errors += suite.errors;
    skipped += suite.skipped;
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"msprobe compare\" "
      "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n{}</testsuites>\n",
      tests, failures, errors, skipped, suites);
}

}  // namespace msprobe::compare
