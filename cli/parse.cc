#include <string>

#include "cli/verb.h"
#include "engine/base/text.h"
#include "engine/dump/read/pkl_trace.h"

namespace msprobe::cli {
namespace {

class Parse : public Verb {
 public:
  std::string_view name() const override { return "parse"; }
  std::string_view summary() const override {
    return "print stacks and statistics of calls in a dump of ptdbg_ascend";
  }
  void AddFlags(Flags& flags) override {
    flags.Text("dump", &dump_, "the .pkl file, or the folder that holds it")
        .TypeName("PATH")
        .Required();
    flags.Text("prefix", &prefix_, "the beginning of the names: Torch_relu_0, or 21_Torch_relu")
        .Required();
  }

  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const dump::PklTrace trace, dump::TracePklFile(dump_, prefix_));
    for (const std::string& warning : trace.warnings)
      out.Warn("warning: " + MakePrintable(warning) + "\n");
    std::string_view text = trace.text;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      out.Write(MakePrintable(text.substr(0, end)));
      out.Write("\n");
      text.remove_prefix(end + 1);
    }
    return kExitOk;
  }

 private:
  std::string dump_, prefix_;
};

}  // namespace

std::unique_ptr<Verb> MakeParseVerb() { return std::make_unique<Parse>(); }

}  // namespace msprobe::cli
