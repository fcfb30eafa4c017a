// The reports on two checkpoints: text for a person, and JSON as config_check -c writes it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/language.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint_names.h"
#include "engine/checkpoint/compare_checkpoints.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::checkpoint {
namespace {

constexpr size_t kNamed = 5;  // parameters of a kind that are listed

std::string_view NameOf(const compare::Comparison& c, const compare::Row& row) {
  return row.golden >= 0 ? c.golden.leaves[row.golden].name : c.target.leaves[row.target].name;
}

// Up to kNamed rows, a line each, and how many more there are.
void AppendRows(const compare::Comparison& c, std::string_view title,
                const std::vector<size_t>& rows, const std::function<std::string(size_t)>& text,
                std::string* out) {
  if (rows.empty()) return;
  *out += fmt::format("\n{} ({})\n", Translated(std::string(title)), rows.size());
  for (size_t i = 0; i < std::min(rows.size(), kNamed); ++i) {
    const std::string said = text(rows[i]);
    *out += fmt::format("  {}{}{}\n", compare::Clean(NameOf(c, c.rows[rows[i]])),
                        said.empty() ? "" : ": ", Translated(said));
  }
  if (rows.size() > kNamed)
    *out += "  " + Translated(fmt::format("and {} more", rows.size() - kNamed)) + '\n';
}

// "verdict differs: 4 equal, 1 only in the golden": what there is none of is not said.
std::string Verdict(const compare::Summary& s) {
  const std::pair<int64_t, std::string_view> counts[] = {
      {s.rows[0], "equal"},
      {s.rows[1], "within rounding"},
      {s.rows[2], s.rows[2] == 1 ? "differs" : "differ"},
      {s.rows[3] - s.target_only_rows - s.golden_only_rows, "could not be judged"},
      {s.target_only_rows, "only in the target"},
      {s.golden_only_rows, "only in the golden"}};
  std::string text;
  for (const auto& [count, what] : counts) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  }
  const bool noise = s.verdict == compare::RunVerdict::kNoise;
  return fmt::format("verdict {}: {}",
                     noise ? "within rounding" : compare::RunVerdictName(s.verdict),
                     text.empty() ? "no tensor" : text);
}

}  // namespace

bool IsCheckpointComparison(const compare::Comparison& comparison) {
  return comparison.target.dialect == Dialect::kCheckpoint;
}

std::string CheckpointReport(const compare::Comparison& c) {
  const compare::Summary summary = compare::Summarize(c);
  std::string out;
  for (const bool is_target : {true, false}) {
    const Dump& side = is_target ? c.target : c.golden;
    out += fmt::format("{}  {} ({}), {}\n", Translated(is_target ? "target" : "golden"), side.path,
                       Translated(std::string(side.DialectName())),
                       Translated(fmt::format("{} tensors", side.leaves.size())));
  }
  out += Translated(Verdict(summary));
  out += '\n';
  std::vector<size_t> differing, unknown, target_only, golden_only;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    if (c.rows[i].golden < 0) {
      target_only.push_back(i);
    } else if (c.rows[i].target < 0) {
      golden_only.push_back(i);
    } else if (c.measures[i].verdict == compare::RowVerdict::kUnknown) {
      unknown.push_back(i);
    } else if (c.measures[i].verdict == compare::RowVerdict::kDiffers) {
      differing.push_back(i);
    }
  }
  const auto reordered = std::count_if(differing.begin(), differing.end(), [&](size_t row) {
    return !c.notes.empty() && !c.notes[row].empty();
  });
  if (reordered > 0)
    out +=
        Translated(fmt::format("{} of {} that differ have the golden's elements in another order",
                               reordered, differing.size())) +
        '\n';
  if (c.first.row >= 0) {
    const Leaf& leaf = c.golden.leaves[c.rows[c.first.row].golden];
    const Leaf& target = c.target.leaves[c.rows[c.first.row].target];
    const std::string dtypes = leaf.dtype == target.dtype
                                   ? std::string(leaf.dtype.view())
                                   : fmt::format("{} {}", target.dtype.view(),
                                                 TranslatedAround("against {}", leaf.dtype.view()));
    out += '\n' + TranslatedAround("worst parameter: {}", compare::Clean(leaf.name)) +
           fmt::format(" ({}, {})\n  {}\n", dtypes, leaf.shape.view(), c.first.why.Shown());
  }
  std::stable_sort(differing.begin(), differing.end(), [&](size_t a, size_t b) {
    return c.measures[a].severity > c.measures[b].severity;
  });
  std::erase(differing, static_cast<size_t>(c.first.row));
  AppendRows(
      c, "also differ, the worst first", differing,
      [&](size_t row) { return WorstElement(c, row); }, &out);
  AppendRows(
      c, "could not be compared", unknown,
      [&](size_t row) {
        const bool noted = !c.notes.empty() && !c.notes[row].empty();
        return noted ? compare::Clean(c.notes[row])
                     : compare::ReasonText(c.measures[row].reason).English();
      },
      &out);
  const auto nothing = [](size_t) { return std::string(); };
  AppendRows(c, "only in the target", target_only, nothing, &out);
  AppendRows(c, "only in the golden", golden_only, nothing, &out);
  for (const Message& note : c.not_observed)
    out += '\n' + compare::Clean("note: {}"_t(note).Shown()) + '\n';
  return out;
}

std::string SimilarityJson(const compare::Comparison& c) {
  std::string out = "{";
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const compare::Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
    if (target.type != "torch.nn.Parameter" || golden.type != "torch.nn.Parameter") continue;
    const compare::Measure& m = c.measures[i];
    const kernels::Diff* diff = m.tensor >= 0 ? &c.diffs[m.tensor] : nullptr;
    const auto number = [&](double value, bool none_when_nan) {
      const bool finite = diff != nullptr && diff->nonfinite_target + diff->nonfinite_golden == 0;
      if (diff == nullptr || (finite && std::isnan(value) && none_when_nan)) {
        out += m.reason == compare::Reason::kBadFile || m.reason == compare::Reason::kNoFile
                   ? "\"error\""
                   : "null";
      } else {
        AppendPythonFloat(&out, finite ? value : kernels::Diff::kNaN);
      }
    };
    out += out.size() == 1 ? "\n    " : ",\n    ";
    AppendJsonString(&out, golden.name);
    out += ": {\n        \"l2\": ";
    number(diff != nullptr ? diff->euclidean : 0, false);
    out += ",\n        \"cos\": ";
    number(diff != nullptr ? diff->cosine : 0, true);
    const bool same = target.shape == golden.shape;
    out += target.shape.elements() == golden.shape.elements()
               ? fmt::format(",\n        \"numel\": {}", target.shape.elements())
               : fmt::format(",\n        \"numel\": [{}, {}]", target.shape.elements(),
                             golden.shape.elements());
    out += same ? fmt::format(",\n        \"shape\": {}\n    }}", target.shape.view())
                : fmt::format(",\n        \"shape\": [{}, {}]\n    }}", target.shape.view(),
                              golden.shape.view());
  }
  return out + (out.size() == 1 ? "}\n" : "\n}\n");
}

}  // namespace msprobe::checkpoint
