#include "engine/gradients/gradient_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "engine/base/text.h"

namespace msprobe::gradients {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Similarity of gradients</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
.fall{border-left:4px solid #c62828;padding-left:1em}.good{border-left:4px solid #2e7d32;padding-left:1em}
code{overflow-wrap:anywhere}figure{display:inline-block;margin:.5em;width:21em;vertical-align:top}
figcaption{font-size:.85em;overflow-wrap:anywhere}svg{width:100%;height:auto}
svg text{font-size:11px;fill:#666}.axis{stroke:#bbb}.line{fill:none;stroke:#1565c0;stroke-width:1.5}
.at{stroke:#c62828;stroke-dasharray:3 3}circle{fill:#1565c0}
</style></head><body>
)";

std::string Escaped(std::string_view text) {
  std::string valid, out;
  AppendValidUtf8(&valid, text);
  for (const char c : valid) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// A plot of one series: steps to the right, similarities from 0 to 1 upwards.
class Plot {
 public:
  Plot(const std::vector<int64_t>& steps, const std::optional<GradientFall>& fall)
      : steps_(steps), fall_(fall) {}

  // `cells`: one for each step.
  std::string Draw(std::string_view title, std::span<const Similarity> cells) const {
    std::string line, dots;
    double lowest = 1;
    bool drawn = false;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i].known()) {  // a gap
        drawn = false;
        continue;
      }
      const double x = X(steps_[i]), y = Y(cells[i].share());
      lowest = std::min(lowest, cells[i].share());
      line += fmt::format("{}{:.1f} {:.1f}", drawn ? "L" : "M", x, y);
      const bool alone = !drawn && (i + 1 == cells.size() || !cells[i + 1].known());
      if (alone) dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>", x, y);
      drawn = true;
    }
    std::string out =
        fmt::format("<figure><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth,
                    kHeight, Escaped(title));
    for (const double value : {0.0, 0.5, 1.0}) {
      out += fmt::format(
          "<path class=\"axis\" d=\"M{} {:.1f}H{}\"/><text x=\"2\" y=\"{:.1f}\">{}</text>", kLeft,
          Y(value), kWidth - kRight, Y(value) + 4, value);
    }
    out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", kLeft, kHeight - 4, steps_.front());
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">step {}</text>",
                       kWidth - kRight, kHeight - 4, steps_.back());
    if (fall_)
      out +=
          fmt::format("<path class=\"at\" d=\"M{:.1f} {}V{:.1f}\"/>", X(fall_->step), kTop, Y(0));
    out += fmt::format("<path class=\"line\" d=\"{}\"/>{}</svg>", line, dots);
    return out + fmt::format("<figcaption><code>{}</code>, lowest {:.4g}</figcaption></figure>\n",
                             Escaped(title), lowest);
  }

 private:
  static constexpr int kWidth = 320, kHeight = 150, kLeft = 30, kRight = 8, kTop = 8, kBottom = 20;

  double X(int64_t step) const {
    const double all = static_cast<double>(steps_.back() - steps_.front());
    const double share = all > 0 ? static_cast<double>(step - steps_.front()) / all : 0.5;
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  static double Y(double value) { return kTop + (1 - value) * (kHeight - kTop - kBottom); }

  const std::vector<int64_t>& steps_;
  const std::optional<GradientFall>& fall_;
};

void AppendSentence(std::string* out, const GradientComparison& c) {
  if (!c.fall) {
    *out += c.first_difference
                ? fmt::format(
                      "<p class=\"good\">No similarity falls. The first direction differs "
                      "in step {}, at <code>{}</code>.</p>\n",
                      c.first_difference->step, Escaped(c.first_difference->parameter))
                : "<p class=\"good\">All directions are the same.</p>\n";
    return;
  }
  const GradientFall& fall = *c.fall;
  const int64_t rank = c.ranks[c.fall_rank].rank;
  *out += fmt::format(
      "<p class=\"fall\">The similarity first falls in <b>step {}</b>, at <b><code>"
      "{}</code></b>{}: {}{:.4g}, {} of {} elements point elsewhere.<br>{}</p>\n",
      fall.step, Escaped(fall.parameter), rank < 0 ? "" : fmt::format(" of rank {}", rank),
      fall.before ? fmt::format("{:.4g} before, now ", *fall.before) : "", fall.similarity,
      fall.changed, fall.count, Escaped(fall.why));
  if (!c.first_difference || c.first_difference->step == fall.step) return;
  *out += fmt::format(
      "<p>All directions are the same before step {}, where {} of {} elements of <code>{}</code> "
      "point elsewhere.</p>\n",
      c.first_difference->step, c.first_difference->changed, c.first_difference->count,
      Escaped(c.first_difference->parameter));
}

// The rows of the table, lowest similarity first.
std::vector<size_t> LowestFirst(const SimilarityTable& table) {
  std::vector<double> lowest(table.parameters().size(), 2);
  for (size_t row = 0; row < lowest.size(); ++row) {
    for (size_t step = 0; step < table.steps().size(); ++step) {
      const Similarity& cell = table.At(row, step);
      if (cell.known() && cell.count > 0) lowest[row] = std::min(lowest[row], cell.share());
    }
  }
  std::vector<size_t> order(lowest.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lowest[a] < lowest[b]; });
  return order;
}

}  // namespace

std::string GradientPage(const GradientComparison& c, std::string_view target,
                         std::string_view golden) {
  std::string out(kHead);
  out += fmt::format(
      "<h1>Similarity of gradients</h1>\n<p>target <code>{}</code>, golden <code>{}"
      "</code></p>\n",
      Escaped(target), Escaped(golden));
  AppendSentence(&out, c);
  if (!c.notes.empty() || !c.errors.empty()) out += "<ul>\n";
  for (const std::string& error : c.errors)
    out += fmt::format("<li>error: {}</li>\n", Escaped(error));
  for (const std::string& note : c.notes) out += fmt::format("<li>{}</li>\n", Escaped(note));
  if (!c.notes.empty() || !c.errors.empty()) out += "</ul>\n";
  out += "<h2>All parameters of a rank</h2>\n";
  for (const RankSimilarity& rank : c.ranks) {
    out += Plot(rank.steps, rank.fall)
               .Draw(rank.rank < 0 ? "summary" : fmt::format("rank {}", rank.rank), rank.summary);
  }
  const std::vector<size_t> order = LowestFirst(c.all);
  const size_t drawn = std::min(order.size(), kMostPlots);
  out += fmt::format("<h2>Parameters, lowest similarity first{}</h2>\n",
                     drawn < order.size() ? fmt::format(" ({} of {}; all are in similarities.csv)",
                                                        drawn, order.size())
                                          : "");
  const Plot plot(c.all.steps(), c.fall);
  for (size_t i = 0; i < drawn; ++i) {
    out += plot.Draw(c.all.parameters()[order[i]], {&c.all.At(order[i], 0), c.all.steps().size()});
  }
  return out + "</body></html>\n";
}

}  // namespace msprobe::gradients
