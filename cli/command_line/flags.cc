#include "cli/command_line/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <utility>

#include "cli/command_line/arguments.h"
#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::cli {

struct FlagData {
  CLI::Option* option = nullptr;
  std::string value;
  Message help, group;
  std::vector<std::string> choices;
  Message refused;  // what a check of ours says of the value
  bool common = false, usual = false;
  bool by_name = false;  // after Parse
};

namespace {

constexpr std::string_view kNotANumber = "not a number: ";  // before a value

// "table, json or csv"
Message Choices(const std::vector<std::string>& words) {
  if (words.size() < 2) return fmt::format("{}", fmt::join(words, ""));
  const std::span<const std::string> all(words);
  return "{} or {}"_t(fmt::format("{}", fmt::join(all.first(all.size() - 1), ", ")), words.back());
}

Message Values(int number, std::string_view type) {
  return number == 1 ? "a value ({})"_t(type) : "{} values"_t(number);
}

// What is wrong with the value of `flag`: what our own check says, or the library, in our words.
Message InOurWords(const FlagData& flag, const std::string& complaint) {
  constexpr std::string_view kReceived = " required but received ", kNotIn = " not in {";
  if (!flag.refused.empty()) return flag.refused;
  if (flag.option->get_items_expected_max() == 0) return "expected no value"_t;  // a Switch
  if (const size_t at = complaint.find(kNotIn); at != std::string::npos) {
    return "expected {}, found {}"_t(Choices(flag.choices), Excerpt(complaint.substr(0, at)));
  }
  const int least = std::max(1, flag.option->get_items_expected_min());
  if (complaint.ends_with(" missing"))
    return "expected {}, found {}"_t(Values(least, flag.value), "none"_t);
  if (const size_t at = complaint.find(kReceived); at != std::string::npos) {
    const std::string found = complaint.substr(at + kReceived.size());
    if (!complaint.starts_with("At Most"))
      return "expected {}, found {}"_t(Values(least, flag.value), found);
    const int most = flag.option->get_items_expected_max();
    return most == 1 ? "expected one value, found {}"_t(found)
                     : "expected at most {} values, found {}"_t(most, found);
  }
  if (complaint.starts_with(kNotANumber))
    return "expected a number, found {}"_t(Excerpt(complaint.substr(kNotANumber.size())));
  return complaint;
}

// "--golden_path" -> "-gp (--golden_path)"
std::string WithShortSpelling(const std::string& name) {
  const std::string_view alias = ShortSpelling(name);
  return alias.empty() ? name : fmt::format("{} ({})", alias, name);
}

// The name of the flag, and the complaint: of "--limit: ..." and "Could not convert: --limit = x".
std::pair<std::string, std::string> NameAndComplaint(const std::string& error) {
  constexpr std::string_view kConvert = "Could not convert: ", kEquals = " = ";
  if (error.starts_with(kConvert)) {
    const size_t equals = std::min(error.find(kEquals), error.size() - kEquals.size());
    return {error.substr(kConvert.size(), equals - kConvert.size()),
            std::string(kNotANumber) + error.substr(equals + kEquals.size())};
  }
  const size_t colon = error.find(": ");
  return colon == std::string::npos ? std::pair<std::string, std::string>()
                                    : std::pair(error.substr(0, colon), error.substr(colon + 2));
}

}  // namespace

Flag Flag::Required() {
  data_->option->required();
  return *this;
}

Flag Flag::ShowDefault() {
  data_->option->capture_default_str();
  return *this;
}

Flag Flag::TypeName(std::string_view text) {
  data_->value = text;
  data_->option->type_name(std::string(text));
  return *this;
}

Flag Flag::Usual() {
  data_->usual = true;
  return *this;
}

Flag Flag::Common() {
  data_->common = true;
  return *this;
}

Flag Flag::OneOf(std::initializer_list<std::string_view> values) {
  data_->choices.assign(values.begin(), values.end());
  data_->option->check(CLI::IsMember(data_->choices));
  return *this;
}

Flag Flag::Positive() {
  return Check([](const std::string& text) {
    return NumberAfter(text, "") > 0 ? Message()
                                     : "expected a number of 1 or more, found {}"_t(text);
  });
}

Flag Flag::Check(std::function<Message(const std::string& value)> check) {
  data_->option->check([data = data_, check = std::move(check)](const std::string& value) {
    data->refused = check(value);
    return data->refused.English();
  });
  return *this;
}

Flag Flag::Values(int at_least, int at_most) {
  data_->option->expected(at_least, at_most);
  return *this;
}

Flag Flag::OneValueEach() {
  data_->option->allow_extra_args(false);
  return *this;
}

Flag Flag::Repeatable() {
  data_->option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

bool Flag::given() const { return data_ != nullptr && data_->option->count() > 0; }

Flags::Flags(Message summary, std::string_view program)
    : app_(std::make_unique<CLI::App>()), summary_(std::move(summary)), program_(program) {
  app_->set_help_all_flag("--help-all");
  app_->allow_extras();
}

Flags::~Flags() = default;

Flag Flags::Keep(FlagData data) {
  data.group = group_;
  return Flag(flags_.emplace_back(std::make_unique<FlagData>(std::move(data))).get());
}

Flag Flags::Switch(std::string_view names, bool* value, Message help) {
  return Keep({.option = app_->add_flag(std::string(names), *value), .help = std::move(help)});
}

Flag Flags::Text(std::string_view names, std::string* value, Message help) {
  return Keep({.option = app_->add_option(std::string(names), *value),
               .value = "TEXT",
               .help = std::move(help)});
}

Flag Flags::Number(std::string_view names, int64_t* value, Message help) {
  return Keep({.option = app_->add_option(std::string(names), *value),
               .value = "NUMBER",
               .help = std::move(help)});
}

Flag Flags::Texts(std::string_view names, std::vector<std::string>* values, Message help) {
  return Keep({.option = app_->add_option(std::string(names), *values),
               .value = "TEXT",
               .help = std::move(help)});
}

void Flags::Group(Message title) { group_ = std::move(title); }

void Flags::Usage(std::string_view text) { usage_ = text; }

void Flags::Footer(Message text) { footer_ = std::move(text); }

std::string Flags::Help(bool all, int width) const {
  return HelpText({.summary = summary_,
                   .footer = footer_,
                   .program = program_,
                   .usage = usage_,
                   .flags = All()},
                  all, width);
}

std::vector<FlagInfo> Flags::All() const {
  std::vector<FlagInfo> all;
  for (const std::unique_ptr<FlagData>& flag : flags_) {
    const CLI::Option& option = *flag->option;
    FlagInfo& info = all.emplace_back();
    if (option.get_positional()) {
      info.place = option.get_name(true);
      for (char& c : info.place) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
    for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) {
      // The spelling with one dash that people know from the older tools.
      if (const std::string_view alias = ShortSpelling("--" + name); !alias.empty())
        info.names.emplace_back(alias);
      info.names.push_back("--" + name);
    }
    info.value = flag->value;
    info.help = flag->help;
    info.group = flag->group;
    info.shown_default = option.get_default_str();
    info.choices = flag->choices;
    info.required = option.get_required();
    info.common = flag->common;
    for (const std::string_view path : {"FILE", "FOLDER", "PATH"}) {
      info.takes_path = info.takes_path || flag->value.find(path) != std::string::npos;
    }
    info.optional_value = option.get_items_expected_max() > 0 && option.get_expected_min() == 0;
    info.repeated = option.get_items_expected_max() > 1 ||
                    option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  }
  return all;
}

std::vector<std::string> Flags::Names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool Flags::TakesValue(std::string_view name) const {
  const CLI::Option* option = std::as_const(*app_).get_option_no_throw(std::string(name));
  return option != nullptr && option->get_items_expected_max() > 0;
}

bool Flags::IsGiven(std::string_view name) const {
  const CLI::Option* option = std::as_const(*app_).get_option_no_throw(std::string(name));
  return option != nullptr && option->count() > 0;
}

bool Flags::IsGivenByName(std::string_view name) const {
  return std::ranges::any_of(flags_, [&](const std::unique_ptr<FlagData>& flag) {
    return flag->by_name && flag->option->check_name(std::string(name));
  });
}

void Flags::KeepNames(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(0, word.find('='));
    for (const std::unique_ptr<FlagData>& flag : flags_)
      flag->by_name |= flag->option->check_name(name);
  }
}

std::vector<std::string> Flags::Words(std::span<const std::string_view> without) const {
  std::vector<std::string> words;
  for (const std::unique_ptr<FlagData>& flag : flags_) {
    const CLI::Option& option = *flag->option;
    const std::string name = option.get_lnames().empty() ? "-" + option.get_snames().front()
                                                         : "--" + option.get_lnames().front();
    if (option.count() == 0 || std::ranges::find(without, name) != without.end()) continue;
    const bool has_value = option.get_items_expected_max() > 0;
    for (const std::string& value : option.results())
      words.push_back(has_value && !value.empty() ? fmt::format("{}={}", name, value) : name);
  }
  return words;
}

Flags::Parsed Flags::Parse(const std::vector<std::string>& words) {
  Parsed parsed;
  KeepNames(words);
  try {
    // The library takes the words from the end.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    parsed.extra = app_->remaining();
  } catch (const CLI::CallForAllHelp&) {
    parsed.help_all = true;
  } catch (const CLI::CallForHelp&) {
    parsed.help = true;
  } catch (const CLI::ParseError& error) {
    parsed.error = std::string(error.what());
    parsed.missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    parsed.extra = app_->remaining();
    const auto [name, complaint] = NameAndComplaint(error.what());
    for (const std::unique_ptr<FlagData>& flag : flags_) {
      if (name.empty() || flag->option->get_name() != name) continue;
      parsed.error = "{}: {}"_t(WithShortSpelling(name), InOurWords(*flag, complaint));
      const std::vector<std::string_view> choices(flag->choices.begin(), flag->choices.end());
      const std::string word = complaint.substr(0, complaint.find(' '));
      parsed.nearest = NearestSpelling(word, choices);
    }
  }
  return parsed;
}

bool Flags::IsMissing(const FlagData& flag) {
  return flag.option->get_required() && flag.option->count() == 0;
}

Message Flags::FirstMissing() const {
  const std::vector<FlagInfo> all = All();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!IsMissing(*flags_[i])) continue;
    const FlagInfo& info = all[i];
    std::string name = info.place.empty() ? info.names.front() : info.place;
    if (!info.place.empty() && !info.names.empty())
      name += fmt::format(" ({})", info.names.front());
    if (info.place.empty() && info.names.size() > 1)
      name += fmt::format(" ({})", info.names.back());
    return "{} is required: {}"_t(name, info.help);
  }
  return {};
}

std::string Flags::Completed(const std::vector<std::string>& words,
                             const std::vector<std::string>& extra) const {
  const std::vector<FlagInfo> all = All();
  // Flags that can take a word: the missing ones; of a verb that requires none, those of paths.
  std::vector<size_t> open;
  bool by_place = false, requires_any = false;
  for (size_t i = 0; i < all.size(); ++i) {
    by_place = by_place || !all[i].place.empty();
    requires_any = requires_any || all[i].required;
    if (IsMissing(*flags_[i])) open.push_back(i);
  }
  for (size_t i = 0; i < all.size() && open.size() < extra.size(); ++i) {
    if (flags_[i]->usual && flags_[i]->option->count() == 0) open.push_back(i);
  }
  for (size_t i = 0; i < all.size() && !by_place && !requires_any; ++i) {
    if (all[i].takes_path && flags_[i]->option->count() == 0) open.push_back(i);
  }
  std::string line = program_;
  size_t taken = 0, next = 0;  // words of `extra`; of `open`
  bool named = false;          // the flag of the word before takes several, and has its name
  for (const std::string& word : words) {
    const bool is_extra = taken < extra.size() && word == extra[taken];
    if (is_extra && !named) {
      if (next == open.size()) return "";
      const FlagInfo& info = all[open[next]];
      if (!info.names.empty()) line += " " + info.names.front();
      named = info.repeated;
      if (!named) ++next;
    }
    taken += is_extra;
    line += " " + word;
  }
  next += named;
  if (taken < extra.size()) return "";
  for (; next < open.size() && requires_any; ++next) {
    const FlagInfo& info = all[open[next]];
    line += " " + (!info.place.empty() ? info.place
                                       : fmt::format("{} {}", info.names.front(), info.value));
  }
  return line;
}

void AddExitCode(Flags& flags, bool* value) {
  flags.Switch("--exit-code", value, "exit with 1 unless everything is equal or within rounding"_t)
      .Common();
}

}  // namespace msprobe::cli
