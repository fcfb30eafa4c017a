#include <string>

#include "cli/command_line/completion_scripts.h"
#include "cli/verbs.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

class Completion : public Verb {
 public:
  std::string_view name() const override { return "completion"; }
  Message summary() const override {
    return "print the script with which a shell completes verbs, flags and paths"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Text("shell", &shell_, "the shell"_t).OneOf({"bash", "zsh", "fish"}).Required();
    flags.Footer(
        "bash, in ~/.bashrc:                     eval \"$(msprobe completion bash)\"\n"
        "zsh, in ~/.zshrc after compinit:        eval \"$(msprobe completion zsh)\"\n"
        "fish, in ~/.config/fish/config.fish:    msprobe completion fish | source"_t);
  }
  Result<int> Run(Console& out) override {
    out.Write(CompletionScript(shell_, Completions(AllVerbs())));
    return kExitOk;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Verb> MakeCompletionVerb() { return std::make_unique<Completion>(); }

}  // namespace msprobe::cli
