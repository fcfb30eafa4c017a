#include "engine/dump/recover.h"

#include <string>

#include "cli/verb.h"

namespace msprobe {
namespace {

class Recover : public Verb {
 public:
  std::string_view name() const override { return "recover"; }
  std::string_view summary() const override {
    return "close a dump that a killed run left open, and say what is missing";
  }
  void AddFlags(CLI::App& app) override {
    app.add_option("dump", dump_, "dump folder or dump.json")->required();
  }
  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(RecoveredDump recovered, RecoverDump(dump_));
    if (recovered.closed.empty()) {
      out.Print("{}: whole already, {} records; nothing to do\n", recovered.path,
                recovered.records);
    } else {
      out.Print("{}: {} records kept, {} bytes of unfinished entries removed\n", recovered.path,
                recovered.records, recovered.dropped_bytes);
    }
    for (const std::string& file : recovered.closed) out.Print("closed: {}\n", file);
    for (const std::string& what : recovered.missing) out.Print("missing: {}\n", what);
    return kExitOk;
  }

 private:
  std::string dump_;
};

}  // namespace

std::unique_ptr<Verb> MakeRecoverVerb() { return std::make_unique<Recover>(); }

}  // namespace msprobe
