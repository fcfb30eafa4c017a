#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/reader.h"
#include "engine/exports/databases/node_tree.h"
#include "engine/exports/databases/replace_text.h"
#include "engine/exports/databases/trend_db.h"
#include "engine/exports/databases/trend_sources.h"

namespace msprobe::exports {
namespace {

enum Metric : size_t { kForward, kBackward, kRecompute, kParametersGrad };

bool IsMeasured(const Leaf& leaf) {
  if (leaf.kind != LeafKind::kTensor || !leaf.has_stats || !leaf.dtype.dtype()) return false;
  const DType dtype = *leaf.dtype.dtype();
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32;
}

// One dump while its rows are written.
class DumpTrend {
 public:
  DumpTrend(const Dump& dump, const TrendOptions& options)
      : dump_(dump), options_(options), tree_(dump) {
    NumberCalls();
  }

  int32_t passes() const { return options_.micro_steps ? tree_.micro_steps() : 1; }

  // `first_step`: that of the first pass.
  Status Write(int64_t first_step, int64_t rank, TrendDb* out) {
    for (size_t r = 0; r < dump_.records.size(); ++r) {
      const Record& record = dump_.records[r];
      if (record.direction == Direction::kNone) continue;
      const int32_t pass = tree_.nodes()[tree_.NodeOf(static_cast<int32_t>(r))].micro_step;
      const TrendPlace place{.step = first_step + (options_.micro_steps ? pass : 0),
                             .rank = rank,
                             .metric = metrics_[r]};
      for (const Leaf& leaf : dump_.LeavesOf(record)) {
        if (IsMeasured(leaf))
          MSPROBE_RETURN_IF_ERROR(WriteLeaf(record, leaf, numbers_[r], place, out));
      }
    }
    return Status::Ok();
  }

 private:
  using Calls = std::set<std::pair<int64_t, int64_t>>;  // pass, number of the call

  // Metric and number of each record. A call and its backward call have the same number: the index
  // of the call among those of its API in one pass.
  void NumberCalls() {
    std::map<std::pair<std::string_view, bool>, std::map<int64_t, Calls>> calls;
    const auto key = [&](size_t r) {
      return std::pair(dump_.records[r].api.view(), metrics_[r] == kRecompute);
    };
    const auto pass_of = [&](size_t r) -> int64_t {
      if (!options_.micro_steps) return 0;
      return tree_.nodes()[tree_.NodeOf(static_cast<int32_t>(r))].micro_step;
    };
    for (size_t r = 0; r < dump_.records.size(); ++r) {
      metrics_.push_back(MetricOf(static_cast<int32_t>(r)));
      calls[key(r)][pass_of(r)].emplace(pass_of(r), dump_.records[r].call);
    }
    std::map<std::pair<std::string_view, bool>, std::map<std::pair<int64_t, int64_t>, int32_t>>
        numbers;
    for (const auto& [api, passes] : calls) {
      for (const auto& [pass, in_pass] : passes) {
        int32_t next = 0;
        for (const auto& call : in_pass) numbers[api].emplace(call, next++);
      }
    }
    for (size_t r = 0; r < dump_.records.size(); ++r)
      numbers_.push_back(numbers[key(r)].at({pass_of(r), dump_.records[r].call}));
  }

  Metric MetricOf(int32_t record) const {
    switch (dump_.records[record].direction) {
      case Direction::kBackward:
        return kBackward;
      case Direction::kParameterGrad:
        return kParametersGrad;
      default:
        break;
    }
    for (int32_t node = tree_.nodes()[tree_.NodeOf(record)].parent; node >= 0;
         node = tree_.nodes()[node].parent) {
      const int32_t around = tree_.nodes()[node].record;
      if (around >= 0 && dump_.records[around].direction == Direction::kBackward) return kRecompute;
    }
    return kForward;
  }

  Status WriteLeaf(const Record& record, const Leaf& leaf, int32_t number, const TrendPlace& place,
                   TrendDb* out) {
    // "input.0": what follows the name of the call.
    std::string_view where = leaf.name;
    if (where.starts_with(record.name)) where.remove_prefix(record.name.size());
    if (where.starts_with(".")) where.remove_prefix(1);
    std::string api(record.api.view());
    Replace(options_.replacements, &api);
    std::vector<TrendTag> tags;
    const size_t dot = api.find('.');
    const bool has_path = record.is_module || place.metric == kParametersGrad;
    if (has_path && dot != std::string::npos) {
      tags.push_back({"default", api.substr(0, dot)});
      std::string_view path = std::string_view(api).substr(dot + 1);
      std::string index(where);
      if (place.metric == kParametersGrad) {  // "Linear.weight" in "head"
        const size_t last = path.rfind('.');
        index = fmt::format("{}.{}", path.substr(last + 1), where);
        path = last == std::string_view::npos ? "" : path.substr(0, last);
      }
      if (!path.empty()) AppendPathTags(path, false, &tags);
      if (where.starts_with("parameters.")) tags.push_back({"default", "parameters"});
      tags.push_back({"index", std::move(index)});
    } else {
      tags.push_back({"function", api});
      tags.push_back({"index", std::string(where)});
    }
    const std::string name = fmt::format("{}.{}", api, where);
    const double statistics[] = {leaf.norm_value, leaf.max_value, leaf.min_value, leaf.mean_value};
    return out->Add({.name = name, .number = number, .tags = tags}, place, statistics);
  }

  const Dump& dump_;
  const TrendOptions& options_;
  const NodeTree tree_;
  std::vector<Metric> metrics_;   // of each record
  std::vector<int32_t> numbers_;  // of each record
};

}  // namespace

Result<TrendMade> TrendOfDumps(const std::string& folder, const std::string& path,
                               const TrendOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(std::vector<dump::DumpLocation> dumps, dump::FindDumps(folder));
  std::stable_sort(dumps.begin(), dumps.end(),
                   [](const dump::DumpLocation& a, const dump::DumpLocation& b) {
                     return std::pair(a.step, a.rank) < std::pair(b.step, b.rank);
                   });
  TrendMade made;
  if (dumps.empty()) return made;
  MSPROBE_ASSIGN_OR_RETURN(
      const std::unique_ptr<TrendDb> out,
      TrendDb::Create(path, {{"forward", "backward", "recompute", "parameters_grad"},
                             {"norm", "max", "min", "mean"},
                             {}}));
  int32_t passes = 1;  // that each step has room for
  const auto leave_out = [&](const Status& why) {
    made.notes.push_back("left out: {}"_t(why.AsMessage()));
  };
  for (const dump::DumpLocation& place : dumps) {
    if (!place.refused.ok()) {
      leave_out(place.refused);
      continue;
    }
    Result<Dump> dump = dump::ReadDump(place.path, nullptr, {.tensor_folder = ""});
    if (const Status why = dump.ok() ? CheckHasTree(*dump) : dump.status(); !why.ok()) {
      leave_out(why);
      continue;
    }
    DumpTrend trend(*dump, options);
    if (trend.passes() > passes) {
      MSPROBE_RETURN_IF_ERROR(out->SpreadSteps(passes, trend.passes()));
      passes = trend.passes();
    }
    MSPROBE_RETURN_IF_ERROR(
        trend.Write(int64_t{std::max(place.step, 0)} * passes, std::max(place.rank, 0), out.get()));
  }
  made.rows = out->rows();
  if (made.rows > 0) MSPROBE_RETURN_IF_ERROR(out->Finish());
  return made;
}

}  // namespace msprobe::exports
