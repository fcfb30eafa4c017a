#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line/time_stamp.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/mapping_flags.h"
#include "cli/inputs/rank_flags.h"
#include "cli/outputs/compare_output.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/memory_size.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/compare.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/compare/report/report_terminal.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/tag_folder.h"
#include "engine/exports/databases/vis_db.h"
#include "engine/model/memory_budget.h"

namespace msprobe::cli {
namespace {

class GraphVisualize : public Verb {
 public:
  std::string_view name() const override { return "graph_visualize"; }
  Message summary() const override {
    return "write the graph of modules and calls that TensorBoard shows (.vis.db)"_t;
  }

  void AddFlags(Flags& flags) override {
    flags.Group("What is shown"_t);
    flags
        .Text("target,--target_path", &target_,
              "the run under test: rank folder, step folder or dump_path, of level L0 or mix"_t)
        .TypeName("PATH")
        .Required()
        .Common();
    flags
        .Text("golden,--golden_path", &golden_,
              "the trusted run, the same kind of path; without it only the target is shown"_t)
        .TypeName("PATH")
        .Common();
    ranks_.Add(flags);
    flags
        .Switch("--overflow_check", &overflow_check_,
                "mark calls that make or pass on NaN and infinities"_t)
        .Common();
    flags.Group("What is written"_t);
    flags
        .Text("-o,--output_path", &output_,
              "folder for build_TIME.vis.db or compare_TIME.vis.db; created when missing"_t)
        .TypeName("FOLDER")
        .Required()
        .Common();
    flags.Switch("--is_print_compare_log", &log_rows_,
                 "log the verdict of each row on standard error"_t);
    flags.Switch("--is_print_progress_log", &log_progress_,
                 "log each dump that is done on standard error"_t);
    flags.Group("Names that differ on purpose"_t);
    mapping_.Add(flags);
    flags.Group("Accepted for scripts of older tools"_t);
    flags.Switch("--fuzzy_match", &fuzzy_, "call numbers never decide which calls are a pair"_t);
    flags.Text("--file_type", &file_type_, "db, the only type"_t).OneOf({"db"});
    for (const auto& [flag, values] : Sizes())
      flags.Texts(flag, values, "1: shares of several ranks are not merged"_t).Values(1, 2);
    flags.Texts("--order", &order_, "of the ranks that would be merged"_t).Values(1, 2);
  }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(CheckFlags());
    const std::string path = FreePath();
    MSPROBE_ASSIGN_OR_RETURN(graph_,
                             exports::VisDb::Create(path, {.overflow_check = overflow_check_}));
    MSPROBE_RETURN_IF_ERROR(golden_.empty() ? Build(out) : Compare(out));
    if (graph_->nodes() == 0) return first_error_;
    MSPROBE_RETURN_IF_ERROR(graph_->Finish());
    out.Tell("written: {} ({} nodes)"_t(path, graph_->nodes()));
    out.Warn(LargeGraphWarning(path));
    return first_error_.ok() ? kExitOk : kExitError;
  }

 private:
  std::vector<std::pair<const char*, std::vector<std::string>*>> Sizes() {
    return {{"--rank_size", &rank_size_}, {"--tp", &tp_}, {"--pp", &pp_}, {"--vpp", &vpp_}};
  }

  Status CheckFlags() {
    if (output_.empty()) return InvalidArgument("-o is empty"_t).Hint("name a folder"_t);
    if (Exists(output_) && !IsDirectory(output_))
      return InvalidArgument("-o {} is a file"_t(output_)).Hint("name a folder"_t);
    for (const auto& [flag, values] : Sizes()) {
      for (const std::string& value : *values) {
        if (value == "1") continue;
        return Unsupported(
                   "{} {}: the shares of tensor- and pipeline-parallel ranks "
                   "are not merged"_t(std::string(flag), Excerpt(value)))
            .Hint(
                "leave the flag out to compare rank by rank; both runs then need the same "
                "layout"_t);
      }
    }
    return Status::Ok();
  }

  // Two runs of the command within one second must not write one file.
  std::string FreePath() const {
    for (long long now = std::time(nullptr);; ++now) {
      std::string path = JoinPath(
          output_,
          fmt::format("{}_{}.vis.db", golden_.empty() ? "build" : "compare", TimeStamp(now)));
      if (!Exists(path)) return path;
    }
  }

  static Message PlaceText(int step, int rank) {
    if (step < 0 && rank < 0) return "the dump"_t;
    return Message::Joined(
        {step >= 0 ? "step {}"_t(step) : Message(), rank >= 0 ? "rank {}"_t(rank) : Message()},
        ", ");
  }

  void Failed(const Status& status, Console& out) {
    const std::lock_guard lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
    out.Error(status);
  }

  void Done(int step, int rank, Console& out) {
    const std::lock_guard lock(mutex_);
    if (log_progress_) out.Warn("done: {}"_t(PlaceText(step, rank)));
  }

  Status Build(Console& out) {
    MSPROBE_ASSIGN_OR_RETURN(const PairOptions selection, ranks_.Options());
    const auto wanted = [](const std::optional<std::vector<int64_t>>& numbers, int number) {
      return !numbers || std::find(numbers->begin(), numbers->end(), number) != numbers->end();
    };
    const std::string path = dump::ExistingTag(target_);
    if (!Exists(path)) return NotFound(path).Expected("a dump.json, or a folder of dumps"_t);
    std::vector<dump::DumpLocation> dumps;
    if (IsDirectory(path)) {
      MSPROBE_ASSIGN_OR_RETURN(dumps, dump::FindDumps(path));
    } else {
      dumps.push_back({.path = path});
    }
    std::erase_if(dumps, [&](const dump::DumpLocation& d) {
      return !wanted(selection.ranks, d.rank) || !wanted(selection.steps, d.step);
    });
    if (dumps.empty()) {
      return InvalidArgument()
          .At(path)
          .Expected("dump.json in it, or in rank folders or step folders in it"_t)
          .Found("none"_t);
    }
    for (const dump::DumpLocation& place : dumps) {
      out.Progress("reading {}"_t(place.path));
      Status status = place.refused;
      if (status.ok()) status = AddDump(place);
      if (!status.ok() && dumps.size() == 1) return status;
      status.ok() ? Done(place.step, place.rank, out) : Failed(status, out);
    }
    return Status::Ok();
  }

  Status AddDump(const dump::DumpLocation& place) {
    MemoryBudget budget({.bytes = AvailableMemory(), .asked_for = false});
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(place.path, &budget));
    return graph_->AddDump(dump, {.step = place.step, .rank = place.rank});
  }

  Status Compare(Console& out) {
    MSPROBE_ASSIGN_OR_RETURN(PairOptions selection, ranks_.Options());
    selection.common = true;  // as the older tool: what both sides have
    MSPROBE_ASSIGN_OR_RETURN(const PairedDumps paired, PairDumps(target_, golden_, selection));
    for (const Message& what : paired.left_out) out.Warn("not compared: {}"_t(what));
    std::vector<compare::RankResult> results(paired.pairs.size());
    std::vector<std::string> saved(paired.pairs.size());  // the files of the mappings
    Status single;
    const uint64_t all_memory = AvailableMemory();
    // Relations are carried from step to step: one pair after the other.
    ForEachPair(paired.pairs, /*one_at_a_time=*/true, all_memory, [&](size_t i, uint64_t memory) {
      const DumpPair& pair = paired.pairs[i];
      out.Progress("comparing {} with {}"_t(pair.target, pair.golden));
      MemoryBudget budget({.bytes = memory, .file_bytes = FileSizes(pair), .asked_for = false});
      const Status status = AddPair(pair, &budget, &results[i], &saved[i], out);
      if (budget.exceeded() && memory < all_memory) return false;
      if (!status.ok() && paired.pairs.size() == 1) {
        single = status;
      } else {
        status.ok() ? Done(pair.step, pair.rank, out) : Failed(status, out);
      }
      return true;
    });
    MSPROBE_RETURN_IF_ERROR(single);
    compare::JudgeSteps(results);
    graph_->Judge(results);
    constexpr int kLinesBehind = 2;  // the file, the prompt
    const compare::TerminalOptions look{.width = out.width(),
                                        .lines = out.height() - kLinesBehind,
                                        .colors = out.colors(),
                                        .whole = !out.is_terminal()};
    out.Write(results.size() == 1 ? compare::TerminalReport(results[0], look)
                                  : compare::RanksReport(results, {target_, golden_, {}}, look));
    for (const std::string& path : saved) {
      if (!path.empty()) out.Tell("written: {}"_t(path));
    }
    return Status::Ok();
  }

  Status AddPair(const DumpPair& pair, MemoryBudget* memory, compare::RankResult* result,
                 std::string* saved, Console& out) {
    Status status = AddComparison(pair, memory, result, saved, out);
    result->step = pair.step, result->rank = pair.rank;
    if (!status.ok()) result->failed = status;
    return status;
  }

  Status AddComparison(const DumpPair& pair, MemoryBudget* memory, compare::RankResult* result,
                       std::string* saved, Console& out) {
    MSPROBE_ASSIGN_OR_RETURN(Dump target, dump::ReadDump(pair.target, memory));
    MSPROBE_ASSIGN_OR_RETURN(Dump golden, dump::ReadDump(pair.golden, memory));
    MSPROBE_RETURN_IF_ERROR(memory->Take(pair.target, mapping_.Memory(target, golden)));
    compare::CompareOptions options;
    options.carried = carried_.Of(pair.rank);
    MSPROBE_ASSIGN_OR_RETURN(options.mapping, mapping_.For(target, golden));
    options.max_pair_bytes = memory->left();
    options.max_resident_tensor_bytes = std::min(options.max_resident_tensor_bytes, memory->left());
    MSPROBE_ASSIGN_OR_RETURN(const compare::Comparison c,
                             compare::Compare(std::move(target), std::move(golden), options));
    if (log_rows_) LogRows(c, out);
    *result = compare::SummarizeRank(c, pair.step, pair.rank);
    MSPROBE_RETURN_IF_ERROR(graph_->AddComparison(c, {.step = pair.step, .rank = pair.rank}));
    MSPROBE_ASSIGN_OR_RETURN(*saved, mapping_.Save(output_, pair.rank, c));
    return Status::Ok();
  }

  std::string target_, golden_, output_, file_type_ = "db";
  std::vector<std::string> rank_size_, tp_, pp_, vpp_, order_;
  bool overflow_check_ = false, log_rows_ = false, log_progress_ = false, fuzzy_ = false;
  RankFlags ranks_;
  MappingFlags mapping_;
  std::unique_ptr<exports::VisDb> graph_;
  compare::relations::CarriedByRank carried_;
  std::mutex mutex_;
  Status first_error_;
};

}  // namespace

std::unique_ptr<Verb> MakeGraphVisualizeVerb() { return std::make_unique<GraphVisualize>(); }

}  // namespace msprobe::cli
