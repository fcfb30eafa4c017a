// The flags of a verb: their names, help texts and checks, and the variables that take their
// values.
//
//   void AddFlags(Flags& flags) override {
//     flags.Text("dump", &dump_, "dump folder or dump.json"_t).Required();       // by its place
//     flags.Text("-o,--output_path", &output_, "folder for the results"_t).ShowDefault();
//     flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
//     flags.Switch("--exit-code", &exit_code_, "exit with 1 unless everything is equal"_t);
//   }
//
// A name without dashes is an argument that is known by its place: "dump". "target,--target_path"
// is known by its place or by its name: `msprobe compare A B` and `msprobe compare -gp B A` mean
// the same. The variables must outlive the Flags. No other file than flags.cc knows the library
// that parses: its headers are large.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/help_text.h"
#include "engine/base/messages/message.h"

namespace CLI {
class App;
}  // namespace CLI

namespace msprobe::cli {

struct FlagData;  // what Flags keeps of a flag

// One flag of a Flags, to say more of it or to ask whether it was given. It is as cheap as a
// pointer, and valid while the Flags is.
class Flag {
 public:
  static constexpr int kAnyNumber = -1;  // for Values

  Flag() = default;  // of no Flags; never given

  Flag Required();
  // Not required, and nearly always given: Flags::Completed gives it a word that has no flag.
  Flag Usual();
  Flag ShowDefault();  // help shows the value that the variable has now
  // What help calls the value; by default TEXT or NUMBER. FILE, FOLDER and PATH, also in [ ], are
  // paths: shells complete them.
  Flag TypeName(std::string_view text);
  // One of the few flags that --help lists. The others are listed by --help-all; when a verb marks
  // none, --help lists all.
  Flag Common();

  // Checks of each value. A failed check is an error of Flags::Parse.
  Flag OneOf(std::initializer_list<std::string_view> values);
  Flag Positive();
  // `check` answers with no text for a value that is good, else with what is wrong with the value.
  Flag Check(std::function<Message(const std::string& value)> check);

  // How many values follow the name. By default one, and for a list all up to the next flag.
  Flag Values(int at_least, int at_most);
  // Of a list: one value follows the name, and the name may be given several times.
  Flag OneValueEach();
  // With Values: the name may be given several times, and all values are kept.
  Flag Repeatable();

  bool given() const;

 private:
  friend class Flags;
  explicit Flag(FlagData* data) : data_(data) {}

  FlagData* data_ = nullptr;
};

class Flags {
 public:
  // `summary` and `program` ("msprobe show") are the first lines of the help.
  Flags(Message summary, std::string_view program);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // `names`: "--format", "-o,--output_path", or "dump" for an argument known by its place. A Switch
  // takes no value; the others take one or, as a list, several.
  Flag Switch(std::string_view names, bool* value, Message help);
  Flag Text(std::string_view names, std::string* value, Message help);
  Flag Number(std::string_view names, int64_t* value, Message help);
  Flag Texts(std::string_view names, std::vector<std::string>* values, Message help);
  void Group(Message title);          // the heading in the help, for the flags that follow
  void Usage(std::string_view text);  // after the program in the help, instead of the flags' own
  void Footer(Message text);          // below the list of flags in the help

  std::string Help(bool all, int width) const;
  // In the order in which they were added; without --help and --help-all.
  std::vector<FlagInfo> All() const;
  // All names with their dashes: "--format", "-o".
  std::vector<std::string> Names() const;
  // Whether a value follows this name; false for a name that no flag has.
  bool TakesValue(std::string_view name) const;

  // After Parse. `name`: "--format".
  bool IsGiven(std::string_view name) const;
  // After Parse: whether a flag that may also be known by its place was given with its name.
  bool IsGivenByName(std::string_view name) const;
  // After Parse: the flags that were given, as words that mean the same: "--format=json", but not
  // those of `without`. Also what was known by its place has its name.
  std::vector<std::string> Words(std::span<const std::string_view> without) const;

  struct Parsed {
    bool help = false;               // --help or -h was given; nothing else was looked at
    bool help_all = false;           // the same for --help-all
    Message error;                   // no text: none
    bool missing = false;            // the error is that a required flag was not given
    std::string nearest;             // where a value is none of the choices: the nearest of them
    std::vector<std::string> extra;  // words that belong to no flag
  };
  // Sets the variables. To be called once.
  Parsed Parse(const std::vector<std::string>& words);

  // After Parse: of the required flags and arguments the first that was not given, as help spells
  // it and with its help: "-i (--input_path) is required: the dump". No text: none.
  Message FirstMissing() const;
  // The command line with a name before each word that belongs to no flag, and a place for what is
  // missing: "show -i a -o FOLDER" of "a". "": words are left, or there is nothing to add.
  std::string Completed(const std::vector<std::string>& words,
                        const std::vector<std::string>& extra) const;

 private:
  Flag Keep(FlagData data);
  void KeepNames(const std::vector<std::string>& words);
  static bool IsMissing(const FlagData& flag);

  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<FlagData>> flags_;
  Message summary_, group_, footer_;
  std::string program_, usage_;
};

// The flag --exit-code of the verbs that compare.
void AddExitCode(Flags& flags, bool* value);

}  // namespace msprobe::cli
