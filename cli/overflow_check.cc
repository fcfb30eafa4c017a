#include <fmt/format.h>

#include <chrono>

#include "cli/verbs.h"
#include "engine/anomaly/anomaly_report.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/dump/read/reader.h"

namespace msprobe::cli {
namespace {

class OverflowCheck : public Verb {
 public:
  explicit OverflowCheck(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  Message summary() const override {
    return name_ == "nan_analyze"
               ? "the same as overflow_check"_t
               : "find the rank and the call that made the first NaN or infinity"_t;
  }

  void AddFlags(Flags& flags) override {
    flags
        .Text("-i,--input_path", &input_,
              "folder of a step: rank0, rank1, ... with dump.json; or one such folder"_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("-o,--output_path", &output_, "folder for anomaly_analyze_TIME.json"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_, "exit with 1 if an anomaly is found"_t);
    flags.Footer(
        "An anomaly is a call whose inputs are finite and whose output has NaN or infinity. Dumps "
        "with\nstatistics are enough. Of several steps, the first with an anomaly is shown."_t);
  }

  Result<int> Run(Console& out) override {
    if (checkpoint::LooksLikeCheckpoint(input_)) return NoCalls(input_);
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<dump::DumpLocation> dumps, dump::FindDumps(input_));
    if (dumps.empty()) {
      return NotFound(input_)
          .Says("holds no dump"_t)
          .Expected("folders rank0, rank1, ... with a dump.json in each"_t)
          .Hint("-i is the folder of a step: -i runs/a/step0"_t);
    }
    anomaly::FirstAnomalies found;
    search_.verb = name_;
    search_.steps = search_.all_steps = 0;
    for (size_t i = 0; i < dumps.size(); ++i)
      search_.all_steps += i == 0 || dumps[i].step != dumps[i - 1].step;
    for (size_t from = 0; from < dumps.size() && found.answer.empty(); ++search_.steps) {
      size_t to = from;
      while (to < dumps.size() && dumps[to].step == dumps[from].step) ++to;
      const bool many = from > 0 || to < dumps.size();
      found = Search({dumps.data() + from, to - from},
                     many ? fmt::format("step{}/", dumps[from].step) : "", out);
      from = to;
    }
    out.ClearProgress();
    if (read_ == 0) return unread_;
    search_.complete = unread_.ok();
    return Report(found, out);
  }

 private:
  // Tensors of no call: nothing begins in them, which would read as a pass.
  static Status NoCalls(const std::string& path) {
    const bool checkpoint = checkpoint::LooksLikeCheckpoint(path);
    return InvalidArgument()
        .At(path)
        .Expected("dumps of calls (step0/rank0/dump.json)"_t)
        .Found(checkpoint ? "a checkpoint"_t : "tensor files"_t)
        .Hint(checkpoint ? "msprobe compare TARGET GOLDEN compares two checkpoints"_t
                         : "msprobe compare TARGET GOLDEN compares two folders of tensor files"_t);
  }

  // The first anomaly of one step. `step`: "step0/", or "" when there is only one.
  anomaly::FirstAnomalies Search(std::span<const dump::DumpLocation> dumps, const std::string& step,
                                 Console& out) {
    std::vector<anomaly::RankAnomaly> ranks;
    for (const dump::DumpLocation& at : dumps) {
      out.ProgressOf("reading"_t, ranks.size(), dumps.size());
      const std::string folder = step + BaseName(DirectoryName(at.path));
      Result<Dump> dump = at.refused.ok() ? dump::ReadDump(at.path) : Result<Dump>(at.refused);
      if (dump.ok() && FactsOf(dump->dialect).has_no_calls) dump = NoCalls(at.path);
      if (!dump.ok()) {
        // One bad rank does not hide the others.
        notes_.push_back("{} is left out: {}"_t(at.refused.ok() ? folder : step + BaseName(at.path),
                                                dump.status().AsMessage()));
        if (unread_.ok()) unread_ = dump.status();
        continue;
      }
      ++read_;
      search_.entries += static_cast<int64_t>(dump->records.size());
      NoteMissing(*dump, folder);
      ranks.push_back(anomaly::FindRankAnomaly(*dump, at.rank));
      if (!step.empty()) ranks.back().label = Message::Joined({step, ranks.back().label}, "");
    }
    return anomaly::FindFirstAnomalies(std::move(ranks));
  }

  void NoteMissing(const Dump& dump, const std::string& folder) {
    if (!dump.complete) notes_.push_back("{}: {}"_t(folder, dump.note));
    if (BaseName(dump.path) != "dump.json") return;
    for (const auto& [file, what] :
         {std::pair{std::string("stack.json"), "source lines"_t},
          std::pair{std::string("construct.json"), "modules around its calls"_t}}) {
      if (!Exists(JoinPath(dump.folder, file)))
        notes_.push_back("{} has no {}: its {} are not known"_t(folder, file, what));
    }
  }

  Result<int> Report(const anomaly::FirstAnomalies& found, Console& out) {
    std::string file;
    if (!found.answer.empty()) {
      const auto time = std::chrono::system_clock::now().time_since_epoch();
      MSPROBE_RETURN_IF_ERROR(MakeDirectories(output_));
      file = JoinPath(
          output_, fmt::format("anomaly_analyze_{}.json", std::chrono::nanoseconds(time).count()));
      MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(file, anomaly::AnomalyFile(found)));
    }
    if (format_ == "json") {
      out.Write(anomaly::AnomalyJson(found, search_, notes_, file));
    } else {
      out.Write(MakeLinesPrintable(anomaly::AnomalyText(found, search_)));
      for (const Message& note : notes_) out.Warn("warning: {}"_t(note));
      if (!file.empty()) out.Tell("written: {}"_t(file));
    }
    if (found.answer.empty() && !unread_.ok()) return kExitError;
    return exit_code_ && !found.answer.empty() ? kExitDiffers : kExitOk;
  }

  std::string name_, input_, output_ = "./output", format_ = "table";
  bool exit_code_ = false;
  std::vector<Message> notes_;
  anomaly::AnomalySearch search_;
  Status unread_;    // the first rank that could not be read
  size_t read_ = 0;  // ranks
};

}  // namespace

std::unique_ptr<Verb> MakeOverflowCheckVerb(std::string_view name) {
  return std::make_unique<OverflowCheck>(name);
}

}  // namespace msprobe::cli
