#include "engine/dump/read/recover.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cli/verb.h"

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
    if (dumps.size() > 1) {
      const auto closed = std::count_if(
          dumps.begin(), dumps.end(),
          [](const dump::RecoveredDump& r) { return r.failed.ok() && !r.closed.empty(); });
      out.Print("{} dumps: {} closed, {} complete already, {} cannot be closed\n", dumps.size(),
                closed, dumps.size() - static_cast<size_t>(closed) - failed, failed);
    }
    return failed > 0 ? kExitError : kExitOk;
  }

 private:
  static void Print(const dump::RecoveredDump& recovered, Console& out) {
    if (recovered.closed.empty()) {
      out.Print("{}: complete already, {} records; nothing to do\n", recovered.path,
                recovered.records);
    } else {
      out.Print("{}: {} records kept, {} bytes of unfinished entries removed\n", recovered.path,
                recovered.records, recovered.dropped_bytes);
    }
    for (const std::string& file : recovered.closed) out.Print("closed: {}\n", file);
    for (const std::string& what : recovered.missing)
      out.Print("missing: {}\n", MakePrintable(what));
  }

  std::string dump_;
};

}  // namespace

std::unique_ptr<Verb> MakeRecoverVerb() { return std::make_unique<Recover>(); }

}  // namespace msprobe::cli
