#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

#include "cli/programs/python_program.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/gradients/compare_gradients.h"
#include "engine/gradients/recorded_norms.h"
#include "engine/report_page/gradient_page.h"

namespace msprobe::cli {
namespace {

using gradients::GradientComparison;
using gradients::GradientFall;
using gradients::GradientVerdict;

constexpr size_t kMostOthers = 5;  // parameters that are named in the table

std::string_view VerdictText(const GradientComparison& c) {
  switch (gradients::VerdictOf(c)) {
    case GradientVerdict::kFalls:
      return "falls";
    case GradientVerdict::kUnreadable:
    case GradientVerdict::kMayBeRounding:
      return "unknown";
    case GradientVerdict::kSimilar:
      return "similar";
    case GradientVerdict::kSame:
      return "same";
  }
  return "";
}

// The first line of the table.
Message Head(const GradientComparison& c) {
  switch (gradients::VerdictOf(c)) {
    case GradientVerdict::kFalls:
      return "FALLS in step {}"_t(c.fall->step);
    case GradientVerdict::kUnreadable:
      return "UNKNOWN, see below"_t;
    case GradientVerdict::kMayBeRounding:
      return "UNKNOWN: rounding, nothing else falls"_t;
    case GradientVerdict::kSimilar:
      return "SIMILAR, nothing falls"_t;
    case GradientVerdict::kSame:
      return "SAME directions"_t;
  }
  return {};
}

Message OfRank(const std::string& parameter, int64_t rank) {
  return rank < 0 ? Message(parameter) : "{} of rank {}"_t(parameter, rank);
}

// "a number from 0 to 1" as the check of a flag.
Message CheckShare(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = !text.empty() && *end == '\0' && value >= 0 && value <= 1;
  return good ? Message() : "expected a number from 0 to 1, found {}"_t(Excerpt(text));
}

class GradCompare : public Verb {
 public:
  std::string_view name() const override { return "grad_compare"; }
  Message summary() const override {
    return "compare the gradients of two runs with task grad_probe"_t;
  }

  void AddFlags(Flags& flags) override {
    flags.Text("target", &target_, "dump_path of the run under test, or its folder of a rank"_t)
        .TypeName("PATH")
        .Required();
    flags.Text("golden", &golden_, "the same of the run that is trusted"_t)
        .TypeName("PATH")
        .Required();
    flags.Text("-o,--output_path", &output_, "folder for similarities.csv of each rank"_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags
        .Text("--html", &html_,
              "also write one page: where the similarity falls, all parameters over the steps"_t)
        .TypeName("FILE");
    flags.Switch("--png", &png_,
                 "also write similarities_picture/ beside each similarities.csv, a PNG file for "
                 "each parameter, as msprobe 1.0 to 8 did; needs matplotlib"_t);
    flags
        .Text("--lowest-first", &lowest_first_,
              "a similarity below this in the first step is a fall"_t)
        .TypeName("SHARE")
        .ShowDefault()
        .Check(&CheckShare);
    flags
        .Text("--largest-drop", &largest_drop_,
              "a similarity that is lower by more than this than in the step before is a fall"_t)
        .TypeName("SHARE")
        .ShowDefault()
        .Check(&CheckShare);
    flags.Switch("--exit-code", &exit_code_, "exit with 1 if a similarity falls"_t);
    flags.Footer(
        "A similarity is the share of elements whose gradient is positive on both sides or on "
        "none.\nThe runs must be recorded with grad_level L1 or L2."_t);
  }

  Result<int> Run(Console& out) override {
    gradients::GradientOptions options;
    options.rule = {std::strtod(lowest_first_.c_str(), nullptr),
                    std::strtod(largest_drop_.c_str(), nullptr)};
    options.on_progress = [&](size_t done, size_t all) {
      out.ProgressOf("comparing"_t, done, all);
    };
    for (const std::string& path : {target_, golden_}) MSPROBE_RETURN_IF_ERROR(RefuseDumps(path));
    Result<GradientComparison> compared =
        gradients::CompareGradients(target_, golden_, output_, options);
    out.ClearProgress();
    if (!compared.ok()) return compared.status();
    GradientComparison& c = *compared;
    if (!html_.empty()) {
      MSPROBE_RETURN_IF_ERROR(
          WriteFileAtomically(html_, report_page::GradientPage(c, target_, golden_)));
      c.files.push_back(html_);
    }
    if (png_) MSPROBE_RETURN_IF_ERROR(Draw(out, &c.files));
    format_ == "json" ? PrintJson(c, out) : PrintTable(c, out);
    if (!c.errors.empty()) return kExitError;
    return exit_code_ && c.fall ? kExitDiffers : kExitOk;
  }

 private:
  // Dumps of calls have no directions of gradients.
  Status RefuseDumps(const std::string& path) const {
    if (!IsDirectory(path) || gradients::IsRecording(path)) return Status::Ok();
    const Result<std::vector<dump::DumpLocation>> dumps = dump::FindDumps(path);
    if (!dumps.ok() || dumps->empty() || !dumps->front().path.ends_with(".json"))
      return Status::Ok();
    return InvalidArgument()
        .At(path)
        .Expected("the dump_path of a run with task grad_probe"_t)
        .Found("dumps of calls: {}"_t(dumps->front().path))
        .Hint("msprobe compare {} {} compares those"_t(target_, golden_));
  }

  // Adds the folders of pictures beside the tables to `files`.
  static Status Draw(Console& out, std::vector<std::string>* files) {
    std::vector<std::string> words = {"-m", "msprobe.core.grad_probe.pictures"};
    for (const std::string& file : *files) {
      if (file.ends_with(".csv")) words.push_back(file);
    }
    out.Progress("drawing"_t);
    const Result<std::string> done = LineOfPython("--png", words);
    out.ClearProgress();
    if (!done.ok()) return done.status();
    for (size_t i = 2; i < words.size(); ++i)
      files->push_back(JoinPath(DirectoryName(words[i]), "similarities_picture"));
    return Status::Ok();
  }

  static void PrintFall(const GradientComparison& c, Console& out) {
    const GradientFall& fall = *c.fall;
    const int64_t rank = c.ranks[c.fall_rank].rank;
    const std::string similarity =
        fall.before ? fmt::format("{:.4g} -> {:.4g}", *fall.before, fall.similarity)
                    : fmt::format("{:.4g}", fall.similarity);
    out.Tell("  {}"_t("first fall  step {}, {}: similarity {}; {} of {} elements point elsewhere"_t(
        fall.step, OfRank(fall.parameter, rank), similarity, fall.changed, fall.count)));
    out.Tell("  {}"_t("why         {}"_t(fall.why)));
    if (c.fall_norms)
      out.Tell("  {}"_t("norm        {:.6g}, of the golden {:.6g}"_t(c.fall_norms->target,
                                                                     c.fall_norms->golden)));
    if (!fall.others.empty()) {
      const size_t shown = std::min(kMostOthers, fall.others.size());
      std::string text;
      for (size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + fall.others[i];
      const size_t more = fall.others.size() - shown;
      out.Tell("  {}"_t("also falls  {}"_t(more > 0 ? "{} and {} more"_t(text, more) : text)));
    }
    std::vector<int64_t> others;
    for (const gradients::RankSimilarity& other : c.ranks) {
      if (other.rank != rank && other.fall && other.fall->step == fall.step)
        others.push_back(other.rank);
    }
    if (!others.empty())
      out.Tell("  {}"_t(others.size() == 1 ? "also on     rank {}"_t(others[0])
                                           : "also on     ranks {}"_t(
                                                 fmt::format("{}", fmt::join(others, ", ")))));
  }

  static void PrintTable(const GradientComparison& c, Console& out) {
    out.Tell("msprobe grad_compare: {}"_t(Head(c)));
    if (c.fall) PrintFall(c, out);
    if (c.first_difference && (!c.fall || c.first_difference->step != c.fall->step)) {
      const GradientFall& first = *c.first_difference;
      const int64_t rank = c.ranks[c.difference_rank].rank;
      out.Tell("  {}"_t("difference  from step {} on, {}: {} of {} elements point elsewhere"_t(
          first.step, OfRank(first.parameter, rank), first.changed, first.count)));
    }
    const size_t ranks = c.ranks.size(), steps = c.all.steps().size(),
                 parameters = c.all.parameters().size();
    out.Tell("  {}"_t("compared    {}, {}, {}"_t(
        ranks == 1 ? "1 rank"_t : "{} ranks"_t(ranks),
        steps == 1 ? "1 step"_t : "{} steps"_t(steps),
        parameters == 1 ? "1 parameter"_t : "{} parameters"_t(parameters))));
    for (const Message& error : c.errors) out.Tell("  {}"_t("error       {}"_t(error)));
    for (const Message& note : c.notes) out.Tell("  {}"_t("note        {}"_t(note)));
    for (const std::string& file : c.files) out.Tell("written: {}"_t(file));
  }

  static void AppendNumber(std::string* json, double value) {
    if (std::isfinite(value)) {
      AppendPythonFloat(json, value);
    } else {
      *json += "null";
    }
  }

  static void AppendTexts(std::string* json, std::string_view key,
                          const std::vector<std::string>& texts) {
    *json += fmt::format(", \"{}\": [", key);
    for (const std::string& text : texts) {
      if (json->back() != '[') *json += ", ";
      AppendJsonString(json, text);
    }
    *json += ']';
  }

  static void AppendTexts(std::string* json, std::string_view key,
                          const std::vector<Message>& texts) {
    std::vector<std::string> english;
    for (const Message& text : texts) english.push_back(text.English());
    AppendTexts(json, key, english);
  }

  static void AppendFall(std::string* json, const GradientComparison& c,
                         const std::optional<GradientFall>& fall, int64_t rank) {
    if (!fall) {
      *json += "null";
      return;
    }
    *json += fmt::format("{{\"rank\": {}, \"step\": {}, \"parameter\": ",
                         rank < 0 ? "null" : fmt::format("{}", rank), fall->step);
    AppendJsonString(json, fall->parameter);
    *json += ", \"before\": ";
    AppendNumber(json, fall->before.value_or(std::nan("")));
    *json += ", \"similarity\": ";
    AppendNumber(json, fall->similarity);
    *json += fmt::format(", \"changed\": {}, \"elements\": {}", fall->changed, fall->count);
    if (&fall == &c.fall && c.fall_norms) {
      *json += ", \"target_norm\": ";
      AppendNumber(json, c.fall_norms->target);
      *json += ", \"golden_norm\": ";
      AppendNumber(json, c.fall_norms->golden);
    }
    AppendTexts(json, "others", fall->others);
    *json += ", \"why\": ";
    AppendJsonString(json, fall->why.English());
    *json += '}';
  }

  void PrintJson(const GradientComparison& c, Console& out) const {
    std::string json = fmt::format("{{\"verdict\": \"{}\", \"target\": ", VerdictText(c));
    AppendJsonString(&json, target_);
    json += ", \"golden\": ";
    AppendJsonString(&json, golden_);
    json += ", \"first_fall\": ";
    AppendFall(&json, c, c.fall, c.fall ? c.ranks[c.fall_rank].rank : -1);
    json += fmt::format(", \"first_difference\": {}, \"differs_at\": ",
                        c.first_difference ? fmt::format("{}", c.first_difference->step) : "null");
    AppendFall(&json, c, c.first_difference,
               c.first_difference ? c.ranks[c.difference_rank].rank : -1);
    json += ", \"ranks\": [";
    for (const gradients::RankSimilarity& rank : c.ranks) {
      if (json.back() != '[') json += ", ";
      json += fmt::format("{{\"rank\": {}, \"parameters\": {}, \"steps\": [",
                          rank.rank < 0 ? "null" : fmt::format("{}", rank.rank), rank.parameters);
      for (size_t s = 0; s < rank.steps.size(); ++s)
        json += fmt::format("{}{}", s > 0 ? ", " : "", rank.steps[s]);
      json += "], \"summary\": [";
      for (size_t s = 0; s < rank.summary.size(); ++s) {
        if (s > 0) json += ", ";
        AppendNumber(&json, rank.summary[s].known() ? rank.summary[s].share() : std::nan(""));
      }
      json += "], \"first_fall\": ";
      AppendFall(&json, c, rank.fall, rank.rank);
      json += '}';
    }
    json += ']';
    AppendTexts(&json, "may_be_rounding", c.may_be_rounding);
    AppendTexts(&json, "notes", c.notes);
    AppendTexts(&json, "errors", c.errors);
    AppendTexts(&json, "files", c.files);
    out.Print("{}}}\n", json);
  }

  std::string target_, golden_, output_, html_, format_ = "table";
  std::string lowest_first_ = "0.97", largest_drop_ = "0.03";
  bool exit_code_ = false, png_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeGradCompareVerb() { return std::make_unique<GradCompare>(); }

}  // namespace msprobe::cli
