#include <unistd.h>

#include <string>
#include <vector>

#include "cli/parse/parse_commands.h"
#include "cli/parse/parse_shell.h"
#include "cli/verbs.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {
namespace {

class Parse : public Verb {
 public:
  std::string_view name() const override { return "parse"; }
  Message summary() const override {
    return "look at dumps of operators and of ptdbg_ascend: a shell, or one command"_t;
  }
  void AddFlags(Flags& flags) override {
    flags.Usage("[FLAGS] [COMMAND ...]");
    flags.Switch("--allow-run", &options_.allow_run,
                 "the shell runs other programs: run LINE, and lines it does not know"_t);
    flags.Switch("--exit-code", &options_.exit_code,
                 "exit with 1 where vc or cn finds a difference"_t);
    dump_ = flags
                .Text("-d,--dump_path", &path_,
                      "convert a dump file of CANN, or all in a folder, without the shell"_t)
                .TypeName("PATH");
    type_ = flags.Text("-t,--type", &to_type_, "with -d: the files to write"_t)
                .OneOf({"npy", "pt"})
                .ShowDefault();
    output_ = flags.Text("-o,--output_path", &folder_, "with -d: the folder for the results"_t)
                  .TypeName("FOLDER")
                  .ShowDefault();
    flags.Footer(Message::Joined(
        {"Without a command, commands are read from the terminal or a pipe, one a line:"_t,
         ParseCommandsHelp(),
         std::string("\n  msprobe parse vc -m npu -g golden\n"
                     "  msprobe parse < commands\n"
                     "  msprobe parse npu_dump.pkl 21_Torch_relu    as pk\n")},
        "\n"));
  }
  bool TakesCommand() const override { return true; }
  void SetCommand(const std::vector<std::string>& words) override { words_ = words; }

  Result<int> Run(Console& out) override {
    ParseShell shell(options_);
    if (dump_.given()) {
      if (!words_.empty())
        return InvalidArgument("-d converts; it takes no command"_t)
            .Hint(std::string("msprobe parse --help"));
      return ConvertOperatorDumps(path_, to_type_, folder_, out);
    }
    if (type_.given() || output_.given())
      return InvalidArgument("-t and -o belong to -d"_t)
          .Hint(std::string("msprobe parse -d PATH -t npy -o out"));
    if (words_.empty()) return shell.Read(STDIN_FILENO, out);
    if (!IsParseCommand(words_[0])) {
      if (words_.size() != 2) {
        return InvalidArgument()
            .Expected("a command, or a .pkl file and the beginning of names"_t)
            .Found(Excerpt(words_[0]))
            .Hint(std::string("msprobe parse --help"));
      }
      return shell.Do({"pk", "-f", words_[0], "-n", words_[1]}, out);
    }
    MSPROBE_ASSIGN_OR_RETURN(const int code, shell.Do(words_, out));
    return code == kExitDiffers && !options_.exit_code ? kExitOk : code;
  }

 private:
  ParseShellOptions options_;
  Flag dump_, type_, output_;
  std::string path_, to_type_ = "pt", folder_ = "./output";
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Verb> MakeParseVerb() { return std::make_unique<Parse>(); }

}  // namespace msprobe::cli
