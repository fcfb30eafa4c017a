// The reports on two checkpoints: text for a person, and JSON as config_check -c writes it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/messages/language.h"
#include "engine/base/messages/message.h"
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
void AppendRows(const compare::Comparison& c, const Message& title, const std::vector<size_t>& rows,
                const std::function<Message(size_t)>& text, std::string* out) {
  if (rows.empty()) return;
  *out += fmt::format("\n{} ({})\n", title.Shown(), rows.size());
  for (size_t i = 0; i < std::min(rows.size(), kNamed); ++i) {
    const std::string said = compare::Clean(text(rows[i]).Shown());
    *out += fmt::format("  {}{}{}\n", compare::Clean(NameOf(c, c.rows[rows[i]])),
                        said.empty() ? "" : ": ", said);
  }
  if (rows.size() > kNamed) *out += "  " + "and {} more"_t(rows.size() - kNamed).Shown() + '\n';
}

// "verdict differs: 4 equal, 1 only in the golden": what there is none of is not said.
Message Verdict(const compare::Summary& s) {
  const std::pair<int64_t, Message::Format<1>> counts[] = {
      {s.rows[0], "{} equal"_t},
      {s.rows[1], "{} within rounding"_t},
      {s.rows[2], s.rows[2] == 1 ? "{} differs"_t : "{} differ"_t},
      {s.rows[3] - s.target_only_rows - s.golden_only_rows, "{} could not be judged"_t},
      {s.target_only_rows, "{} only in the target"_t},
      {s.golden_only_rows, "{} only in the golden"_t}};
  std::vector<Message> parts;
  for (const auto& [count, text] : counts) {
    if (count > 0) parts.push_back(text(count));
  }
  if (parts.empty()) parts.push_back("no tensor"_t);
  const bool noise = s.verdict == compare::RunVerdict::kNoise;
  return "verdict {}: {}"_t(noise ? "within rounding"_t : compare::WordOf(s.verdict),
                            Message::Joined(std::move(parts), ", "));
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
    out +=
        fmt::format("{}  {} ({}), {}\n", (is_target ? "target"_t : "golden"_t).Shown(), side.path,
                    side.DialectName().Shown(), "{} tensors"_t(side.leaves.size()).Shown());
  }
  out += Verdict(summary).Shown();
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
    out += "{} of {} that differ have the golden's elements in another order"_t(reordered,
                                                                                differing.size())
               .Shown() +
           '\n';
  if (c.first.row >= 0) {
    const Leaf& leaf = c.golden.leaves[c.rows[c.first.row].golden];
    const Leaf& target = c.target.leaves[c.rows[c.first.row].target];
    const std::string dtypes =
        leaf.dtype == target.dtype
            ? std::string(leaf.dtype.view())
            : "{} against {}"_t(target.dtype.view(), leaf.dtype.view()).Shown();
    out += '\n' + "worst parameter: {}"_t(compare::Clean(leaf.name)).Shown() +
           fmt::format(" ({}, {})\n  {}\n", dtypes, leaf.shape.view(), c.first.why.Shown());
  }
  std::stable_sort(differing.begin(), differing.end(), [&](size_t a, size_t b) {
    return c.measures[a].severity > c.measures[b].severity;
  });
  std::erase(differing, static_cast<size_t>(c.first.row));
  AppendRows(
      c, "also differ, the worst first"_t, differing,
      [&](size_t row) { return WorstElement(c, row); }, &out);
  AppendRows(
      c, "could not be compared"_t, unknown,
      [&](size_t row) {
        const bool noted = !c.notes.empty() && !c.notes[row].empty();
        return noted ? c.notes[row] : compare::ReasonText(c.measures[row].reason);
      },
      &out);
  const auto nothing = [](size_t) { return Message(); };
  AppendRows(c, "only in the target"_t, target_only, nothing, &out);
  AppendRows(c, "only in the golden"_t, golden_only, nothing, &out);
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
