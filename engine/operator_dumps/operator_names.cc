#include "engine/operator_dumps/operator_names.h"

#include <algorithm>
#include <vector>

#include "engine/base/text.h"

namespace msprobe::operator_dumps {
namespace {

constexpr size_t kTimeDigits = 10;  // seconds since 1970 have as many

bool IsNumber(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsTime(std::string_view text) { return text.size() >= kTimeDigits && IsNumber(text); }

std::string Joined(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) {
    if (!text.empty()) text += '.';
    text += part;
  }
  return text;
}

}  // namespace

OperatorName::OperatorName(std::string_view relative_path) : path(relative_path) {
  std::string folders;
  std::string_view file = relative_path;
  for (size_t slash = file.find('/'); slash != std::string_view::npos; slash = file.find('/')) {
    const std::string_view folder = file.substr(0, slash);
    if (IsTime(folder))
      time = folder;
    else
      folders += std::string(folder) + "/";
    file.remove_prefix(slash + 1);
  }
  std::vector<std::string_view> parts = Split(file, '.');
  std::vector<std::string_view> value;  // "output", "0"
  for (const std::string_view extension : {"npy", "pt", "bin", "safetensors"}) {
    if (parts.size() > 1 && parts.back() == extension) {
      parts.pop_back();
      break;
    }
  }
  if (parts.size() > 2 && IsNumber(parts.back()) &&
      (parts[parts.size() - 2] == "input" || parts[parts.size() - 2] == "output")) {
    value.assign(parts.end() - 2, parts.end());
    parts.resize(parts.size() - 2);
  }
  if (parts.size() > 1 && IsTime(parts.back())) {
    time = parts.back();
    parts.pop_back();
    for (int i = 0; i < 2 && parts.size() > 1 && IsNumber(parts.back()); ++i) parts.pop_back();
  }
  op = Joined(parts);
  key = folders + op;
  if (!value.empty()) key += "." + Joined(value);
}

bool OperatorName::Before(const OperatorName& a, const OperatorName& b) {
  if (a.time.size() != b.time.size()) return a.time.size() < b.time.size();
  if (a.time != b.time) return a.time < b.time;
  return NaturalLess(a.path, b.path);
}

}  // namespace msprobe::operator_dumps
