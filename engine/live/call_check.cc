#include "engine/live/call_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/measure/judge_row.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/read/leaf_parser.h"
#include "engine/dump/write/entry_json.h"

namespace msprobe::live {
namespace {

std::optional<uint64_t> Fingerprint(std::string_view text) {
  if (const std::optional<uint64_t> value = ParseBase64(text)) return value;
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool whole =
      text.size() == 16 && end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

// As dump/read/entries.cc has them.
Slot SlotOf(const Entry& entry, std::string_view key) {
  if (key == "input_args" || key == "input") return Slot::kInput;
  if (key == "input_kwargs") return Slot::kKwarg;
  if (key == "parameters") return Slot::kParameter;
  if (key == "output") return Slot::kOutput;
  return entry.is_value() ? Slot::kDebug : Slot::kParameterGrad;
}

bool IsContainer(Entry::Kind kind) {
  return kind == Entry::Kind::kList || kind == Entry::Kind::kDict;
}

// Whether a plain value is not the one that the baseline has. Kinds whose text is not compared here
// are compared when the step ends.
bool PlainDiffers(const Entry& entry, const Entry::Value& value, const Leaf& golden) {
  if (golden.kind != LeafKind::kScalar) return false;
  switch (value.kind) {
    case Entry::Kind::kInt: {
      int64_t there = 0;
      const std::string_view text = golden.value;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), there);
      const bool is_int = end.ec == std::errc() && end.ptr == text.data() + text.size();
      return is_int && there != value.integer;
    }
    case Entry::Kind::kBool:
      return golden.value != std::string_view(value.integer != 0 ? "True" : "False") &&
             (golden.value == std::string_view("True") ||
              golden.value == std::string_view("False"));
    case Entry::Kind::kFloat:
      return std::isfinite(value.number) && std::isfinite(golden.max_value) &&
             value.number != golden.max_value;
    case Entry::Kind::kText:
      return value.text.size > 0 && !golden.value.empty() && entry.text(value.text) != golden.value;
    default:
      return false;
  }
}

}  // namespace

CallCheck::CallCheck(Dump golden) {
  c_.golden = std::move(golden);
  c_.target.framework = c_.golden.framework;
  c_.target.dialect = c_.golden.dialect;
  by_name_.reserve(c_.golden.records.size());
  for (size_t i = 0; i < c_.golden.records.size(); ++i)
    by_name_.try_emplace(c_.golden.records[i].name, static_cast<int32_t>(i));
  c_.target.records.resize(1);
}

size_t CallCheck::reach() const { return std::min(passed_ + since_, c_.golden.records.size()); }

CallCheck::Answer CallCheck::Look(const Entry& entry, bool bits_decide) {
  const auto found = by_name_.find(entry.name());
  if (found == by_name_.end()) {
    ++without_partner_, ++since_;
    return Answer::kNoPartner;
  }
  ++with_partner_;
  since_ = 0;
  passed_ = std::max(passed_, static_cast<size_t>(found->second) + 1);
  if (FindOther(entry, c_.golden.records[found->second])) return Answer::kSuspect;
  if (others_.empty()) return Answer::kAgrees;
  return bits_decide || Judge(entry, found->second) ? Answer::kSuspect : Answer::kAgrees;
}

// Fills others_. True: something differs that needs no judge.
bool CallCheck::FindOther(const Entry& entry, const Record& record) {
  others_.clear();
  values_.clear();
  bool sorted = true;
  for (const Entry::Slot& slot : entry.slots()) {
    const Slot kind = SlotOf(entry, entry.text(slot.key));
    sorted = sorted && (values_.empty() || values_.back().first <= kind);
    for (uint32_t i = slot.root; i < entry.values()[slot.root].end; ++i) {
      if (!IsContainer(entry.values()[i].kind)) values_.emplace_back(kind, i);
    }
  }
  if (!sorted) {
    std::stable_sort(values_.begin(), values_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  const uint32_t end = record.first_leaf + record.leaf_count;
  if (values_.size() == record.leaf_count) {
    for (uint32_t i = 0; i < record.leaf_count; ++i) {
      if (IsOther(entry, values_[i].second, record.first_leaf + i)) return true;
    }
    return false;
  }
  // Values that a reader sees differently: tensors alone are compared.
  uint32_t leaf = record.first_leaf;
  for (const auto& [slot, index] : values_) {
    if (entry.values()[index].kind != Entry::Kind::kTensor) continue;
    while (leaf < end && c_.golden.leaves[leaf].kind != LeafKind::kTensor) ++leaf;
    if (leaf == end || c_.golden.leaves[leaf].slot != slot) return true;
    if (IsOther(entry, index, leaf++)) return true;
  }
  while (leaf < end && c_.golden.leaves[leaf].kind != LeafKind::kTensor) ++leaf;
  return leaf != end;
}

// Whether a value differs. A tensor with other bits, which may be noise, goes to others_.
bool CallCheck::IsOther(const Entry& entry, uint32_t index, uint32_t leaf) {
  const Entry::Value& value = entry.values()[index];
  const Leaf& golden = c_.golden.leaves[leaf];
  if (value.kind != Entry::Kind::kTensor) return PlainDiffers(entry, value, golden);
  const TensorValue& tensor = entry.tensor(value);
  if (golden.kind != LeafKind::kTensor || golden.dtype.view() != tensor.dtype) return true;
  text_.clear();
  dump::AppendShape(&text_, tensor.shape);
  if (golden.shape.view() != text_) return true;
  if (!tensor.measured()) return false;
  if (tensor.numbers == TensorValue::Numbers::kHere && tensor.with_fingerprint &&
      Fingerprint(golden.fingerprint) == tensor.stats.fingerprint)
    return false;
  others_.push_back({leaf, index});
  return false;
}

void CallCheck::FillTarget(const TensorValue& tensor, const Leaf& golden, Leaf* target) {
  *target = golden;
  target->record = 0;
  target->fingerprint = tensor.with_fingerprint && !golden.fingerprint.empty() &&
                                tensor.numbers == TensorValue::Numbers::kHere
                            ? TextRef("other")
                            : TextRef();
  target->checksum = TextRef();
  const auto put = [&](dump::Statistic which, TextRef* text, double* number) {
    if (!tensor.with_statistics || text->empty()) {
      *text = TextRef();
      return;
    }
    // The judge reads the text of NaN and of what is no number only.
    if (const std::optional<double> finite = dump::StatisticNumber(tensor, which)) {
      *text = TextRef("finite");
      *number = *finite;
      return;
    }
    std::string& kept = c_.target.arena.emplace_back();
    dump::AppendStatistic(&kept, tensor, which);
    if (kept.size() > 1 && kept.front() == '"') kept = kept.substr(1, kept.size() - 2);
    *text = kept;
    const auto end = std::from_chars(kept.data(), kept.data() + kept.size(), *number);
    if (end.ec != std::errc()) *number = std::strtod(kept.c_str(), nullptr);
  };
  put(dump::Statistic::kMax, &target->max, &target->max_value);
  put(dump::Statistic::kMin, &target->min, &target->min_value);
  put(dump::Statistic::kMean, &target->mean, &target->mean_value);
  put(dump::Statistic::kNorm, &target->norm, &target->norm_value);
  const kernels::Stats& stats = tensor.stats;
  target->counts = tensor.with_counts ? &c_.target.counts.emplace_back(ElementCounts{
                                            stats.nan, stats.pos_inf, stats.neg_inf, stats.zero})
                                      : &kUnknownCounts;
}

// Whether some value with other bits differs by more than rounding.
bool CallCheck::Judge(const Entry& entry, int32_t record) {
  dump::ParseNumbers(&c_.golden);  // of all calls: the judge looks at others near this one
  c_.target.arena.clear();
  c_.target.counts.clear();
  c_.target.rests.clear();
  c_.target.leaves.resize(others_.size());
  c_.target.records[0] = c_.golden.records[record];
  c_.target.records[0].first_leaf = 0;
  c_.target.records[0].leaf_count = static_cast<uint32_t>(others_.size());
  c_.rows.resize(others_.size());
  for (size_t i = 0; i < others_.size(); ++i) {
    const TensorValue& tensor = entry.tensor(entry.values()[others_[i].value]);
    FillTarget(tensor, c_.golden.leaves[others_[i].leaf], &c_.target.leaves[i]);
    if (tensor.rest)
      c_.target.rests.push_back({static_cast<uint32_t>(i), tensor.rest->extremes, tensor.rest->max,
                                 tensor.rest->min, tensor.rest->norm});
    c_.rows[i] = {.target = static_cast<int32_t>(i),
                  .golden = static_cast<int32_t>(others_[i].leaf)};
  }
  const compare::RecordPair pair{
      .target = 0, .golden = record, .row_count = static_cast<uint32_t>(others_.size())};
  compare::RowJudge judge(c_, pair);
  bool differs = false;
  for (size_t i = 0; i < others_.size(); ++i) {
    const compare::RowVerdict verdict = judge.VerdictOf(static_cast<uint32_t>(i), noise_dtype_);
    differs |= verdict == compare::RowVerdict::kDiffers;
    const ElementType dtype = c_.target.leaves[i].dtype;
    if (verdict == compare::RowVerdict::kNoise &&
        compare::RoundingOf(dtype).epsilon > compare::RoundingOf(noise_dtype_).epsilon)
      noise_dtype_ = dtype;
  }
  return differs;
}

}  // namespace msprobe::live
