#include "engine/report_page/dump_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/anomaly/value_kinds.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/dump/write/coverage.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_frame.h"

namespace msprobe::report_page {
namespace {

constexpr size_t kMostCalls = 5, kMostOperations = 8;
// Larger numbers stand for "nothing" in attention masks (-3.4e38, -1e30), and say nothing of a
// call.
constexpr double kMasking = 1e30;
constexpr double kGrown = 4;  // times; a sum of a few numbers does not grow

struct Call {
  size_t record = 0;
  double sort = 0;  // the largest first
  Message said;     // after the name of the call
};

// The `kMostCalls` largest.
class Largest {
 public:
  void Add(Call call) {
    if (calls_.size() == kMostCalls && !(call.sort > calls_.back().sort)) return;
    const auto at = std::find_if(calls_.begin(), calls_.end(),
                                 [&](const Call& other) { return call.sort > other.sort; });
    calls_.insert(at, std::move(call));
    if (calls_.size() > kMostCalls) calls_.pop_back();
  }
  const std::vector<Call>& calls() const { return calls_; }

 private:
  std::vector<Call> calls_;
};

double SizeOf(const Leaf& leaf) {
  return std::max(std::abs(leaf.max_value), std::abs(leaf.min_value));
}

bool IsReal(const Leaf& leaf) {
  const std::optional<DType> dtype = leaf.dtype.dtype();
  return dtype && DTypeKindOf(*dtype) == DTypeKind::kFloat;
}

// What one pass over the values of all calls finds.
struct Answers {
  std::vector<Call> non_finite;  // the first ones
  int64_t non_finite_calls = 0, masking_calls = 0;
  Largest largest, growing;
  int64_t not_measured = 0;  // tensors without numbers
  // A module only hands on what a call inside it made: counted where nothing else is recorded.
  bool of_modules = false;

  void Take(const Dump& dump, size_t index);
};

void Answers::Take(const Dump& dump, size_t index) {
  const Record& record = dump.records[index];
  double in = 0, out = 0;
  const Leaf* wrong = nullptr;
  bool is_known = false;  // whether a number came in
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor) continue;
    if (!leaf.has_stats) {
      ++not_measured;
      continue;
    }
    if (anomaly::KindsOf(leaf).any()) {
      if (wrong == nullptr || leaf.slot == Slot::kOutput) wrong = &leaf;
      continue;
    }
    if (!IsReal(leaf)) continue;  // an index is no size
    const double size = SizeOf(leaf);
    if (leaf.slot == Slot::kOutput) {
      out = std::max(out, size);
    } else if (size > 0) {
      in = std::max(in, size), is_known = true;
    }
  }
  if (wrong != nullptr && ++non_finite_calls <= static_cast<int64_t>(kMostCalls)) {
    const Message numbers = anomaly::DescribeNonfinite(*wrong);
    non_finite.push_back(
        {index, 0,
         wrong->slot == Slot::kOutput ? "in a result: {}"_t(numbers) : "it gets: {}"_t(numbers)});
  }
  if (record.is_module && !of_modules) return;
  if (out >= kMasking) {
    ++masking_calls;
    return;
  }
  if (out > 0) largest.Add({index, out, "largest value {:.4g}"_t(out)});
  if (is_known && wrong == nullptr && out / in >= kGrown)
    growing.Add({index, out / in, "{:.3g} times: {:.4g} becomes {:.4g}"_t(out / in, in, out)});
}

std::string List(const Dump& dump, const std::vector<Call>& calls) {
  std::string html = "<ol>\n";
  for (const Call& call : calls) {
    html +=
        fmt::format("<li><a translate=\"no\" href=\"#call={}\">{}</a> {}</li>\n", call.record,
                    HtmlText(dump.records[call.record].name, 300), Tagged("span", "", call.said));
  }
  return html + "</ol>\n";
}

std::string Card(const Message& title, const std::string& content) {
  return "<div>" + Tagged("h2", "", title) + "\n" + content + "</div>\n";
}

std::string More(int64_t all) {
  const int64_t more = all - static_cast<int64_t>(kMostCalls);
  return more > 0 ? Element("p", "quiet", "and {} more calls"_t(more)) : "";
}

std::string NotRecorded(const Dump& dump, int64_t not_measured) {
  std::string html;
  const auto line = [&](const Message& text) { html += Element("li", "", text); };
  if (!dump.complete) line(dump.note);
  if (const Result<dump::Coverage> coverage =
          dump::ReadCoverage(JoinPath(dump.folder, dump::kCoverageFile));
      coverage.ok()) {
    for (const Message& text : dump::CoverageLines(*coverage, kMostOperations)) line(text);
  }
  if (not_measured > 0) line("{} tensors have no numbers"_t(not_measured));
  const bool has_stacks = !dump.stacks.empty();
  if (!has_stacks) line("the lines of the program (stack.json)"_t);
  line("how long a call took: a dump has no times"_t);
  return "<ul>\n" + html + "</ul>\n";
}

}  // namespace

std::string DumpQuestions(const Dump& dump) {
  if (dump.records.empty()) return "";
  Answers found;
  found.of_modules = std::all_of(dump.records.begin(), dump.records.end(),
                                 [](const Record& record) { return record.is_module; });
  for (size_t i = 0; i < dump.records.size(); ++i) found.Take(dump, i);
  std::string html = "<section id=\"asked\">\n";
  html +=
      Card("NaN and infinity"_t, found.non_finite.empty()
                                     ? Element("p", "", "No NaN and no infinity was recorded."_t)
                                     : List(dump, found.non_finite) + More(found.non_finite_calls));
  std::string largest = found.largest.calls().empty()
                            ? Element("p", "", "No numbers were recorded."_t)
                            : List(dump, found.largest.calls());
  if (found.masking_calls > 0) {
    largest +=
        Element("p", "quiet",
                "{} calls return 1e30 and more, as masks have it; they are not in this list"_t(
                    found.masking_calls));
  }
  html += Card("Largest values"_t, largest);
  html += Card("Where values grow"_t,
               found.growing.calls().empty()
                   ? Element("p", "", "No call makes its largest value four times as large."_t)
                   : List(dump, found.growing.calls()));
  html += Card("What is recorded, and what is not"_t, NotRecorded(dump, found.not_measured));
  return html + "</section>\n";
}

}  // namespace msprobe::report_page
