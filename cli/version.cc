#include "cli/verbs.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

class Version : public Verb {
 public:
  std::string_view name() const override { return "version"; }
  Message summary() const override { return "print the version"_t; }
  void AddFlags(Flags&) override {}
  Result<int> Run(Console& out) override {
    out.Print("msprobe {}\n", MSPROBE_VERSION);
    return kExitOk;
  }
};

}  // namespace

std::unique_ptr<Verb> MakeVersionVerb() { return std::make_unique<Version>(); }

}  // namespace msprobe::cli
