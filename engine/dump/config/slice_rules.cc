#include "engine/dump/config/slice_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kSliceKeys[] = {"dim", "size", "begin", "end"};
constexpr int64_t kLargest = 1'000'000'000'000;

// An end of a slice of `extent` elements, as Python understands it.
int64_t Resolve(int64_t index, int64_t extent) {
  return std::clamp<int64_t>(index < 0 ? index + extent : index, 0, extent);
}

Status ReadSlice(const ConfigPlace& place, const formats::JsonValue& value, SliceRule* rule) {
  if (value.kind != formats::JsonValue::Kind::kObject)
    return WrongType(place, "objects such as {{\"dim\": 0, \"begin\": 0, \"end\": 16}}"_t, value);
  for (const formats::JsonMember& member : value.members) {
    const ConfigPlace at{place.path, member.line, place.key};
    MSPROBE_RETURN_IF_ERROR(Choose(at, member.key, kSliceKeys));
    if (member.value.kind == formats::JsonValue::Kind::kNull) continue;
    const bool may_be_negative = member.key == "begin" || member.key == "end";
    int64_t number = 0;
    MSPROBE_RETURN_IF_ERROR(ReadInteger({place.path, member.line, member.key}, member.value,
                                        may_be_negative ? -kLargest : 0, kLargest, &number));
    if (member.key == "dim") {
      rule->dim = number;
    } else if (member.key == "size") {
      rule->size = number;
    } else if (member.key == "begin") {
      rule->begin = number;
    } else {
      rule->end = number;
    }
  }
  return Status::Ok();
}

}  // namespace

Status ReadSlices(const ConfigPlace& place, const formats::JsonValue& value,
                  std::vector<SliceRule>* rules) {
  if (value.kind != formats::JsonValue::Kind::kArray)
    return WrongType(place, "a list such as [{{\"dim\": 0, \"begin\": 0, \"end\": 16}}]"_t, value);
  for (const formats::JsonValue& item : value.items)
    MSPROBE_RETURN_IF_ERROR(
        ReadSlice({place.path, item.line, place.key}, item, &rules->emplace_back()));
  return Status::Ok();
}

const SliceRule* Slicer::RuleFor(int64_t dim, int64_t extent) const {
  const auto fits = [&](const SliceRule& rule) {
    return rule.dim == dim && rule.size.value_or(extent) == extent;
  };
  if (request_ && fits(*request_)) return &*request_;
  const auto last = std::find_if(rules_.rbegin(), rules_.rend(), fits);
  return last == rules_.rend() ? nullptr : &*last;
}

void Slicer::Apply(TensorView* view, int64_t* shape, int64_t* strides) const {
  const int ndim = view->ndim;
  int64_t next = 1, offset = 0;
  for (int d = ndim - 1; d >= 0; --d) {
    const int64_t extent = view->shape[d];
    strides[d] = view->strides != nullptr ? view->strides[d] : next;
    next *= std::max<int64_t>(extent, 1);
    shape[d] = extent;
    const SliceRule* rule = RuleFor(d, extent);
    if (rule == nullptr) continue;
    const int64_t begin = Resolve(rule->begin, extent);
    const int64_t end = Resolve(rule->end.value_or(extent), extent);
    shape[d] = std::max<int64_t>(end - begin, 0);
    if (shape[d] > 0) offset += begin * strides[d];
  }
  if (view->data != nullptr) {
    view->data = static_cast<const char*>(view->data) +
                 offset * static_cast<int64_t>(DTypeSize(view->dtype));
  }
  view->shape = shape;
  view->strides = strides;
}

std::optional<SliceRule> SliceOfRequest(const TokenCounts& counts, std::string_view request) {
  int64_t total = 0, begin = 0, tokens = 0;
  for (const auto& [name, count] : counts) {
    if (name == request) {
      begin = total;
      tokens = count;
    }
    total += count;
  }
  if (tokens == 0) return std::nullopt;
  return SliceRule{.dim = 0, .size = total, .begin = begin, .end = begin + tokens};
}

}  // namespace msprobe::dump
