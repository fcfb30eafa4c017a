#include "engine/dump/config/config_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr int64_t kLargestNumber = 1'000'000;

Status WrongNumber(const ConfigPlace& place, Message found) {
  return place.Error()
      .Expected("numbers from 0 to 1000000 such as 7, \"7\" or \"3-6\""_t)
      .Found(std::move(found));
}

void SortUnique(std::vector<int64_t>* numbers) {
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

Status AppendRange(const ConfigPlace& place, std::string_view text, std::vector<int64_t>* out) {
  return AppendNumberRange(text, out) ? Status::Ok() : WrongNumber(place, Excerpt(text));
}

}  // namespace

bool AppendNumberRange(std::string_view text, std::vector<int64_t>* out) {
  const size_t dash = text.find('-');
  const int64_t first = NumberAfter(text.substr(0, dash), "");
  const int64_t last =
      dash == std::string_view::npos ? first : NumberAfter(text.substr(dash + 1), "");
  if (first < 0 || last < first || last > kLargestNumber) return false;
  for (int64_t i = first; i <= last; ++i) out->push_back(i);
  if (out->size() > 4 * kLargestNumber) SortUnique(out);  // many overlapping ranges: stay small
  return true;
}

bool Contains(Names names, std::string_view word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string Quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

Message OneOf(Names names) {
  if (names.empty()) return {};
  std::string before;
  for (const std::string_view name : names.first(names.size() - 1))
    before += (before.empty() ? "" : ", ") + Quoted(name);
  if (before.empty()) return Quoted(names.back());
  return "{} or {}"_t(before, Quoted(names.back()));
}

Status ConfigPlace::Error() const {
  if (path.empty()) return InvalidArgument("keyword argument {}"_t(key));
  return InvalidConfig(path, line).Says(Quoted(key));
}

std::string ConfigPlace::Prefix() const {
  return path.empty() ? "" : fmt::format("{}:{}: ", path, line);
}

Status WrongType(const ConfigPlace& place, Message expected, const formats::JsonValue& found) {
  return place.Error().Expected(std::move(expected)).Found(found.Describe());
}

bool Contains(std::span<const OtherWord> words, std::string_view word) {
  return std::any_of(words.begin(), words.end(),
                     [&](const OtherWord& w) { return w.word == word; });
}

Status Choose(const ConfigPlace& place, std::string_view word, Names allowed,
              std::span<const OtherWord> other) {
  if (Contains(allowed, word)) return Status::Ok();
  for (const OtherWord& known : other) {
    if (known.word != word) continue;
    Status error = place.Error()
                       .Expected(OneOf(allowed))
                       .Found("{}, which this version does not support"_t(Quoted(word)));
    if (known.instead.empty()) return error;
    return std::move(error).Hint(known.instead);
  }
  Status error = place.Error().Expected(OneOf(allowed)).Found(Excerpt(word));
  if (const std::string_view near = NearestSpelling(word, allowed); !near.empty()) {
    return std::move(error).Hint("did you mean {}?"_t(Quoted(near)));
  }
  return error;
}

Status ReadWord(const ConfigPlace& place, const formats::JsonValue& value, Names allowed,
                std::string* out, std::span<const OtherWord> other) {
  if (value.kind != formats::JsonValue::Kind::kString)
    return WrongType(place, OneOf(allowed), value);
  if (!value.text.empty()) MSPROBE_RETURN_IF_ERROR(Choose(place, value.text, allowed, other));
  *out = value.text;
  return Status::Ok();
}

Status ReadBool(const ConfigPlace& place, const formats::JsonValue& value, bool* out) {
  if (value.kind != formats::JsonValue::Kind::kBool)
    return WrongType(place, "true or false"_t, value);
  *out = value.boolean;
  return Status::Ok();
}

Status ReadInteger(const ConfigPlace& place, const formats::JsonValue& value, int64_t smallest,
                   int64_t largest, int64_t* out) {
  const char* end = value.text.data() + value.text.size();
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.kind != formats::JsonValue::Kind::kNumber || error != std::errc() || stop != end ||
      number < smallest || number > largest) {
    return WrongType(place, "a whole number from {} to {}"_t(smallest, largest), value);
  }
  *out = number;
  return Status::Ok();
}

Status ReadNumbers(const ConfigPlace& place, const formats::JsonValue& list,
                   std::vector<int64_t>* out) {
  if (list.kind != formats::JsonValue::Kind::kArray)
    return WrongType(place, "a list such as [0, \"3-6\"]"_t, list);
  for (const formats::JsonValue& item : list.items) {
    const ConfigPlace at{place.path, item.line, place.key};
    if (item.kind != formats::JsonValue::Kind::kNumber &&
        item.kind != formats::JsonValue::Kind::kString) {
      return WrongNumber(at, item.Describe());
    }
    MSPROBE_RETURN_IF_ERROR(AppendRange(at, item.text, out));
  }
  SortUnique(out);
  return Status::Ok();
}

Status ReadNumbers(const ConfigPlace& place, std::span<const std::string> list,
                   std::vector<int64_t>* out) {
  for (const std::string& item : list) MSPROBE_RETURN_IF_ERROR(AppendRange(place, item, out));
  SortUnique(out);
  return Status::Ok();
}

Status ReadStrings(const ConfigPlace& place, const formats::JsonValue& list,
                   std::vector<std::string>* out) {
  if (list.kind != formats::JsonValue::Kind::kArray)
    return WrongType(place, "a list of strings"_t, list);
  for (const formats::JsonValue& item : list.items) {
    if (item.kind != formats::JsonValue::Kind::kString || item.text.empty()) {
      return WrongType({place.path, item.line, place.key}, "a string that is not empty"_t, item);
    }
    out->push_back(item.text);
  }
  return Status::Ok();
}

}  // namespace msprobe::dump
