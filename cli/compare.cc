#include "engine/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/cluster/compare_on_ray.h"
#include "cli/cluster/ray_flag.h"
#include "cli/compare_copies.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/dump_flags.h"
#include "cli/inputs/mapping_flags.h"
#include "cli/inputs/pair_sides.h"
#include "cli/inputs/part_flag.h"
#include "cli/inputs/rank_flags.h"
#include "cli/outputs/compare_output.h"
#include "cli/outputs/explain_flag.h"
#include "cli/outputs/report_flags.h"
#include "cli/outputs/table_flags.h"
#include "cli/outputs/why_flag.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/memory_size.h"
#include "engine/base/messages/message.h"
#include "engine/checkpoint/compare_checkpoints.h"
#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/layouts/declared_layout.h"
#include "engine/compare/measure/measure_tensors.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/repeat_spread.h"
#include "engine/dump/read/reader.h"

namespace msprobe::cli {
namespace {

constexpr uint64_t kSmallestMemory = uint64_t{128} << 20;
// Bytes for each parameter: its names, its place in the files, its row.
constexpr uint64_t kMemoryOfParameter = 1024;

// No text for the mode auto; for others a sentence that says why they are not supported.
Message CheckMode(const std::string& mode) {
  if (mode == "auto") return {};
  if (mode == "torchair" || mode == "atb" || mode == "offline_data" || mode == "offline_model") {
    return "mode {} is not supported; use msaccucmp of CANN"_t(mode);
  }
  return "there is no mode {}; auto compares two dumps"_t(mode);
}

class CompareVerb : public Verb {
 public:
  CompareVerb() = default;
  // Of the ranks that parts have copied. They outlive the verb.
  explicit CompareVerb(CopiedRanks* copied) : copied_(copied) {}

  std::string_view name() const override { return "compare"; }
  Message summary() const override { return "compare two dumps and name the first wrong number"_t; }

  void AddFlags(Flags& flags) override {
    AddInputFlags(flags);
    AddOutputFlags(flags);
    flags.Group("Verdicts"_t);
    reports_.AddLimits(flags);
    flags
        .Text("--thresholds", &thresholds_,
              "yaml file with limits for the verdicts; all limits and their defaults are in "
              "msprobe/thresholds.yaml of the installed package"_t)
        .TypeName("FILE");
    flags
        .Text("--operations", &operations_,
              "yaml file with further operations, in the form of msprobe's operations.yaml: how "
              "they treat the rounding of what they take"_t)
        .TypeName("FILE");
    flags.Switch("--exact", &exact_,
                 "bits decide: a difference within rounding differs. The default when both runs "
                 "have the same environment and make the same calls"_t);
    flags.Switch("--tolerant", &tolerant_, "differences within rounding are always noise"_t);
    flags
        .Texts(
            "--noise", &repeats_,
            "dumps of other runs of the golden's code: what differs between them is noise, value "
            "by value"_t)
        .TypeName("PATH");
    flags.Switch("--allow-nothing-compared", &allow_nothing_,
                 "no error if no value has a partner and a number on both sides"_t);
    flags.Group("Names that differ on purpose"_t);
    mapping_.Add(flags);
    flags.Group("Accepted for scripts of older tools"_t);
    flags.Switch("--fuzzy_match", &fuzzy_, "call numbers never decide which calls are a pair"_t);
    flags.Text("-m,--mode", &mode_, "auto, the only mode"_t).Check(&CheckMode);
  }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(Prepare());
    MSPROBE_ASSIGN_OR_RETURN(const uint64_t memory, Memory());
    const bool checkpoints = AreCheckpoints();
    MSPROBE_ASSIGN_OR_RETURN(const compare::FailOn limits, reports_.Limits());
    MSPROBE_ASSIGN_OR_RETURN(const PairOptions selection, Selection());
    if (ray_.given()) return OnRay(selection, out);
    MSPROBE_ASSIGN_OR_RETURN(PairedDumps paired, Pair(checkpoints, selection));
    WarnOfOneRun(checkpoints, out);
    const std::vector<DumpPair>& pairs = paired.pairs;
    MSPROBE_RETURN_IF_ERROR(CheckFlagsOf(pairs, checkpoints));
    const size_t ranks = CountRanks(pairs);
    compare::ComparedPart share;
    if (part_.given() && AreJoined(paired)) return CopyRanks(paired, memory, out);
    if (part_.given()) {
      share = part_.Take(target_, golden_, &paired);
      if (pairs.empty()) return PartFlag::EndEmpty(share, output_, out);
    }
    MSPROBE_RETURN_IF_ERROR(PairRepeats(pairs));
    CompareOutput output(OutputOptions(limits, ranks), paired, out);
    if (checkpoints) {
      output.Add(0, CompareCheckpointPair(pairs[0], memory, output));
    } else {
      ForEachPair(pairs, log_rows_, memory, [&](size_t i, uint64_t part) {
        return CompareWithin(part, memory, i, pairs[i], output);
      });
    }
    return Finish(std::move(share), output, out);
  }

 private:
  // Fills the options; reads the files that flags name: limits, operations, layouts.
  Status Prepare() {
    MSPROBE_RETURN_IF_ERROR(CheckFlags());
    options_.exactness = exact_      ? compare::Exactness::kExact
                         : tolerant_ ? compare::Exactness::kTolerant
                                     : compare::Exactness::kAuto;
    options_.keep_proofs = why_.given() || !reports_.html.empty();
    if (!thresholds_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(compare::ThresholdTable table,
                               compare::ThresholdTable::Read(thresholds_));
      options_.thresholds = std::make_shared<compare::ThresholdTable>(std::move(table));
    }
    if (!operations_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(compare::OperationTable table,
                               compare::OperationTable::Read(operations_));
      options_.operations = std::make_shared<compare::OperationTable>(std::move(table));
    }
    if (!layout_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(declared_, compare::layouts::DeclaredLayout::Read(layout_));
    }
    return Status::Ok();
  }

  bool AreCheckpoints() const {
    return checkpoint::LooksLikeCheckpoint(target_) && checkpoint::LooksLikeCheckpoint(golden_);
  }

  // Which dumps are compared.
  Result<PairOptions> Selection() {
    MSPROBE_ASSIGN_OR_RETURN(PairOptions selection, ranks_.Options());
    MSPROBE_RETURN_IF_ERROR(part_.Parse());
    selection.join_always = declared_.has_value();
    part_.ChooseLayouts(target_, golden_, output_, &selection);
    return selection;
  }

  Result<PairedDumps> Pair(bool checkpoints, const PairOptions& selection) {
    if (checkpoints) return PairCheckpoints();
    if (copied_ == nullptr) return PairDumps(target_, golden_, selection);
    dumps_.ReadFrom(std::move(copied_->copies), copied_->folder);
    return std::move(copied_->paired);
  }

  // A part of ranks that are joined.
  Result<int> CopyRanks(const PairedDumps& paired, uint64_t memory, Console& out) const {
    MSPROBE_ASSIGN_OR_RETURN(const compare::ComparedPart part,
                             part_.Copy(target_, golden_, paired, dumps_, output_,
                                        {.bytes = memory, .asked_for = !memory_.empty()}, out));
    return PartFlag::EndCopies(part, output_, out);
  }

  Result<int> Finish(compare::ComparedPart share, CompareOutput& output, Console& out) {
    if (part_.given()) {
      MSPROBE_RETURN_IF_ERROR(output.FinishPart(std::move(share)));
      return output.complete() ? kExitOk : kExitError;
    }
    MSPROBE_RETURN_IF_ERROR(output.Finish());
    MSPROBE_RETURN_IF_ERROR(PrintAnswers(out));
    return output.ExitCode(exit_code_);
  }

  CompareOutputOptions OutputOptions(const compare::FailOn& limits, size_t ranks) const {
    return {.target = target_,
            .golden = golden_,
            .folder = output_,
            .format = format_ == "json"  ? StdoutFormat::kJson
                      : format_ == "csv" ? StdoutFormat::kCsv
                                         : StdoutFormat::kTable,
            .table_file = table_.file,
            .write_table = format_ != "csv" || output_flag_.given() || !table_.file.empty(),
            .xlsx = table_.is_workbook(),
            .diff_analyze = diff_analyze_,
            .log_rows = log_rows_,
            .allow_nothing = allow_nothing_,
            .advisor = advisor_,
            .is_part = part_.given(),
            .suffix = table_.suffix,
            .table = table_.Options(ranks),
            .reports = reports_,
            .limits = limits};
  }

  void WarnOfOneRun(bool checkpoints, Console& out) const {
    std::error_code not_there;  // then it is reported as what cannot be read
    if (std::filesystem::equivalent(target_, golden_, not_there)) {
      out.Warn(checkpoints ? "the target and the golden are one file: it equals itself"_t
                           : "the target and the golden are one folder: a run equals itself"_t);
    }
  }

  // The nodes of a cluster compare the ranks.
  Result<int> OnRay(const PairOptions& selection, Console& out) const {
    if (format_ == "csv") {
      return InvalidArgument("--ray cannot be combined with {}"_t(std::string("--format csv")))
          .Hint("leave --format out: each rank gets its file"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(RayComparison wanted, ray_.Wanted(target_, golden_, output_, ranks_));
    wanted.selection = selection;
    wanted.table = table_;
    wanted.check = [this](const std::vector<DumpPair>& pairs) { return CheckJoined(pairs); };
    WarnOfOneRun(/*checkpoints=*/false, out);
    const PartsToMerge parts{
        .input = output_,
        .output = output_,
        .format = format_ == "json" ? StdoutFormat::kJson : StdoutFormat::kTable,
        .exit_code = exit_code_,
        .reports = reports_};
    MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, CompareOnRay(wanted, out));
    return all.joined.empty() ? MergeParts(parts, std::move(all), out)
                              : CompareCopies(parts, std::move(all), out);
  }

  // Compares a pair with `part` of the memory. False: it is too little, and nothing was written.
  bool CompareWithin(uint64_t part, uint64_t memory, size_t i, const DumpPair& pair,
                     CompareOutput& output) {
    const uint64_t size = FileSizes(pair);
    const Message label = "reading {} and {}"_t(pair.target, pair.golden);
    MemoryBudget budget({.bytes = part,
                         .file_bytes = size,
                         .asked_for = !memory_.empty(),
                         .on_read = [&](uint64_t read) {
                           output.Progress(i, CompareOutput::Phase::kReading, label, read, size);
                         }});
    const std::shared_ptr<compare::relations::Carried> carried = carried_.Of(pair.rank);
    const bool again = part < memory;  // if it does not fit
    compare::relations::Carried before;
    if (again) before = *carried;
    const Result<compare::Comparison> comparison = ComparePair(i, pair, &budget, output);
    if (budget.exceeded() && again) {
      *carried = std::move(before);
      return false;
    }
    if (comparison.ok()) Look(i, *comparison);
    output.Add(i, comparison);
    return true;
  }

  void AddInputFlags(Flags& flags) {
    flags.Group("What is compared"_t);
    flags
        .Text("target,--target_path", &target_,
              "the run under test: dump.json, rank folder, step folder or dump_path; or a "
              "checkpoint"_t)
        .TypeName("PATH")
        .Required()
        .Common();
    flags.Text("golden,--golden_path", &golden_, "the trusted run, the same kind of path"_t)
        .TypeName("PATH")
        .Required()
        .Common();
    ranks_.Add(flags);
    part_.Add(flags);
    ray_.Add(flags);
    dumps_.Add(flags);
    flags
        .Text("--layout", &layout_,
              "yaml file that says how the values of several ranks lie, where the recording does "
              "not tell: meshes, dimensions, names of modules; the ranks of each side are joined"_t)
        .TypeName("FILE");
    flags.Switch("--match-shapes", &options_.same_shapes,
                 "calls whose values have different shapes are not paired"_t);
    flags
        .Text("--memory", &memory_,
              "the most memory to use, such as 4GB; data that does not fit is not compared, and a "
              "message says how much it needs. Default: what the machine or container has free"_t)
        .TypeName("SIZE");
  }

  void AddOutputFlags(Flags& flags) {
    flags.Group("What is printed and written"_t);
    output_flag_ = flags
                       .Text("-o,--output_path", &output_,
                             "folder for the result files; created when missing"_t)
                       .TypeName("FOLDER")
                       .ShowDefault()
                       .Common();
    flags
        .Text("--format", &format_,
              "what is printed: table is a summary; csv writes a file only with -o"_t)
        .OneOf({"table", "json", "csv"})
        .ShowDefault()
        .Common();
    AddExitCode(flags, &exit_code_);
    table_.Add(flags);
    flags.Switch("--advisor", &advisor_,
                 "also write advisor_TIME.txt about the first failing row"_t);
    flags.Switch("--diff_analyze", &diff_analyze_,
                 "also write diff_analyze_TIME.json: where each rank first differs"_t);
    explain_.Add(flags);
    why_.Add(flags);
    reports_.AddFiles(flags);
    flags.Switch("--is_print_compare_log", &log_rows_,
                 "log the verdict of each row on standard error"_t);
  }

  // What --explain and --why ask of a pair of dumps.
  void Look(size_t pair, const compare::Comparison& comparison) {
    explain_.Look(pair, comparison);
    why_.Look(pair, comparison);
  }

  Status PrintAnswers(Console& out) {
    MSPROBE_RETURN_IF_ERROR(explain_.Print(out));
    return why_.Print(out);
  }

  // What is wrong with the flags, whatever they name.
  Status CheckFlags() const {
    if (output_.empty()) return InvalidArgument("-o is empty"_t).Hint("name a folder"_t);
    if (tolerant_ && !repeats_.empty()) {
      return InvalidArgument("--noise and --tolerant exclude each other"_t)
          .Hint("leave --tolerant out: what the repeats show decides"_t);
    }
    if (exact_ && tolerant_)
      return InvalidArgument("--exact and --tolerant exclude each other"_t)
          .Hint("pass one of them"_t);
    if (explain_.given() && format_ != "table") {
      return InvalidArgument("--explain cannot be combined with --format {}"_t(format_))
          .Hint("the chain is text: leave --format out"_t);
    }
    if (why_.given() && format_ != "table") {
      return InvalidArgument("--why cannot be combined with --format {}"_t(format_))
          .Hint("the proof is text: leave --format out"_t);
    }
    if (part_.given() && !OnlyTables()) {
      return InvalidArgument(
                 "--part writes the tables of its ranks; reports on all ranks are made of all "
                 "parts"_t)
          .Hint(
              "leave --format, --exit-code, --html and the like out here: msprobe merge_result "
              "-h"_t);
    }
    MSPROBE_RETURN_IF_ERROR(table_.Check());
    if (table_.file.empty() && !IsDirectory(output_) && Exists(output_)) {
      return InvalidArgument("-o {} is a file"_t(output_)).Hint("name a folder"_t);
    }
    return Status::Ok();
  }

  // Nothing is asked for but tables, and what merge_result makes of all parts.
  bool OnlyTables() const {
    return format_ == "table" && reports_.html.empty() && reports_.vis_db.empty() &&
           reports_.Exports().empty() && !reports_.NeedDetails() && !explain_.given() &&
           !why_.given() && !exit_code_ && !allow_nothing_;
  }

  // What is wrong with the flags for so many pairs.
  Status CheckFlagsOf(const std::vector<DumpPair>& paired, bool checkpoints) const {
    const size_t pairs = paired.size();
    if (format_ == "csv" && pairs > 1) {
      return InvalidArgument("--format csv prints one table, but there are {}"_t(pairs))
          .Hint("leave --format out: each rank gets its file"_t);
    }
    if (!table_.file.empty() && pairs > 1) {
      return InvalidArgument(
                 "--table-file {} names one table, but there are {}"_t(table_.file, pairs))
          .Hint("-o names a folder for them"_t);
    }
    if (dumps_.given() && (checkpoints || pairs > 1)) {
      return InvalidArgument("--target-data and --golden-data need one dump on each side"_t)
          .Hint("pass the dump files themselves"_t);
    }
    return CheckJoined(paired);
  }

  // What cannot be asked of ranks that are joined.
  Status CheckJoined(const std::vector<DumpPair>& pairs) const {
    if (std::ranges::none_of(pairs, std::mem_fn(&DumpPair::is_joined))) {
      if (!declared_) return Status::Ok();
      return InvalidArgument("--layout applies to ranks that are joined, and none are"_t)
          .Hint("pass the folder of a run or of a step, and neither --rank nor --common"_t);
    }
    if (exact_) {
      return InvalidArgument("--exact cannot be combined with ranks that are joined"_t)
          .Hint("leave --exact out: another layout adds numbers up in another order"_t);
    }
    if (!repeats_.empty() || dumps_.given()) {
      return Unsupported(
                 "--noise, --target-data and --golden-data do not apply to ranks that are joined"_t)
          .Hint("leave the flag out"_t);
    }
    return Status::Ok();
  }

  Result<PairedDumps> PairCheckpoints() const {
    if (options_.same_shapes || dumps_.no_files()) {
      return Unsupported(
                 "--match-shapes and --no-tensor-files apply to dumps, not to checkpoints"_t)
          .Hint("leave the flag out"_t);
    }
    if (!repeats_.empty() || explain_.given() || why_.given()) {
      return Unsupported("--noise, --explain and --why apply to dumps, not to checkpoints"_t)
          .Hint("leave the flag out"_t);
    }
    if (declared_) {
      return Unsupported("--layout applies to dumps, not to checkpoints"_t)
          .Hint("leave the flag out; the shares of all ranks are joined"_t);
    }
    if (ranks_.given() || part_.given()) {
      return Unsupported("--rank, --step, --common and --part apply to dumps, not to checkpoints"_t)
          .Hint("leave the flag out; the shares of all ranks are joined"_t);
    }
    PairedDumps paired;
    paired.pairs = {{.target = target_, .golden = golden_}};
    return paired;
  }

  // The limit of memory in bytes: that of the flag, or what the machine has.
  Result<uint64_t> Memory() {
    if (memory_.empty()) return AvailableMemory();
    MSPROBE_ASSIGN_OR_RETURN(const uint64_t memory, ParseMemorySize(memory_));
    if (memory < kSmallestMemory) {
      return InvalidArgument()
          .Expected("a --memory of at least {}"_t(MemorySizeText(kSmallestMemory)))
          .Found(memory_);
    }
    options_.mapped_counts = true;
    return memory;
  }

  void LimitTensors(uint64_t left, compare::CompareOptions* options) const {
    options->max_pair_bytes = left;
    options->max_resident_tensor_bytes =
        options->mapped_counts ? left : std::min(options->max_resident_tensor_bytes, left);
  }

  Result<compare::Comparison> ComparePair(size_t index, const DumpPair& pair, MemoryBudget* memory,
                                          CompareOutput& out) const {
    MSPROBE_ASSIGN_OR_RETURN(PairSides sides,
                             ReadSides(pair, dumps_, declared_ ? &*declared_ : nullptr, memory));
    auto& [target, golden, notes] = sides;
    const Message label =
        "comparing {} with {} values"_t(target.leaves.size(), golden.leaves.size());
    compare::CompareOptions options = WithProgress(index, label, out);
    MSPROBE_RETURN_IF_ERROR(memory->Take(pair.target, mapping_.Memory(target, golden)));
    MSPROBE_ASSIGN_OR_RETURN(options.mapping, mapping_.For(target, golden));
    if (target.task == Task::kTensor && golden.task == Task::kTensor) {
      const size_t rows = std::min(target.leaves.size(), golden.leaves.size());
      MSPROBE_RETURN_IF_ERROR(memory->Take(pair.target, rows * compare::kMemoryOfTensorRow));
    }
    MSPROBE_ASSIGN_OR_RETURN(std::deque<Dump> repeats, ReadRepeats(index, memory));
    LimitTensors(memory->left(), &options);
    options.carried = carried_.Of(pair.rank);
    // Another layout adds numbers up in another order.
    if (pair.is_joined()) options.exactness = compare::Exactness::kTolerant;
    Result<compare::Comparison> comparison = compare::CompareWithRepeats(
        std::move(target), std::move(golden), options, std::move(repeats));
    if (comparison.ok())
      MSPROBE_RETURN_IF_ERROR(Complete(index, pair, memory, notes, out, &*comparison));
    return comparison;
  }

  // Adds what is known only afterwards: the memory of the rows, the file of the pairs of names.
  Status Complete(size_t index, const DumpPair& pair, MemoryBudget* memory,
                  const std::vector<Message>& notes, CompareOutput& out,
                  compare::Comparison* comparison) const {
    comparison->not_observed.insert(comparison->not_observed.begin(), notes.begin(), notes.end());
    // A value without a partner has a row of its own: there may be more rows than were estimated.
    const size_t leaves = comparison->target.leaves.size() + comparison->golden.leaves.size();
    const uint64_t counted = MemoryForComparing(0, leaves);
    const uint64_t rows = MemoryForComparing(0, 2 * comparison->rows.size());
    MSPROBE_RETURN_IF_ERROR(memory->Take(pair.target, std::max(rows, counted) - counted));
    if (!allow_nothing_ && !compare::CheckSomethingWasJudged(*comparison).ok()) return Status::Ok();
    const Result<std::string> saved = mapping_.Save(output_, pair.rank, *comparison);
    if (!saved.ok()) out.NotWritten(index, saved.status());
    if (saved.ok() && !saved->empty())
      comparison->not_observed.push_back(
          "the resulting pairs of names are in {}"_t(*saved).English());
    return Status::Ok();
  }

  // The repeats that belong to the golden of a pair.
  Status PairRepeats(const std::vector<DumpPair>& pairs) {
    repeats_of_.resize(pairs.size());
    for (const std::string& path : repeats_) {
      MSPROBE_ASSIGN_OR_RETURN(const PairOptions selection, ranks_.Options());
      PairOptions common = selection;
      common.common = true;
      MSPROBE_ASSIGN_OR_RETURN(const PairedDumps found, PairDumps(path, golden_, common));
      for (const DumpPair& repeat : found.pairs) {
        for (size_t i = 0; i < pairs.size(); ++i) {
          if (pairs[i].golden == repeat.golden) repeats_of_[i].push_back(repeat.target);
        }
      }
    }
    return Status::Ok();
  }

  Result<std::deque<Dump>> ReadRepeats(size_t index, MemoryBudget* memory) const {
    std::deque<Dump> repeats;
    if (repeats_.empty()) return repeats;
    for (const std::string& path : repeats_of_[index]) {
      MSPROBE_ASSIGN_OR_RETURN(Dump repeat, dump::ReadDump(path, memory));
      repeats.push_back(std::move(repeat));
    }
    return repeats;
  }

  // The options of a pair, which show how many bytes of its tensors are compared.
  compare::CompareOptions WithProgress(size_t index, const Message& label,
                                       CompareOutput& out) const {
    compare::CompareOptions options = options_;
    options.progress = [index, &label, &out](uint64_t done, uint64_t all) {
      out.Progress(index, CompareOutput::Phase::kComparing, label, done, all);
    };
    options.progress(0, 0);
    return options;
  }

  Result<compare::Comparison> CompareCheckpointPair(const DumpPair& pair, uint64_t memory,
                                                    CompareOutput& out) const {
    using Phase = CompareOutput::Phase;
    out.Progress(0, Phase::kReading, "opening {}"_t(pair.target), 0, 0);
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint target,
                             checkpoint::Checkpoint::Open(pair.target));
    out.Progress(0, Phase::kReading, "opening {}"_t(pair.golden), 0, 0);
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::Checkpoint golden,
                             checkpoint::Checkpoint::Open(pair.golden));
    const Message label =
        "comparing {} with {} tensors"_t(target.tensors().size(), golden.tensors().size());
    MSPROBE_ASSIGN_OR_RETURN(const checkpoint::ParameterMapping names, mapping_.For(target));
    compare::CompareOptions options = WithProgress(0, label, out);
    const uint64_t held =
        FixedMemory() + kMemoryOfParameter * (target.tensors().size() + golden.tensors().size());
    LimitTensors(memory - std::min(memory, held), &options);
    return checkpoint::CompareCheckpoints(target, golden, options, names);
  }

  std::string target_, golden_, output_ = "./output", format_ = "table", mode_ = "auto",
                                thresholds_, operations_, memory_;
  std::string layout_;
  std::optional<compare::layouts::DeclaredLayout> declared_;
  compare::CompareOptions options_;
  bool exact_ = false, tolerant_ = false;
  bool advisor_ = false, allow_nothing_ = false;
  CopiedRanks* const copied_ = nullptr;
  DumpFlags dumps_;
  ExplainFlag explain_;
  WhyFlag why_;
  std::vector<std::string> repeats_;
  std::vector<std::vector<std::string>> repeats_of_;  // of each pair
  // Of each rank what the step before left.
  mutable compare::relations::CarriedByRank carried_;
  bool diff_analyze_ = false, exit_code_ = false, log_rows_ = false, fuzzy_ = false;
  RankFlags ranks_;
  PartFlag part_;
  RayFlag ray_;
  TableFlags table_;
  ReportFlags reports_;
  MappingFlags mapping_;
  Flag output_flag_;
};

}  // namespace

std::unique_ptr<Verb> MakeCompareVerb() { return std::make_unique<CompareVerb>(); }

std::unique_ptr<Verb> MakeCompareVerb(CopiedRanks* copied) {
  return std::make_unique<CompareVerb>(copied);
}

}  // namespace msprobe::cli
