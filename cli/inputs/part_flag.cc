#include "cli/inputs/part_flag.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "cli/command_line/verb.h"

namespace msprobe::cli {
namespace {

bool ReadNumber(std::string_view text, int64_t* number) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

}  // namespace

void PartFlag::Add(Flags& flags) {
  flags
      .Text("--part", &text_,
            "compare only the I-th of N blocks of the ranks, and leave a file beside the tables; "
            "when all parts are there, merge_result reports on all ranks"_t)
      .TypeName("I/N");
}

Status PartFlag::Parse() {
  if (!given()) return Status::Ok();
  const size_t slash = text_.find('/');
  const std::string_view text = text_;
  if (slash != std::string::npos && ReadNumber(text.substr(0, slash), &index_) &&
      ReadNumber(text.substr(slash + 1), &count_) && index_ >= 1 && index_ <= count_ &&
      count_ <= compare::kMostParts)
    return Status::Ok();
  return InvalidArgument(std::string("--part"))
      .Expected("I/N with I from 1 to N, such as 3/8"_t)
      .Found(Excerpt(text_))
      .Hint("for i in $(seq 8); do msprobe compare TARGET GOLDEN --part $i/8; done"_t);
}

Result<compare::ComparedPart> PartFlag::Take(const std::string& target, const std::string& golden,
                                             PairedDumps* paired) const {
  if (std::ranges::any_of(paired->pairs, std::mem_fn(&DumpPair::is_joined))) {
    return Unsupported("--part does not apply to ranks that are joined"_t)
        .Hint("leave --part out: runs in different layouts are compared by one process"_t);
  }
  compare::ComparedPart part{.index = index_, .count = count_, .target = target, .golden = golden};
  part.left_out = paired->left_out;
  std::set<int> ranks;
  for (const DumpPair& pair : paired->pairs) {
    ranks.insert(pair.rank);
    compare::ComparedPair& place = part.pairs.emplace_back();
    place.step = pair.step, place.rank = pair.rank;
    place.target = pair.target, place.golden = pair.golden;
  }
  std::erase_if(paired->pairs, [&](const DumpPair& pair) {
    const auto place = static_cast<size_t>(std::distance(ranks.begin(), ranks.find(pair.rank)));
    return !compare::IsInPart(place, ranks.size(), index_, count_);
  });
  return part;
}

Result<int> PartFlag::EndEmpty(const compare::ComparedPart& part, const std::string& folder,
                               Console& out) {
  MSPROBE_RETURN_IF_ERROR(compare::WritePart(part, folder));
  out.Tell("part {} of {} has no rank"_t(part.index, part.count));
  return kExitOk;
}

}  // namespace msprobe::cli
