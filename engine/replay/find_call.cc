#include "engine/replay/find_call.h"

#include <fmt/format.h>

#include "engine/dump/read/source_line.h"
#include "engine/model/named_calls.h"

namespace msprobe::replay {
namespace {

constexpr size_t kCandidates = 8;

std::string LineOf(const Dump& dump, const Record& record) {
  return record.stack < 0 ? "" : dump::UserSourceLine(dump.stacks[record.stack]);
}

// Whether the one result of the call is one number.
bool MakesOneNumber(const Dump& dump, const Record& record) {
  bool one = false;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kOutput || leaf.kind != LeafKind::kTensor) continue;
    if (leaf.shape.elements() != 1) return false;
    one = true;
  }
  return one;
}

// The calls that ran inside of the modules with this text in their names.
Message CallsInside(const Dump& dump, const std::vector<RecordedCall>& calls,
                    std::string_view text) {
  std::string inside;
  size_t count = 0;
  for (const RecordedCall& call : calls) {
    const Record& record = dump.records[call.forward];
    const std::string_view around = record.parent.empty() ? record.module : record.parent;
    if (!NamesCall(text, {.name = around, .line = ""}) || !call.skip.empty()) continue;
    if (count++ < kCandidates) inside += (inside.empty() ? "" : ", ") + call.name;
  }
  if (count == 0) return "modules are not executed, and no call inside of it was recorded"_t;
  if (count > kCandidates) inside += ", ...";
  return "modules are not executed, the calls inside of it are: {}"_t(inside);
}

// The record that the text names, with the shortest name ("a.mlp" goes before "a.mlp.down"); null:
// none.
const Record* OtherRecord(const Dump& dump, std::string_view text) {
  const Record* other = nullptr;
  for (const Record& record : dump.records) {
    if (!NamesCall(text, {.name = record.name.view(), .line = ""})) continue;
    if (other == nullptr || record.api.size() < other->api.size()) other = &record;
  }
  return other;
}

}  // namespace

Result<size_t> FindCall(const Dump& dump, const std::vector<RecordedCall>& calls,
                        std::string_view text, std::string_view path) {
  std::vector<NamedCall> named;
  named.reserve(calls.size());
  for (const RecordedCall& call : calls) {
    const Record& record = dump.records[call.forward];
    named.push_back({.name = call.name,
                     .line = LineOf(dump, record),
                     .may_be_loss = MakesOneNumber(dump, record)});
  }
  if (!CallsNamed(named, text).empty()) return OneCallNamed(named, text, path);
  const Record* other = OtherRecord(dump, text);
  Status status =
      InvalidArgument().At(path).Expected("a call of an API, such as Functional.linear.3"_t);
  if (other != nullptr && !other->is_module) {
    return std::move(status)
        .Found(other->name.view())
        .Hint("steps of optimizers and passes without a call are not executed"_t);
  }
  if (calls.empty()) {
    return std::move(status)
        .Found(other == nullptr ? "none"_t : "the module {}"_t(other->name.view()))
        .Hint(
            "modules are not executed, and this dump has nothing else: record with level L1 or "
            "mix"_t);
  }
  if (other == nullptr) return OneCallNamed(named, text, path);
  return std::move(status)
      .Found("the module {}"_t(other->name.view()))
      .Hint(CallsInside(dump, calls, text));
}

}  // namespace msprobe::replay
