#include "engine/dump/read/recover.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace msprobe::cli {
namespace {

class Recover : public Verb {
 public:
  std::string_view name() const override { return "recover"; }
  std::string_view summary() const override {
    return "close dumps that a killed run left open, and say what is missing";
  }
  void AddFlags(Flags& flags) override {
    flags.Text("dump", &dump_, "dump.json, its folder, or a folder of many steps and ranks")
        .TypeName("PATH")
        .Required();
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<dump::RecoveredDump> dumps,
                             dump::RecoverDumps(dump_));
    if (dumps.size() == 1 && !dumps[0].failed.ok()) return dumps[0].failed;
    size_t failed = 0;
    for (const dump::RecoveredDump& recovered : dumps) {
      if (!recovered.failed.ok()) {
        ++failed;
        out.Error(recovered.failed);
        continue;
      }
      Print(recovered, out);
    }
    PrintSummary(dumps, failed, out);
    return failed > 0 ? kExitError : kExitOk;
  }

 private:
  static std::string Count(uint64_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  }

  static void Print(const dump::RecoveredDump& recovered, Console& out) {
    const std::string records = Count(static_cast<uint64_t>(recovered.records), "record");
    if (recovered.closed.empty()) {
      out.Tell("{}: complete already, {}; nothing to do\n", recovered.path, records);
    } else {
      out.Tell("{}: {} kept, {} of unfinished entries removed\n", recovered.path, records,
               Count(recovered.dropped_bytes, "byte"));
    }
    for (const std::string& file : recovered.closed) out.Tell("closed: {}\n", file);
    for (const std::string& what : recovered.missing)
      out.Tell("missing: {}\n", MakePrintable(what));
  }

  // "3 files of 1 dump closed, 2 complete entries in it; 1 dump was complete already"
  static void PrintSummary(const std::vector<dump::RecoveredDump>& dumps, size_t failed,
                           Console& out) {
    uint64_t files = 0, closed = 0, entries = 0;
    for (const dump::RecoveredDump& r : dumps) {
      if (!r.failed.ok() || r.closed.empty()) continue;
      ++closed;
      files += r.closed.size();
      entries += static_cast<uint64_t>(r.records);
    }
    const uint64_t complete = dumps.size() - closed - failed;
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
    if (closed > 0)
      add(fmt::format(
          "{} of {} closed, with {}", Count(files, "file"), Count(closed, "dump"),
          entries == 1 ? "1 complete entry" : fmt::format("{} complete entries", entries)));
    if (complete > 0)
      add(fmt::format("{} {} complete already", Count(complete, "dump"),
                      complete == 1 ? "was" : "were"));
    if (failed > 0) add(fmt::format("{} cannot be closed", Count(failed, "dump")));
    out.Tell("{}\n", text);
  }

  std::string dump_;
};

}  // namespace

std::unique_ptr<Verb> MakeRecoverVerb() { return std::make_unique<Recover>(); }

}  // namespace msprobe::cli
