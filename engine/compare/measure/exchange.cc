#include "engine/compare/measure/exchange.h"

#include <algorithm>
#include <initializer_list>

#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

bool IsAny(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

// Functional collectives write into no argument.
constexpr std::string_view kFunctional = "functional_";

bool IsFunctional(std::string_view api) {
  return api.substr(api.rfind('.') + 1).starts_with(kFunctional);
}

// "all_gather_base" for "Distributed._all_gather_base".
std::string_view KindOf(std::string_view api) {
  std::string_view kind = api.substr(api.rfind('.') + 1);
  while (kind.starts_with('_')) kind.remove_prefix(1);
  return kind.substr(IsFunctional(api) ? kFunctional.size() : 0);
}

bool Sends(std::string_view kind) { return IsAny(kind, {"send", "isend"}); }
bool Receives(std::string_view kind) { return IsAny(kind, {"recv", "irecv"}); }

// Whether the first argument is the output buffer.
bool ResultComesFirst(std::string_view kind) {
  return Receives(kind) || kind == "scatter" || kind.starts_with("all_gather") ||
         kind.starts_with("reduce_scatter") || kind.starts_with("all_to_all");
}

// The position of the argument that names the one process that gives to all or gets from all; 0:
// the call has no such argument.
int RootArgument(std::string_view kind) {
  if (IsAny(kind, {"scatter", "gather"})) return 2;
  return IsAny(kind, {"broadcast", "reduce"}) || Sends(kind) || Receives(kind) ? 1 : 0;
}

// Process `place` of the processes "[4, 5]"; -1: there is none.
int32_t ProcessAt(std::string_view ranks, int64_t place) {
  while (!ranks.empty() && (ranks.front() == '[' || ranks.front() == '(')) ranks.remove_prefix(1);
  for (int64_t i = 0; !ranks.empty() && place >= 0; ++i) {
    while (ranks.starts_with(' ')) ranks.remove_prefix(1);
    const size_t end = std::min(ranks.find_first_of(",])"), ranks.size());
    if (i == place) return static_cast<int32_t>(NumberAfter(ranks.substr(0, end), ""));
    ranks.remove_prefix(std::min(end + 1, ranks.size()));
  }
  return -1;
}

// Reads from the arguments who takes part, for records that do not say it.
void ReadArguments(const Dump& dump, const Record& record, Exchange* e) {
  e->rank =
      static_cast<int32_t>(NumberAfter(dump.folder.substr(dump.folder.rfind('/') + 1), "rank"));
  const int root = RootArgument(e->kind);
  int64_t place = -1;  // of the peer among the processes of the group
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kInput && leaf.slot != Slot::kKwarg) continue;
    const std::string_view suffix = LeafSuffix(leaf, record);
    if (leaf.type == "torch.ProcessGroup") e->ranks = leaf.value;
    const bool names_place = IsAny(
        suffix, {".input.group_src", ".input.group_dst", ".input.src_group", ".input.dst_group"});
    if (names_place && leaf.kind == LeafKind::kScalar) place = NumberAfter(leaf.value, "");
    const bool names_root = IsAny(suffix, {".input.src", ".input.dst"}) ||
                            (root > 0 && NumberAfter(suffix, ".input.") == root);
    if (names_root && leaf.kind == LeafKind::kScalar) {
      e->peer = static_cast<int32_t>(NumberAfter(leaf.value, ""));
    }
  }
  if (e->peer < 0 && place >= 0)
    e->peer = e->ranks.empty() ? static_cast<int32_t>(place) : ProcessAt(e->ranks, place);
  // The default of these arguments is process 0.
  if (root > 0 && e->peer < 0 && !Receives(e->kind)) e->peer = 0;
  if (root == 0 || e->rank < 0) return;
  const bool is_root = e->rank == e->peer;
  const bool root_gives = IsAny(e->kind, {"broadcast", "scatter"});
  const bool gives = Sends(e->kind) || (!Receives(e->kind) && is_root == root_gives);
  e->role = gives ? ProcessGroup::Role::kSource : ProcessGroup::Role::kReceiver;
}

void ReadBatch(const Dump& dump, const Record& record, Exchange* e) {
  constexpr std::string_view kOperation = ".op", kPeer = ".peer";
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kInput && leaf.slot != Slot::kKwarg) continue;
    const std::string_view suffix = LeafSuffix(leaf, record);
    if (suffix.ends_with(kOperation)) {
      e->parts.push_back(
          {suffix.substr(0, suffix.size() - kOperation.size()), leaf.value.ends_with("send")});
    } else if (suffix.ends_with(kPeer) && !e->parts.empty() &&
               suffix.substr(0, suffix.size() - kPeer.size()) == e->parts.back().stem) {
      e->parts.back().peer = static_cast<int32_t>(NumberAfter(leaf.value, ""));
    }
  }
}

}  // namespace

std::optional<Exchange> ExchangeOf(const Dump& dump, const Record& record) {
  if (record.direction != Direction::kForward || record.is_module ||
      (record.group < 0 && record.api.view().find("Distributed.") == std::string_view::npos)) {
    return std::nullopt;
  }
  Exchange e;
  e.kind = KindOf(record.api);
  if (e.kind.find("barrier") != e.kind.npos || e.kind.find("object") != e.kind.npos) {
    return std::nullopt;
  }
  if (record.group >= 0) {
    const ProcessGroup& group = dump.groups[record.group];
    e.ranks = group.ranks;
    e.role = group.role;
    e.peer = group.peer;
    e.rank =
        static_cast<int32_t>(NumberAfter(dump.folder.substr(dump.folder.rfind('/') + 1), "rank"));
  } else {
    ReadArguments(dump, record, &e);
  }
  if (e.kind == "batch_isend_irecv") ReadBatch(dump, record, &e);
  return e;
}

int32_t BatchPartOf(const Exchange& e, const Record& record, const Leaf& leaf) {
  const std::string_view suffix = LeafSuffix(leaf, record);
  const size_t dot = suffix.find('.', 1);
  for (size_t i = 0; i < e.parts.size() && dot != suffix.npos; ++i) {
    const std::string_view stem = e.parts[i].stem;
    if (suffix.substr(dot) == stem.substr(std::min(stem.size(), stem.find('.', 1)))) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

ExchangePart PartOf(const Exchange& e, const Record& record, const Leaf& leaf) {
  if (leaf.kind != LeafKind::kTensor) return ExchangePart::kOther;
  if (!e.parts.empty()) {
    const int32_t part = BatchPartOf(e, record, leaf);
    if (part < 0) return ExchangePart::kOther;
    if (leaf.slot == Slot::kOutput) {
      return e.parts[part].sends ? ExchangePart::kOther : ExchangePart::kReceived;
    }
    return e.parts[part].sends ? ExchangePart::kGiven : ExchangePart::kBuffer;
  }
  if (leaf.slot == Slot::kOutput) {
    return Sends(e.kind) ? ExchangePart::kOther : ExchangePart::kReceived;
  }
  if (IsFunctional(record.api)) return ExchangePart::kGiven;
  const std::string_view suffix = LeafSuffix(leaf, record);
  // ".input.0.3" -> "0", ".input.tensor_list.1" -> "tensor_list"
  const std::string_view argument =
      suffix.size() > 7 ? suffix.substr(7, suffix.find('.', 7) - 7) : std::string_view();
  if (e.kind == "broadcast" && e.role == ProcessGroup::Role::kReceiver)
    return ExchangePart::kBuffer;
  if (argument == "gather_list" || argument.starts_with("output")) return ExchangePart::kBuffer;
  if (e.kind == "gather" && argument == "1") return ExchangePart::kBuffer;
  if (!ResultComesFirst(e.kind)) return ExchangePart::kGiven;
  const std::string_view named = e.kind == "all_gather"                    ? "tensor_list"
                                 : Receives(e.kind) || e.kind == "scatter" ? "tensor"
                                                                           : "";
  return argument == "0" || (!named.empty() && argument == named) ? ExchangePart::kBuffer
                                                                  : ExchangePart::kGiven;
}

bool IsPointToPoint(const Exchange& e) {
  return Sends(e.kind) || Receives(e.kind) || !e.parts.empty();
}

}  // namespace msprobe::compare
