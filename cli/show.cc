#include <algorithm>
#include <string>

#include "cli/outputs/show_files.h"
#include "cli/verbs.h"
#include "engine/base/display_width.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/dump/write/coverage.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/model/named_calls.h"
#include "engine/model/names.h"
#include "engine/report_page/report_page.h"

namespace msprobe::cli {
namespace {

constexpr size_t kMaxOperations = 8;  // kinds of operations that were not observed

class Show : public Verb {
 public:
  std::string_view name() const override { return "show"; }
  Message summary() const override { return "print a dump, a tensor or a table"_t; }
  void AddFlags(Flags& flags) override {
    flags.Footer(
        "Also stack.json, construct.json, coverage.json, weights.json, tables (.csv, .xlsx) and\n"
        "tensors (.npy, .pt, .safetensors): their statistics, where the extremes and the first "
        "NaN\n"
        "are, with --slice their elements. Slices are those of NumPy, an item for each dimension:\n"
        "  3      index 3, the dimension is dropped     -1     the last\n"
        "  0:2    0 and 1      ::2  each second      ::-1  backwards      :  all\n"
        "  ...    all dimensions between\n"
        "  msprobe show step0/rank/dump_tensor_data/Torch.mm.0.forward.output.0.pt --slice "
        "0:2,:,3"_t);
    flags.Text("dump", &dump_, "dump folder, dump.json, or another file, see below"_t)
        .TypeName("PATH")
        .Required();
    flags
        .Text("--filter", &filter_,
              "only records, tensors or rows that contain this text: linear.3, or a line, "
              "model.py:41"_t)
        .Usual();
    flags.Text("--slice", &slice_, "print these elements of a tensor: 0:2,:,3"_t);
    flags
        .Text("--golden", &golden_,
              "print the elements of a tensor that differ most from those in this file"_t)
        .TypeName("FILE");
    flags
        .Text("--html", &html_,
              "write the dump as a page to this file instead: all calls to walk through, in a "
              "browser"_t)
        .TypeName("FILE");
    flags.Number("--limit", &limit_, "at most this many records, rows or elements; 0: all"_t)
        .Check([](const std::string& text) {
          return NumberAfter(text, "") >= 0 ? Message()
                                            : "expected a number of 0 or more, found {}"_t(text);
        });
  }

  Result<int> Run(Console& out) override {
    if (!html_.empty()) return WritePage(out);
    const ShowTensorOptions options{
        .filter = filter_, .slice = slice_, .golden = golden_, .limit = limit_};
    MSPROBE_ASSIGN_OR_RETURN(const bool shown_already, ShowOtherFile(dump_, options, out));
    if (shown_already) return kExitOk;
    if (!slice_.empty() || !golden_.empty()) {
      return InvalidArgument(
                 "{} is not a tensor file; --slice and --golden need one"_t(Excerpt(dump_, 80)))
          .Hint("tensors are in dump_tensor_data beside dump.json, under task tensor"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(Dump dump, dump::ReadDump(dump_));
    if (filter_.empty()) PrintHeader(dump, out);
    int64_t shown = 0, matching = 0;
    for (const Record& record : dump.records) {
      if (!filter_.empty() && !NamesCall(filter_, Named(dump, record))) continue;
      ++matching;
      if (limit_ > 0 && shown >= limit_) continue;
      if (shown++ > 0 || filter_.empty()) out.Write("\n");
      PrintRecord(dump, record, out);
    }
    if (shown < matching) out.Write("\n"), out.Tell("and {} more"_t(matching - shown));
    if (matching == 0 && !filter_.empty()) {
      out.Tell("no record of {} contains \"{}\" in its name or line"_t(dump.path, filter_));
    }
    return kExitOk;
  }

 private:
  static NamedCall Named(const Dump& dump, const Record& record) {
    return {.name = record.name.view(),
            .line = record.stack < 0 ? "" : dump::UserSourceLine(dump.stacks[record.stack])};
  }

  Result<int> WritePage(Console& out) const {
    if (!filter_.empty() || !slice_.empty() || !golden_.empty() || limit_ != kDefaultLimit) {
      return InvalidArgument(
                 "--html cannot be combined with --filter, --slice, --golden, --limit"_t)
          .Hint("the page has all calls, and a filter of its own"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(dump_));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(html_)));
    MSPROBE_RETURN_IF_ERROR(
        WriteFileAtomically(html_, report_page::DumpPage(dump, report_page::PartOf(dump, {}))));
    out.Tell("written: {}"_t(html_));
    return kExitOk;
  }

  static void PrintHeader(const Dump& dump, Console& out) {
    out.Print("{}\n", MakePrintable(dump.path));
    const Message level =
        dump.level == Level::kOther ? "unknown"_t : Message(LevelName(dump.level));
    const Message dialect(dump.DialectName());
    const std::string_view task = TaskName(dump.task);
    out.Tell(
        dump.has_checksums
            ? "{}, {}, task {} with checksums, level {}"_t(dialect, dump.framework, task, level)
            : "{}, {}, task {}, level {}"_t(dialect, dump.framework, task, level));
    out.Tell("records {}, values {}, stacks {}"_t(dump.records.size(), dump.leaves.size(),
                                                  dump.stacks.size()));
    std::string run;
    for (const auto& [key, text] : dump.provenance) {
      if (key != dump::kParallel) run += (run.empty() ? "" : ", ") + key + " " + text;
    }
    if (!run.empty()) out.Tell("run: {}"_t(run));
    const Result<dump::ParallelLayout> layout = dump::ParallelLayoutOf(dump);
    if (!layout.ok()) out.Tell("note: {}"_t(layout.status().AsMessage()));
    if (layout.ok()) {
      for (const auto& line : dump::ParallelLines(*layout)) out.Tell(line);
    }
    if (!dump.weights.empty()) out.Tell("weights {}"_t(dump.weights.size()));
    if (const Result<dump::Coverage> coverage =
            dump::ReadCoverage(JoinPath(dump.folder, dump::kCoverageFile));
        coverage.ok()) {
      for (const auto& line : dump::CoverageLines(*coverage, kMaxOperations)) out.Tell(line);
    } else if (coverage.status().code() != ErrorCode::kNotFound) {
      out.Tell("note: {}"_t(coverage.status().AsMessage()));
    }
    if (!dump.note.empty()) out.Tell("note: {}"_t(dump.note));
  }

  static void PrintRecord(const Dump& dump, const Record& record, Console& out) {
    const Message in = record.parent.empty() ? Message() : "  {}"_t("in {}"_t(record.parent));
    const Message raised =
        record.exception.empty() ? Message() : "  {}"_t("raised {}"_t(record.exception));
    out.Tell("{}{}{}"_t(record.name, in, raised));
    if (record.stack >= 0) {
      const std::string line = dump::UserSourceLine(dump.stacks[record.stack]);
      if (!line.empty()) out.Tell("  {}"_t("at {}"_t(line)));
    }
    int width = 8;
    for (const Leaf& leaf : dump.LeavesOf(record)) {
      width = std::max(width, DisplayWidth(MakePrintable(ShortName(record, leaf))));
    }
    for (const Leaf& leaf : dump.LeavesOf(record)) PrintLeaf(record, leaf, width, out);
  }

  // "input.0" of "Functional.linear.0.forward.input.0".
  static std::string_view ShortName(const Record& record, const Leaf& leaf) {
    const bool inside = leaf.name.size() > record.name.size() + 1 &&
                        leaf.name.substr(0, record.name.size()) == record.name &&
                        (leaf.name.view()[record.name.size()] == '.' ||
                         leaf.name.view()[record.name.size()] == '_');
    return inside ? leaf.name.substr(record.name.size() + 1) : leaf.name.view();
  }

  static void PrintLeaf(const Record& record, const Leaf& leaf, int width, Console& out) {
    out.Print("  {:<{}}", MakePrintable(ShortName(record, leaf)), width);
    switch (leaf.kind) {
      case LeafKind::kNone:
        out.Write("  None\n");
        return;
      case LeafKind::kScalar:
        out.Print("  {} {}\n",
                  MakePrintable(leaf.type.empty() ? leaf.dtype.view() : leaf.type.view()),
                  MakePrintable(leaf.value.empty() ? leaf.max : leaf.value));
        return;
      case LeafKind::kTensor:
        break;
    }
    out.Print("  {:<14} {:<16}", MakePrintable(leaf.dtype), MakePrintable(leaf.shape));
    const auto field = [&](std::string_view label, std::string_view text) {
      if (!text.empty()) out.Print("  {} {}", label, MakePrintable(text));
    };
    field("max", leaf.max), field("min", leaf.min), field("mean", leaf.mean),
        field("norm", leaf.norm);
    const auto count = [&](std::string_view label, int64_t n) {
      if (n > 0) out.Print("  {} {}", label, n);
    };
    count("nan", leaf.counts->nan), count("+inf", leaf.counts->pos_inf),
        count("-inf", leaf.counts->neg_inf);
    field("md5", leaf.checksum), field("file", leaf.data_name);
    out.Write("\n");
  }

  std::string dump_, filter_, slice_, golden_, html_;
  int64_t limit_ = kDefaultLimit;
};

}  // namespace

std::unique_ptr<Verb> MakeShowVerb() { return std::make_unique<Show>(); }

}  // namespace msprobe::cli
