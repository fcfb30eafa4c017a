#include "engine/results/comparison_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/divergence.h"
#include "engine/compare/explain/first_bits.h"
#include "engine/compare/judge/judge.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"

namespace msprobe::results {
namespace {

using compare::Match;
using compare::Measure;
using compare::Mode;
using compare::Reason;
using compare::RowVerdict;

bool Given(std::string_view text) { return !text.empty() && text != "N/A"; }

// Cells spell what is not a number in several ways.
double NumberOfCell(std::string_view text) {
  const std::string lower = Lower(text);
  if (lower == "inf" || lower == "infinity") return std::numeric_limits<double>::infinity();
  if (lower == "-inf" || lower == "-infinity") return -std::numeric_limits<double>::infinity();
  return formats::JsonNumber(text);
}

Slot SlotOf(std::string_view path, Direction direction) {
  if (direction == Direction::kParameterGrad) return Slot::kParameterGrad;
  constexpr std::array<std::pair<std::string_view, Slot>, 4> kSlots = {
      {{"output", Slot::kOutput},
       {"kwargs", Slot::kKwarg},
       {"parameters", Slot::kParameter},
       {"input", Slot::kInput}}};
  for (const auto& [word, slot] : kSlots) {
    if (path.starts_with(word)) return slot;
  }
  return Slot::kDebug;
}

// The texts of a Python list of texts, "['a', \"b\"]"; none if it is something else.
std::vector<std::string> ListedTexts(std::string_view list) {
  std::vector<std::string> texts;
  if (!list.starts_with('[')) return texts;
  for (size_t i = 1; i < list.size(); ++i) {
    const char quote = list[i];
    if (quote != '\'' && quote != '"') continue;
    std::string& text = texts.emplace_back();
    for (++i; i < list.size() && list[i] != quote; ++i) {
      if (list[i] != '\\' || i + 1 == list.size()) {
        text += list[i];
        continue;
      }
      ++i;
      text += list[i] == 'n' ? '\n' : list[i] == 't' ? '\t' : list[i];
    }
  }
  return texts;
}

Reason ReasonNamed(std::string_view text) {
  // Made once: a table has a reason in each row.
  static const auto* const kTexts = [] {
    auto* texts = new std::vector<std::string>;
    for (int i = 0; i <= static_cast<int>(Reason::kDevice); ++i)
      texts->push_back(compare::ReasonText(static_cast<Reason>(i)).English());
    return texts;
  }();
  for (size_t i = 1; i < kTexts->size() && !text.empty(); ++i) {
    const std::string& known = (*kTexts)[i];
    if (!known.empty() && text.starts_with(known)) return static_cast<Reason>(i);
  }
  return Reason::kNone;
}

}  // namespace

ValueName SplitValueName(std::string_view name) {
  // The shortest beginning that is the name of an entry: what follows is a value of it.
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const EntryName parsed = ParseEntryName(name.substr(0, dot));
    if (parsed.direction == Direction::kNone && !parsed.is_debug) continue;
    // "Functional.linear.0.forward", "Module.fc.Linear.forward" and then its number.
    const std::string_view rest = name.substr(dot + 1);
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view with_number = name.substr(0, dot + 1 + end);
    if (parsed.call < 0 && !parsed.is_debug && ParseEntryName(with_number).call >= 0)
      return {with_number, end == rest.size() ? "" : rest.substr(end + 1)};
    return {name.substr(0, dot), rest};
  }
  // "Functional_linear_0_forward_input.0", "Functional.linear.0.forward_output.1"
  for (const std::string_view direction : {"forward", "backward"}) {
    const size_t at = name.rfind(direction);
    if (at == name.npos || at == 0) continue;
    const std::string_view rest = name.substr(at + direction.size());
    if (rest.starts_with("_input") || rest.starts_with("_output"))
      return {name.substr(0, at + direction.size()), rest.substr(1)};
  }
  return {name, ""};
}

ComparisonBuilder::ComparisonBuilder(const std::string& path) {
  for (Dump* dump : {&c_.target, &c_.golden}) dump->path = path;
}

std::string_view ComparisonBuilder::Keep(std::string_view text) {
  if (text.empty()) return {};
  if (const auto found = kept_.find(text); found != kept_.end()) return *found;
  return *kept_.insert(c_.target.arena.emplace_back(text)).first;
}

int32_t ComparisonBuilder::AddLeaf(const ResultValue& value, std::string_view call,
                                   std::string_view path, int32_t* record, Dump* dump) {
  if (*record < 0) {
    *record = static_cast<int32_t>(dump->records.size());
    Record& r = dump->records.emplace_back();
    r.name = Keep(call);
    const EntryName parsed = ParseEntryName(r.name);
    r.api = parsed.api, r.call = parsed.call;
    r.direction = parsed.direction, r.is_module = parsed.is_module;
    r.first_leaf = static_cast<uint32_t>(dump->leaves.size());
  }
  Record& r = dump->records[*record];
  ++r.leaf_count;
  Leaf& leaf = dump->leaves.emplace_back();
  leaf.record = static_cast<uint32_t>(*record);
  leaf.name = Keep(value.name);
  leaf.slot = SlotOf(path, r.direction);
  leaf.dtype = ElementType(Keep(value.dtype));
  leaf.shape = dump->shapes.Of(value.shape);
  leaf.kind = leaf.dtype.dtype()                        ? LeafKind::kTensor
              : Given(value.dtype)                      ? LeafKind::kScalar
              : Given(value.max) && value.max != "null" ? LeafKind::kTensor
                                                        : LeafKind::kNone;
  const auto keep = [&](std::string_view text) { return Given(text) ? Keep(text) : ""; };
  leaf.requires_grad = keep(value.requires_grad);
  leaf.max = keep(value.max), leaf.min = keep(value.min);
  leaf.mean = keep(value.mean), leaf.norm = keep(value.norm);
  leaf.checksum = keep(value.checksum);
  if (leaf.kind == LeafKind::kScalar) leaf.value = leaf.max;
  leaf.max_value = NumberOfCell(value.max), leaf.min_value = NumberOfCell(value.min);
  leaf.mean_value = NumberOfCell(value.mean), leaf.norm_value = NumberOfCell(value.norm);
  leaf.has_stats = leaf.kind != LeafKind::kNone && !leaf.max.empty() && leaf.max != "null";
  const ElementCounts& n = value.counts;
  if (n.nan == 0 && n.pos_inf == 0 && n.neg_inf == 0) {
    static constexpr ElementCounts kNoNonFinite{0, 0, 0, -1};
    leaf.counts = &kNoNonFinite;
  } else if (n.nan >= 0) {
    leaf.counts = &dump->counts.emplace_back(n);
  }
  return static_cast<int32_t>(dump->leaves.size() - 1);
}

// Whether a row with these calls belongs to the call of the row before.
bool ComparisonBuilder::OfLastPair(std::string_view target, std::string_view golden) const {
  if (c_.pairs.empty()) return false;
  const compare::RecordPair& last = c_.pairs.back();
  const auto same = [](const Dump& dump, int32_t record, std::string_view call) {
    return record >= 0 && dump.records[record].name == call;
  };
  const bool of_target = same(c_.target, last.target, target),
             of_golden = same(c_.golden, last.golden, golden);
  if (target.empty()) return of_golden;
  if (golden.empty()) return of_target;
  return (of_target && (of_golden || last.golden < 0)) ||
         (of_golden && (of_target || last.target < 0));
}

void ComparisonBuilder::Add(const ResultRow& given) {
  const bool target = Given(given.target.name), golden = Given(given.golden.name);
  if (!target && !golden) return;
  const ValueName on_target = target ? SplitValueName(given.target.name) : ValueName();
  const ValueName on_golden = golden ? SplitValueName(given.golden.name) : ValueName();
  if (!OfLastPair(on_target.call, on_golden.call)) {
    compare::RecordPair& pair = c_.pairs.emplace_back();
    pair.first_row = static_cast<uint32_t>(c_.rows.size());
    classes_.emplace_back();
  }
  compare::RecordPair& pair = c_.pairs.back();
  compare::Row& row = c_.rows.emplace_back();
  ++pair.row_count;
  if (target)
    row.target = AddLeaf(given.target, on_target.call, on_target.path, &pair.target, &c_.target);
  if (golden)
    row.golden = AddLeaf(given.golden, on_golden.call, on_golden.path, &pair.golden, &c_.golden);
  row.confidence = static_cast<float>(given.confidence);
  row.match = !golden                                  ? Match::kTargetOnly
              : !target                                ? Match::kGoldenOnly
              : given.target.name == given.golden.name ? Match::kExact
                                                       : Match::kAligned;
  pair.confidence = std::min(pair.confidence, row.confidence);
  if (given.call_class && !classes_.back()) classes_.back() = given.call_class;
  Judge(given);
  TakeStack(given);
}

void ComparisonBuilder::TakeStack(const ResultRow& given) {
  const compare::RecordPair& pair = c_.pairs.back();
  const bool target = pair.target >= 0, listed = target && given.stack.starts_with('[');
  Dump& dump = target ? c_.target : c_.golden;
  Record& record = dump.records[target ? pair.target : pair.golden];
  // The line of a backward call is that of its forward call, which has it, too.
  const bool line = Given(given.source_line) && record.direction != Direction::kBackward;
  if (record.stack >= 0 || (!listed && !line)) return;
  const std::string_view text = Keep(listed ? given.stack : given.source_line);
  const auto [found, is_new] =
      stacks_[target ? 0 : 1].emplace(text, static_cast<int32_t>(dump.stacks.size()));
  if (is_new) {
    auto& frames = dump.stacks.emplace_back();
    if (!listed) frames.push_back(text);
    if (listed) {
      for (const std::string& frame : ListedTexts(text)) frames.push_back(Keep(frame));
    }
  }
  record.stack = found->second;
}

void ComparisonBuilder::Judge(const ResultRow& given) {
  const compare::Row& row = c_.rows.back();
  Measure& m = c_.measures.emplace_back();
  c_.notes.emplace_back();
  if (given.diff) {
    m.tensor = static_cast<int32_t>(c_.diffs.size());
    c_.diffs.push_back(*given.diff);
    c_.mode = Mode::kTensor;
  } else if (c_.mode == Mode::kStatistics && Given(given.target.checksum)) {
    c_.mode = Mode::kChecksum;
  }
  if (given.verdict) {
    m.verdict = *given.verdict;
    m.severity = given.severity.value_or(kernels::Diff::kNaN);
    m.reason = ReasonNamed(given.reason);
    if (m.reason == Reason::kNone) c_.notes.back() = Message(given.reason);
    return;
  }
  if (row.target < 0 || row.golden < 0) {
    m.verdict = RowVerdict::kUnknown, m.reason = Reason::kNoPartner;
    return;
  }
  const Mode mode = c_.mode == Mode::kChecksum ? Mode::kChecksum : Mode::kStatistics;
  compare::JudgeLeaves(c_.target.leaves[row.target], c_.golden.leaves[row.golden], mode, {}, &m);
  // Equal statistics of elements that differ.
  if (given.diff && given.diff->max_abs_error > 0 && m.verdict == RowVerdict::kEqual)
    m.verdict = RowVerdict::kNoise;
}

void ComparisonBuilder::LinkBackwardCalls() {
  std::unordered_map<std::string, int32_t> forward;
  c_.forward_of.assign(c_.pairs.size(), -1);
  for (size_t p = 0; p < c_.pairs.size(); ++p) {
    const bool of_target = c_.pairs[p].target >= 0;
    const Record& r =
        of_target ? c_.target.records[c_.pairs[p].target] : c_.golden.records[c_.pairs[p].golden];
    std::string key(r.api.view());
    key += of_target ? " t" : " g";
    AppendInteger(&key, r.call);
    if (r.direction == Direction::kForward) forward.emplace(key, static_cast<int32_t>(p));
    if (r.direction != Direction::kBackward) continue;
    if (const auto found = forward.find(key); found != forward.end())
      c_.forward_of[p] = found->second;
  }
}

compare::Comparison ComparisonBuilder::Finish() {
  for (compare::RecordPair& pair : c_.pairs) {
    pair.match = pair.golden < 0   ? Match::kTargetOnly
                 : pair.target < 0 ? Match::kGoldenOnly
                 : c_.target.records[pair.target].name == c_.golden.records[pair.golden].name
                     ? Match::kExact
                     : Match::kAligned;
  }
  if (std::all_of(c_.notes.begin(), c_.notes.end(), [](const auto& n) { return n.empty(); }))
    c_.notes.clear();
  for (Dump* dump : {&c_.target, &c_.golden})
    dump->task = c_.mode == Mode::kTensor ? Task::kTensor : Task::kStatistics;
  LinkBackwardCalls();
  compare::ClassifyCalls(&c_);
  for (size_t p = 0; p < c_.pairs.size(); ++p) {
    if (classes_[p]) c_.classes[p] = *classes_[p];
  }
  compare::FindFirstDivergence(&c_);
  compare::FindFirstBits(&c_);
  return std::move(c_);
}

}  // namespace msprobe::results
