#include "engine/dump/read/recover.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

class Recover : public Verb {
 public:
  std::string_view name() const override { return "recover"; }
  Message summary() const override {
    return "close dumps that a killed run left open, and say what is missing"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("dump", &dump_, "dump.json, its folder, or a folder of many steps and ranks"_t)
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
  static void Print(const dump::RecoveredDump& recovered, Console& out) {
    const Message records =
        recovered.records == 1 ? "1 record"_t : "{} records"_t(recovered.records);
    if (recovered.closed.empty()) {
      out.Tell("{}: complete already, {}; nothing to do"_t(recovered.path, records));
    } else {
      out.Tell("{}: {} kept, {} of unfinished entries removed"_t(
          recovered.path, records,
          recovered.dropped_bytes == 1 ? "1 byte"_t : "{} bytes"_t(recovered.dropped_bytes)));
    }
    for (const std::string& file : recovered.closed) out.Tell("closed: {}"_t(file));
    for (const Message& what : recovered.missing) out.Tell("missing: {}"_t(what));
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
    std::vector<Message> parts;
    if (closed > 0) {
      const Message kept = entries == 1 ? "1 complete entry"_t : "{} complete entries"_t(entries);
      parts.push_back(files == 1 ? "{} file of {} dump closed, with {}"_t(files, closed, kept)
                      : closed == 1
                          ? "{} files of {} dump closed, with {}"_t(files, closed, kept)
                          : "{} files of {} dumps closed, with {}"_t(files, closed, kept));
    }
    if (complete > 0) {
      parts.push_back(complete == 1 ? "{} dump was complete already"_t(complete)
                                    : "{} dumps were complete already"_t(complete));
    }
    if (failed > 0) {
      parts.push_back(failed == 1 ? "{} dump cannot be closed"_t(failed)
                                  : "{} dumps cannot be closed"_t(failed));
    }
    out.Tell(Message::Joined(std::move(parts), "; "));
  }

  std::string dump_;
};

}  // namespace

std::unique_ptr<Verb> MakeRecoverVerb() { return std::make_unique<Recover>(); }

}  // namespace msprobe::cli
