#include "engine/dump/config/pkl_scope.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool Fits(std::string_view name, std::string_view beginning) {
  if (!name.starts_with(beginning)) return false;
  return beginning.empty() || name.size() == beginning.size() || !IsDigit(beginning.back()) ||
         !IsDigit(name[beginning.size()]);
}

}  // namespace

int64_t NumberInFront(std::string_view name) {
  return NumberAfter(name.substr(0, name.find('_')), "");
}

PklScope::PklScope(const PklStyle& style) : names_(style.scope) {
  const bool is_range =
      style.mode == PklMode::kRange || (style.mode == PklMode::kStack && style.scope.size() == 2);
  if (is_range) {
    kind_ = Kind::kRange;
    if (style.dialect == PklDialect::kNumbered) {
      kind_ = Kind::kNumbers;
      first_ = NumberInFront(names_[0]);
      last_ = NumberInFront(names_[1]);
    }
  } else if (style.mode == PklMode::kList ||
             (style.mode == PklMode::kStack && !style.scope.empty())) {
    kind_ = Kind::kList;
  } else if (style.mode == PklMode::kApiList) {
    kind_ = Kind::kParts;
    names_.clear();
    for (const std::string& part : style.api_list) names_.push_back(Lower(part));
  }
}

bool PklScope::Wants(std::string_view name) {
  switch (kind_) {
    case Kind::kAll:
      return true;
    case Kind::kList:
      return std::any_of(names_.begin(), names_.end(),
                         [&](const std::string& each) { return Fits(name, each); });
    case Kind::kParts: {
      const std::string lower = Lower(name);
      return std::any_of(names_.begin(), names_.end(), [&](const std::string& part) {
        return lower.find(part) != std::string::npos;
      });
    }
    case Kind::kNumbers: {
      const int64_t number = NumberInFront(name);
      return first_ <= number && number <= last_;
    }
    case Kind::kRange:
      if (closed_) return false;
      open_ = open_ || Fits(name, names_[0]);
      closed_ = open_ && Fits(name, names_[1]);
      return open_;
  }
  return true;
}

}  // namespace msprobe::dump
