#include "engine/dump/write/late_stats.h"

#include <charconv>
#include <vector>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

// Control characters stand in no JSON text: strings have them escaped.
constexpr char kBegin = '\x01', kEnd = '\x02';

struct Mark {
  bool counts;
  TensorFields fields;
};

// kBegin, 's' or 'c', kind, 'u' for uint64, 'f' for narrow floats or '-', ticket, kEnd.
void AppendMark(std::string* out, char what, const TensorFields& fields) {
  *out += kBegin;
  *out += what;
  *out += static_cast<char>('0' + static_cast<int>(fields.kind));
  *out += fields.is_unsigned64 ? 'u' : fields.is_narrow_float ? 'f' : '-';
  AppendInteger(out, fields.later);
  *out += kEnd;
}

Mark ReadMark(std::string_view text) {  // without kBegin and kEnd
  Mark mark{.counts = text[0] == 'c', .fields = {}};
  mark.fields.kind = static_cast<DTypeKind>(text[1] - '0');
  mark.fields.is_unsigned64 = text[2] == 'u';
  mark.fields.is_narrow_float = text[2] == 'f';
  std::from_chars(text.data() + 3, text.data() + text.size(), mark.fields.later);
  return mark;
}

}  // namespace

void AppendLateStats(std::string* out, const TensorFields& fields) { AppendMark(out, 's', fields); }
void AppendLateCounts(std::string* out, const TensorFields& fields) {
  AppendMark(out, 'c', fields);
}

bool HasMarks(std::string_view entry) { return entry.find(kBegin) != std::string_view::npos; }

bool LateEntries::Fill(std::string_view entry, bool give_up, std::string* out) {
  out->clear();
  std::vector<int64_t> used;
  while (true) {
    const size_t begin = entry.find(kBegin);
    *out += entry.substr(0, begin);
    if (begin == std::string_view::npos) break;
    const size_t end = entry.find(kEnd, begin);
    Mark mark = ReadMark(entry.substr(begin + 1, end - begin - 1));
    const auto known = known_.find(mark.fields.later);
    if (known == known_.end() && !give_up) return false;
    if (known != known_.end()) mark.fields.stats = &known->second;
    if (!mark.counts) {
      AppendStatistics(out, mark.fields);
    } else if (mark.fields.stats != nullptr) {
      AppendCounts(out, mark.fields);
      used.push_back(mark.fields.later);
    }
    entry.remove_prefix(end + 1);
  }
  for (const int64_t ticket : used) known_.erase(ticket);
  return true;
}

}  // namespace msprobe::dump
