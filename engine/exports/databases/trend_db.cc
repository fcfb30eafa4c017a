#include "engine/exports/databases/trend_db.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace msprobe::exports {
namespace {

constexpr const char* kTrendTables = R"SQL(
CREATE TABLE monitoring_targets (
            target_id INTEGER PRIMARY KEY AUTOINCREMENT,
            target_name TEXT NOT NULL,
            vpp_stage INTEGER NOT NULL,
            micro_step INTEGER NOT NULL DEFAULT 0,
            UNIQUE(target_name, vpp_stage, micro_step)
        );
CREATE TABLE monitoring_metrics (
            metric_id INTEGER PRIMARY KEY AUTOINCREMENT,
            metric_name TEXT UNIQUE NOT NULL
        );
CREATE TABLE monitoring_tags (
            tag_id INTEGER PRIMARY KEY AUTOINCREMENT,
            tag_name TEXT NOT NULL,
            category TEXT NOT NULL,
            metric_id INTEGER NOT NULL,
            UNIQUE(tag_name, category, metric_id),
            FOREIGN KEY (metric_id) REFERENCES monitoring_metrics(metric_id)
        );
CREATE TABLE tag_target_mapping (
            tag_id INTEGER NOT NULL,
            target_id INTEGER NOT NULL,
            PRIMARY KEY (tag_id, target_id),
            FOREIGN KEY (tag_id) REFERENCES monitoring_tags(tag_id),
            FOREIGN KEY (target_id) REFERENCES monitoring_target(target_id)
        );
)SQL";

// A name of a column, quoted: names of metrics come from names of files.
std::string Quoted(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

bool IsNumber(std::string_view part) {
  return !part.empty() &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

double ClampTrend(double value) {
  constexpr double kLargest = 1e9;
  if (std::isinf(value)) return value > 0 ? kLargest + 1 : -kLargest - 1;
  return std::isnan(value) ? value : std::clamp(value, -kLargest, kLargest);
}

TrendDb::TrendDb(Database db, const TrendColumns& columns)
    : db_(std::move(db)), columns_(columns) {}

Result<std::unique_ptr<TrendDb>> TrendDb::Create(const std::string& path,
                                                 const TrendColumns& columns) {
  MSPROBE_ASSIGN_OR_RETURN(Database db, Database::Create(path));
  std::unique_ptr<TrendDb> trend(new TrendDb(std::move(db), columns));
  std::string statistics, marks, metrics;
  for (const std::string& name : columns.statistics) {
    statistics += fmt::format("{}{} REAL DEFAULT NULL", statistics.empty() ? "" : ", ", name);
    marks += ", ?";
  }
  for (const std::string& name : columns.metrics)
    metrics += fmt::format(", {} TEXT DEFAULT NULL", IsNumber(name) ? Quoted(name) : name);
  Database& out = trend->db_;
  MSPROBE_RETURN_IF_ERROR(out.Execute(kTrendTables));
  MSPROBE_RETURN_IF_ERROR(out.Execute(fmt::format(R"SQL(
CREATE TABLE trend_data (
            rank INTEGER NOT NULL,
            step INTEGER NOT NULL,
            target_id INTEGER NOT NULL,
            metric_id INTEGER NOT NULL,
            {},
            PRIMARY KEY (rank, step, target_id, metric_id),
            FOREIGN KEY (target_id) REFERENCES monitoring_targets(target_id),
            FOREIGN KEY (metric_id) REFERENCES monitoring_metrics(metric_id)
        ) WITHOUT ROWID;
CREATE TABLE global_stats (
            max_rank INTEGER DEFAULT 0, min_step INTEGER DEFAULT 0, max_step INTEGER DEFAULT 0{}
        );
)SQL",
                                                  statistics, metrics)
                                          .c_str()));
  MSPROBE_ASSIGN_OR_RETURN(Insert insert_metric,
                           out.Prepare("INSERT INTO monitoring_metrics VALUES (?, ?)"));
  for (size_t i = 0; i < columns.metrics.size(); ++i) {
    MSPROBE_RETURN_IF_ERROR(
        insert_metric.Integer(static_cast<int64_t>(i) + 1).Text(columns.metrics[i]).Run());
  }
  MSPROBE_ASSIGN_OR_RETURN(
      trend->insert_row_,
      out.Prepare(
          fmt::format("INSERT OR IGNORE INTO trend_data VALUES (?, ?, ?, ?{})", marks).c_str()));
  MSPROBE_ASSIGN_OR_RETURN(trend->insert_target_,
                           out.Prepare("INSERT INTO monitoring_targets (target_name, vpp_stage, "
                                       "micro_step) VALUES (?, ?, ?)"));
  MSPROBE_ASSIGN_OR_RETURN(trend->insert_tag_,
                           out.Prepare("INSERT INTO monitoring_tags (tag_name, category, "
                                       "metric_id) VALUES (?, ?, ?)"));
  MSPROBE_ASSIGN_OR_RETURN(trend->insert_mapping_,
                           out.Prepare("INSERT OR IGNORE INTO tag_target_mapping VALUES (?, ?)"));
  return trend;
}

Result<int64_t> TrendDb::IdOf(const TrendTarget& target) {
  std::string name;  // as the database holds it: two names must not become one there
  AppendValidUtf8(&name, target.name);
  const auto [found, is_new] =
      targets_.emplace(std::tuple(std::move(name), target.vpp_stage, target.number), 0);
  if (is_new) {
    MSPROBE_RETURN_IF_ERROR(insert_target_->Text(std::get<0>(found->first))
                                .Integer(target.vpp_stage)
                                .Integer(target.number)
                                .Run());
    found->second = insert_target_->row();
  }
  return found->second;
}

Status TrendDb::AddTags(const TrendTarget& target, int64_t target_id, size_t metric) {
  if (!tagged_.emplace(target_id, metric).second) return Status::Ok();
  for (const TrendTag& tag : target.tags) {
    std::string name;
    AppendValidUtf8(&name, tag.name);
    const auto [found, is_new] =
        tags_.emplace(std::tuple(std::move(name), tag.category, metric), 0);
    if (is_new) {
      MSPROBE_RETURN_IF_ERROR(insert_tag_->Text(std::get<0>(found->first))
                                  .Text(tag.category)
                                  .Integer(static_cast<int64_t>(metric) + 1)
                                  .Run());
      found->second = insert_tag_->row();
    }
    MSPROBE_RETURN_IF_ERROR(insert_mapping_->Integer(found->second).Integer(target_id).Run());
  }
  return Status::Ok();
}

Status TrendDb::Add(const TrendTarget& target, const TrendPlace& place,
                    std::span<const double> statistics) {
  MSPROBE_ASSIGN_OR_RETURN(const int64_t id, IdOf(target));
  MSPROBE_RETURN_IF_ERROR(AddTags(target, id, place.metric));
  ++rows_;
  insert_row_->Integer(place.rank).Integer(place.step).Integer(id);
  insert_row_->Integer(static_cast<int64_t>(place.metric) + 1);
  for (const double value : statistics) insert_row_->Real(ClampTrend(value));
  return insert_row_->Run();
}

Status TrendDb::SpreadSteps(int64_t from, int64_t to) {
  if (rows_ == 0) return Status::Ok();
  // By way of negative numbers: no two rows have the same key in between.
  return db_.Execute(
      fmt::format("UPDATE trend_data SET step = -1 - (step / {0} * {1} + step % {0});"
                  "UPDATE trend_data SET step = -1 - step",
                  from, to)
          .c_str());
}

Status TrendDb::Finish() {
  std::string marks;
  for (size_t i = 0; i < columns_.metrics.size(); ++i) marks += ", ?";
  {
    MSPROBE_ASSIGN_OR_RETURN(
        Insert stats,
        db_.Prepare(fmt::format("INSERT INTO global_stats SELECT max(rank), min(step), max(step){} "
                                "FROM trend_data",
                                marks)
                        .c_str()));
    for (size_t i = 0; i < columns_.metrics.size(); ++i) {
      const bool all = columns_.of_metrics.empty();
      stats.Text(
          fmt::format("{}", fmt::join(all ? columns_.statistics : columns_.of_metrics[i], ",")));
    }
    MSPROBE_RETURN_IF_ERROR(stats.Run());
  }
  insert_row_.reset(), insert_target_.reset(), insert_tag_.reset(), insert_mapping_.reset();
  return db_.Commit();
}

void AppendPathTags(std::string_view path, bool each_part, std::vector<TrendTag>* tags) {
  std::string run;  // of parts without a number
  const auto end_run = [&] {
    if (!run.empty()) tags->push_back({"module", run});
    run.clear();
  };
  std::string_view before;  // the part before, when it is a name
  const std::vector<std::string_view> parts = Split(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    if (IsNumber(part)) {
      if (!before.empty()) tags->push_back({"layer", fmt::format("{}.{}", before, part)});
      before = {};
      continue;
    }
    before = part;
    const bool names_layer = i + 1 < parts.size() && IsNumber(parts[i + 1]);
    if (each_part) {
      tags->push_back({"module", std::string(part)});
    } else if (names_layer) {
      end_run();
    } else {
      run += fmt::format("{}{}", run.empty() ? "" : ".", part);
    }
  }
  end_run();
}

}  // namespace msprobe::exports
