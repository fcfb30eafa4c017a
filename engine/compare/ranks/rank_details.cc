#include "engine/compare/ranks/rank_details.h"

#include <fmt/format.h>

#include <unordered_map>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/judge.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMostWrong = 100;

std::string_view Suffix(Direction direction) {
  return direction == Direction::kForward         ? ".forward"
         : direction == Direction::kBackward      ? ".backward"
         : direction == Direction::kParameterGrad ? ".parameters_grad"
                                                  : "";
}

WrongCall Describe(const Comparison& c, int32_t p) {
  const CallSummary call = SummarizeCall(c, p);
  const int32_t row = call.out.worst_row >= 0  ? call.out.worst_row
                      : call.in.worst_row >= 0 ? call.in.worst_row
                                               : call.arguments.worst_row;
  WrongCall wrong{.name = std::string(EntryName(c, p)), .call_class = c.classes[p]};
  if (!c.pairs[p].matched()) {
    wrong.what = c.pairs[p].target >= 0 ? "only in the target"_t : "only in the golden"_t;
  } else if (row >= 0) {
    wrong.what = DescribeRow(c, row);
  }
  wrong.source_line = SourceLineOf(c, p);
  return wrong;
}

}  // namespace

RankDetails DetailsOf(const Comparison& c) {
  RankDetails details;
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < c.pairs.size(); ++i) {
    const auto p = static_cast<int32_t>(i);
    const Record& record = RecordOf(c, p);
    std::string name = fmt::format("{}{}", record.api, Suffix(record.direction));
    const auto [at, added] = places.try_emplace(std::move(name), details.apis.size());
    if (added) details.apis.push_back({.name = at->first});
    ApiTally& api = details.apis[at->second];
    const bool alone = !c.pairs[i].matched();
    if (c.classes[i] == CallClass::kIntroduced || c.classes[i] == CallClass::kInherited || alone) {
      ++api.differ;
      const bool list = details.wrong.size() < kMostWrong;
      if (!list && !api.first.empty()) continue;
      WrongCall wrong = Describe(c, p);
      if (api.first.empty()) {
        api.first = "{}: {} ({})"_t(wrong.name, wrong.what,
                                    alone ? "no partner"_t : WordOf(wrong.call_class));
      }
      if (list) details.wrong.push_back(std::move(wrong));
    } else if (c.classes[i] == CallClass::kUnknown) {
      ++api.unknown;
    } else {
      ++api.agree;
    }
  }
  return details;
}

}  // namespace msprobe::compare
