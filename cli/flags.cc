#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "cli/arguments.h"
#include "engine/model/names.h"

namespace msprobe::cli {
namespace {

// Shows the one-dash spelling people know beside the long one.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(34); }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, positional);
    const std::string_view alias = ShortSpelling(name);
    return alias.empty() ? name : fmt::format("{},{}", alias, name);
  }
};

template <typename Value>
CLI::Option* AddOption(CLI::App& app, std::string_view names, Value* value, std::string_view help) {
  return app.add_option(std::string(names), *value, std::string(help));
}

// "--target_path: At Most 1 required but received 2" in our words; other errors as they are.
std::string InOurWords(std::string error) {
  constexpr std::string_view kTooMany = ": At Most 1 required but received ";
  const size_t at = error.find(kTooMany);
  if (at == std::string::npos) return error;
  return fmt::format("{}: expected one value, found {}", error.substr(0, at),
                     error.substr(at + kTooMany.size()));
}

}  // namespace

Flag Flag::Required() {
  option_->required();
  return *this;
}

Flag Flag::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Flag Flag::TypeName(std::string_view text) {
  option_->type_name(std::string(text));
  return *this;
}

Flag Flag::OneOf(std::initializer_list<std::string_view> values) {
  option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return *this;
}

Flag Flag::Positive() {
  const auto check = [](std::string& text) {
    return NumberAfter(text, "") > 0 ? std::string()
                                     : "expected a number of 1 or more, found " + text;
  };
  option_->check(CLI::Validator(check, "POSITIVE"));
  return *this;
}

Flag Flag::Check(std::function<std::string(const std::string& value)> check) {
  option_->check(std::move(check));
  return *this;
}

Flag Flag::Values(int at_least, int at_most) {
  option_->expected(at_least, at_most);
  return *this;
}

Flag Flag::OneValueEach() {
  option_->allow_extra_args(false);
  return *this;
}

Flag Flag::Repeatable() {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

bool Flag::given() const { return option_ != nullptr && option_->count() > 0; }

Flags::Flags(std::string_view summary, std::string_view program)
    : app_(std::make_unique<CLI::App>(std::string(summary), std::string(program))) {
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->allow_extras();
}

Flags::~Flags() = default;

Flag Flags::Switch(std::string_view names, bool* value, std::string_view help) {
  return Flag(app_->add_flag(std::string(names), *value, std::string(help)));
}

Flag Flags::Text(std::string_view names, std::string* value, std::string_view help) {
  return Flag(AddOption(*app_, names, value, help));
}

Flag Flags::Number(std::string_view names, int64_t* value, std::string_view help) {
  return Flag(AddOption(*app_, names, value, help));
}

Flag Flags::Texts(std::string_view names, std::vector<std::string>* values, std::string_view help) {
  return Flag(AddOption(*app_, names, values, help));
}

void Flags::Footer(std::string_view text) { app_->footer(std::string(text)); }

std::string Flags::Help() const { return app_->help(); }

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

Flags::Parsed Flags::Parse(const std::vector<std::string>& words) {
  Parsed parsed;
  try {
    // The library takes the words from the end.
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    parsed.extra = app_->remaining();
  } catch (const CLI::CallForHelp&) {
    parsed.help = true;
  } catch (const CLI::ParseError& error) {
    parsed.error = InOurWords(error.what());
  }
  return parsed;
}

}  // namespace msprobe::cli
