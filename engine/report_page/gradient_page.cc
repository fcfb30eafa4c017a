#include "engine/report_page/gradient_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/report_page/page_frame.h"
#include "engine/report_page/trends.h"

namespace msprobe::report_page {
namespace {

using gradients::GradientComparison;
using gradients::GradientFall;
using gradients::GradientVerdict;
using gradients::RankSimilarity;
using gradients::Similarity;

// How many elements point elsewhere; "": a table does not say.
Message PointElsewhere(const GradientFall& fall) {
  return fall.count < 0 ? Message()
                        : "{} of {} elements point elsewhere."_t(fall.changed, fall.count);
}

// The first line of the finding; the page opens at the cell of this parameter, rank and step.
std::string Section(std::string_view kind, std::string_view parameter, int64_t step, int64_t rank) {
  if (parameter.empty())
    return fmt::format("<section id=\"finding\" class=\"{}\" data-part=\"0\">\n", kind);
  return fmt::format(
      "<section id=\"finding\" class=\"{}\" data-part=\"0\" data-parameter=\"{}\" "
      "data-step=\"{}\" data-rank=\"{}\">\n",
      kind, HtmlText(parameter), step, rank);
}

// The words of the banner, and its class.
std::pair<Message, std::string_view> BannerOf(const GradientComparison& c) {
  switch (gradients::VerdictOf(c)) {
    case GradientVerdict::kFalls:
      return {"FALLS in step {}"_t(c.fall->step), "differs"};
    case GradientVerdict::kUnreadable:
      return {"UNKNOWN"_t, "unknown"};
    case GradientVerdict::kMayBeRounding:
      return {"UNKNOWN: rounding, nothing else falls"_t, "unknown"};
    case GradientVerdict::kSimilar:
      return {"SIMILAR, nothing falls"_t, "equal"};
    case GradientVerdict::kSame:
      return {"SAME directions"_t, "equal"};
  }
  return {Message(), "unknown"};
}

// The parameter and the step that the finding names; "": none.
std::pair<std::string, int64_t> NamedIn(const GradientComparison& c) {
  if (gradients::VerdictOf(c) == GradientVerdict::kMayBeRounding) {
    const std::string& name = c.may_be_rounding[0];
    const auto row = std::find(c.all.parameters().begin(), c.all.parameters().end(), name);
    if (row != c.all.parameters().end()) {
      for (size_t step = 0; step < c.all.steps().size(); ++step) {
        const Similarity& cell = c.all.At(row - c.all.parameters().begin(), step);
        if (cell.known() && cell.share() < 1) return {name, c.all.steps()[step]};
      }
    }
  }
  const auto& named = c.fall ? c.fall : c.first_difference;
  return named ? std::pair(named->parameter, named->step) : std::pair(std::string(), int64_t{0});
}

std::string Finding(const GradientComparison& c) {
  if (!c.fall) {
    if (!c.first_difference) return Element("h1", "calm", "All directions are the same."_t);
    if (!c.may_be_rounding.empty()) {
      return Element("h1", "calm",
                     "No similarity falls, but of gradients that may be rounding."_t) +
             NameElement("p", "", c.may_be_rounding[0]);
    }
    return Element("h1", "calm",
                   "No similarity falls. The first direction differs in step {}."_t(
                       c.first_difference->step)) +
           NameElement("p", "", c.first_difference->parameter);
  }
  const GradientFall& fall = *c.fall;
  const int64_t rank = c.ranks[c.fall_rank].rank;
  std::string html =
      Element("p", "label",
              rank < 0 ? "The similarity first falls in step {}"_t(fall.step)
                       : "The similarity first falls in step {}, on rank {}"_t(fall.step, rank));
  html += NameElement("h1", "", fall.parameter);
  const Message now = fall.before ? "{:.4g} before, now {:.4g}"_t(*fall.before, fall.similarity)
                                  : Message(fmt::format("{:.4g}", fall.similarity));
  html += Element("p", "why", Message::Joined({now, PointElsewhere(fall)}, ": "));
  html += Element("p", "next", fall.why);
  if (c.fall_norms) {
    html += Element("p", "quiet",
                    "The norm is {:.6g} in the target, {:.6g} in the golden."_t(
                        c.fall_norms->target, c.fall_norms->golden));
  }
  if (!c.first_difference || c.first_difference->step == fall.step) return html;
  const GradientFall& first = *c.first_difference;
  return html +
         Element("p", "quiet",
                 Message::Joined({"The first direction differs in step {}"_t(first.step),
                                  PointElsewhere(first)},
                                 ": ")) +
         NameElement("p", "quiet", first.parameter);
}

TrendCell CellOf(const Similarity& s) {
  return {.target_norm = static_cast<float>(s.target_norm),
          .golden_norm = static_cast<float>(s.golden_norm),
          .apart = s.count == 0 ? 0 : static_cast<float>(1 - s.share()),
          .verdict =
              static_cast<uint8_t>(s.count == 0 || s.share() == 1 ? compare::RowVerdict::kEqual
                                                                  : compare::RowVerdict::kDiffers)};
}

// `for_each(take)` calls take(name, step, similarity) for each that is known; it is called twice.
template <typename ForEach>
Trend TrendOf(std::string title, const std::vector<int64_t>& steps, ForEach for_each) {
  Trend trend({.title = std::move(title), .measure = TrendMeasure::kShare}, steps, {-1});
  uint64_t order = 0;
  for_each([&](const std::string& name, size_t step, const Similarity& s) {
    trend.Announce(name, step, 0, CellOf(s).apart, order++);
  });
  trend.Choose();
  for_each([&](const std::string& name, size_t step, const Similarity& s) {
    trend.Set(trend.RowOf(name), step, 0, CellOf(s));
  });
  return trend;
}

Trend OfParameters(const GradientComparison& c) {
  return TrendOf("gradients", c.all.steps(), [&](const auto& take) {
    for (size_t row = 0; row < c.all.parameters().size(); ++row) {
      for (size_t step = 0; step < c.all.steps().size(); ++step) {
        const Similarity& cell = c.all.At(row, step);
        if (cell.known()) take(c.all.parameters()[row], step, cell);
      }
    }
  });
}

// A row for each rank: all its parameters together.
Trend OfRanks(const GradientComparison& c) {
  const std::vector<int64_t>& steps = c.all.steps();
  return TrendOf("each rank", steps, [&](const auto& take) {
    for (const RankSimilarity& rank : c.ranks) {
      const std::string name =
          rank.rank < 0 ? std::string("all parameters") : fmt::format("rank {}", rank.rank);
      for (size_t s = 0; s < rank.steps.size(); ++s) {
        const auto step = std::lower_bound(steps.begin(), steps.end(), rank.steps[s]);
        if (rank.summary[s].known())
          take(name, static_cast<size_t>(step - steps.begin()), rank.summary[s]);
      }
    }
  });
}

// The two lists of a page: what was read, and what could not be.
std::string GradientFacts(size_t steps, size_t ranks, size_t parameters, const Message& title,
                          const std::vector<Message>& errors, const std::vector<Message>& notes) {
  std::string html = fmt::format("<details id=\"facts\"{}>{}\n<dl>\n",
                                 errors.empty() ? "" : " open", Tagged("summary", "", title));
  html += Term("steps"_t, fmt::format("{}", steps));
  html += Term("ranks"_t, fmt::format("{}", ranks));
  html += Term("parameters"_t, fmt::format("{}", parameters));
  for (const Message& error : errors) html += Term("error"_t, error);
  for (const Message& note : notes) html += Term("note"_t, note);
  return html + "</dl>\n</details>\n";
}

std::string FindingOfNorms(const gradients::NormFindings& found) {
  const std::optional<gradients::NamedNorm>& named =
      found.first_not_finite ? found.first_not_finite : found.largest;
  if (!named) return Element("h1", "calm", "No gradient was recorded."_t);
  const int64_t step = named->step, rank = named->rank;
  const Message label =
      found.first_not_finite
          ? (rank < 0
                 ? "The first gradient with NaN or infinity, in step {}"_t(step)
                 : "The first gradient with NaN or infinity, in step {}, on rank {}"_t(step, rank))
          : (rank < 0 ? "The largest gradient, in step {}"_t(step)
                      : "The largest gradient, in step {}, on rank {}"_t(step, rank));
  std::string html = Element("p", "label", label);
  html += NameElement("h1", found.first_not_finite ? "" : "calm", named->parameter);
  if (!found.first_not_finite)
    return html + Element("p", "why", "Its norm is {:.6g}."_t(named->norm));
  return html +
         Element("p", "why",
                 found.not_finite_beside == 0
                     ? "All other gradients of this step are finite."_t
                     : "{} other gradients of this step, too. This one is the last of the "
                       "model: the backward pass reached it first."_t(found.not_finite_beside));
}

}  // namespace

PageText GradientNormsPage(const gradients::Recording& recording) {
  Trend trend({.title = "gradients", .measure = TrendMeasure::kNorm}, recording.steps,
              recording.ranks);
  const auto apart_of = [](const gradients::RecordedNorm& read) {
    return read.is_finite ? static_cast<float>(read.norm) : std::numeric_limits<float>::infinity();
  };
  uint64_t order = 0;
  const gradients::NormFindings found =
      gradients::ReadNorms(recording, [&](const gradients::RecordedNorm& read) {
        trend.Announce(read.parameter, read.step, read.rank, apart_of(read), order++);
      });
  trend.Choose();
  gradients::ReadNorms(recording, [&](const gradients::RecordedNorm& read) {
    TrendCell cell;
    cell.target_norm = static_cast<float>(read.norm);
    cell.apart = apart_of(read);
    cell.verdict = static_cast<uint8_t>(read.is_finite ? compare::RowVerdict::kNoise
                                                       : compare::RowVerdict::kDiffers);
    trend.Set(trend.RowOf(std::string(read.parameter)), read.step, read.rank, cell);
  });
  const bool wrong = found.first_not_finite.has_value(), unknown = !found.errors.empty();
  const Message verdict = wrong     ? "NOT FINITE in step {}"_t(found.first_not_finite->step)
                          : unknown ? "UNKNOWN"_t
                                    : "FINITE"_t;
  const std::string_view kind = wrong ? "differs" : unknown ? "unknown" : "equal";
  std::string html = HeadOfPage("msprobe: gradients");
  html += Header(verdict, kind, SidesOf(recording.path, ""));
  const auto& named = wrong ? found.first_not_finite : found.largest;
  html += Section(kind, named ? named->parameter : "", named ? named->step : 0,
                  named ? named->rank : -1);
  html += FindingOfNorms(found) + "</section>\n";
  html += GradientFacts(recording.steps.size(), recording.ranks.size(), found.parameters,
                        "What was recorded"_t, found.errors, {});
  html += RoomForCalls();
  PageText trends;
  AppendTrends({&trend, 1}, &trends);
  return PageOf(std::move(html), std::move(trends), {});
}

PageText GradientPage(const GradientComparison& c, std::string_view target,
                      std::string_view golden) {
  const auto [verdict, kind] = BannerOf(c);
  std::string html = HeadOfPage("msprobe: similarity of gradients");
  html += Header(verdict, kind, SidesOf(target, golden));
  const auto [parameter, step] = NamedIn(c);
  html += Section(kind, parameter, step, -1);
  html += Finding(c) + "</section>\n";
  html += GradientFacts(c.all.steps().size(), c.ranks.size(), c.all.parameters().size(),
                        "What was compared"_t, c.errors, c.notes);
  html += RoomForCalls();
  PageText trends;
  AppendTrends(std::vector<Trend>{OfParameters(c), OfRanks(c)}, &trends);
  return PageOf(std::move(html), std::move(trends), {});
}

}  // namespace msprobe::report_page
