#include "engine/dump/session/reference_search.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "engine/base/log.h"
#include "engine/dump/session/reference_dump.h"
#include "engine/dump/write/entry_json.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

std::optional<uint64_t> HexNumber(std::string_view text, size_t digits) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  if (text.size() != digits) return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// The slot of an entry's member: "output" is kOutput. nullopt: its tensors are not compared.
std::optional<Slot> SlotOfKey(std::string_view key) {
  if (key == "input_args") return Slot::kInput;
  if (key == "input_kwargs") return Slot::kKwarg;
  if (key == "parameters") return Slot::kParameter;
  if (key == "output") return Slot::kOutput;
  return std::nullopt;
}

std::vector<const TensorValue*> TensorsOf(const Entry& entry, Slot wanted) {
  std::vector<const TensorValue*> tensors;
  for (const Entry::Slot& slot : entry.slots()) {
    if (SlotOfKey(entry.text(slot.key)) != wanted) continue;
    for (uint32_t i = slot.root; i < entry.values()[slot.root].end; ++i) {
      const Entry::Value& value = entry.values()[i];
      if (value.kind == Entry::Kind::kTensor) tensors.push_back(&entry.tensor(value));
    }
  }
  return tensors;
}

uint64_t HashOfShape(std::string_view shape) { return std::hash<std::string_view>()(shape); }

uint64_t HashOfShape(const TensorValue& tensor) {
  std::string text;
  AppendShape(&text, tensor.shape);
  return HashOfShape(text);
}

}  // namespace

std::optional<uint64_t> ReferenceSearch::ChecksumOf(const Leaf& leaf, Kind kind) {
  switch (kind) {
    case Kind::kFingerprint:
      return HexNumber(leaf.fingerprint, 16);
    case Kind::kCrc32:
      return HexNumber(leaf.checksum, 8);
    case Kind::kXor:
      return leaf.checksum.starts_with("0x") ? HexNumber(leaf.checksum.substr(2), 16)
                                             : std::nullopt;
    case Kind::kNone:
      break;
  }
  return std::nullopt;
}

std::optional<uint64_t> ReferenceSearch::ChecksumOf(const TensorValue& tensor, Kind kind) {
  using kernels::Checksum;
  if (tensor.numbers != TensorValue::Numbers::kHere) return std::nullopt;
  if (kind == Kind::kFingerprint && tensor.with_fingerprint) return tensor.stats.fingerprint;
  if ((kind == Kind::kCrc32 && tensor.checksum == Checksum::kCrc32) ||
      (kind == Kind::kXor && tensor.checksum == Checksum::kXor))
    return tensor.stats.checksum;
  return std::nullopt;
}

ReferenceSearch::Expected ReferenceSearch::Describe(const Leaf& leaf, bool casts_bfloat16) {
  const uint64_t shape = HashOfShape(leaf.shape.view());
  for (const Kind kind : {Kind::kFingerprint, Kind::kCrc32, Kind::kXor}) {
    // msprobe 1.0 computes the CRC-32 of a bfloat16 tensor from its elements as float32. Under xor,
    // a tensor without dimensions has its value in place of a checksum.
    if (kind == Kind::kCrc32 && casts_bfloat16 && leaf.dtype.dtype() == DType::kBFloat16) continue;
    if (kind == Kind::kXor && leaf.shape.is_scalar()) continue;
    if (const std::optional<uint64_t> checksum = ChecksumOf(leaf, kind))
      return {*checksum, shape, leaf.slot, kind};
  }
  return {0, shape, leaf.slot, Kind::kNone};
}

bool ReferenceSearch::Load(const Dump& dump) {
  calls_.clear();
  expected_.clear();
  checksum_ = kernels::Checksum::kNone;
  bool any = false;
  const bool casts_bfloat16 = FactsOf(dump.dialect).casts_bfloat16_for_crc32;
  for (const Record& record : dump.records) {
    if (record.direction != Direction::kForward) continue;
    Range range{static_cast<uint32_t>(expected_.size()), 0};
    for (const Leaf& leaf : dump.LeavesOf(record)) {
      if (leaf.kind != LeafKind::kTensor) continue;
      expected_.push_back(Describe(leaf, casts_bfloat16));
      ++range.count;
      const Kind kind = expected_.back().kind;
      any |= kind != Kind::kNone;
      if (kind == Kind::kCrc32) checksum_ = kernels::Checksum::kCrc32;
      if (kind == Kind::kXor && checksum_ == kernels::Checksum::kNone)
        checksum_ = kernels::Checksum::kXor;
    }
    if (!calls_.try_emplace(std::string(record.name), range).second)
      expected_.resize(range.first);  // the name was there before: the first call is kept
  }
  return any;
}

Status ReferenceSearch::Check(const std::string& path, const std::string& dump_path) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> dumps,
                           CheckReference("bench_path", path, dump_path));
  // The first dump that has forward calls decides for all.
  for (const DumpLocation& location : dumps) {
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, ReadDump(location.path));
    ReferenceSearch search(path);
    if (search.Load(dump)) return Status::Ok();
    if (!search.expected_.empty()) break;
  }
  return Status(ErrorCode::kInvalidArgument)
      .At(dumps.front().path)
      .Expected("checksums of forward calls, to compare this run with"_t)
      .Found("none"_t)
      .Hint("record it with \"summary_mode\": \"md5\""_t);
}

Result<bool> ReferenceSearch::Begin(int64_t step, std::optional<int> rank) {
  const std::pair<int64_t, int> wanted{step, rank.value_or(-1)};
  if (begun_ == wanted) return found_;
  begun_ = wanted;
  found_ = false;
  counts_ = {};
  MSPROBE_ASSIGN_OR_RETURN(const std::optional<DumpLocation> location,
                           FindReference(path_, step, rank));
  if (location) {
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, ReadDump(location->path));
    file_ = location->path;
    found_ = Load(dump);
  }
  if (!found_) {
    Message why = location ? "{} has no checksums"_t(file_) : WhyNoReference(path_, step);
    Log(LogLevel::kWarning,
        rank ? "step {}, rank {} is not compared: {}"_t(step, *rank, std::move(why))
             : "step {} is not compared: {}"_t(step, std::move(why)));
  }
  return found_;
}

ReferenceSearch::Verdict ReferenceSearch::Compare(const Entry& entry) const {
  const auto found = calls_.find(entry.name());
  if (found == calls_.end()) return Verdict::kNoPartner;
  const std::string_view api = ParseEntryName(entry.name()).api;
  if (ReturnsUnwrittenMemory(api.substr(api.rfind('.') + 1))) return Verdict::kUnclear;

  const std::span<const Expected> expected(expected_.data() + found->second.first,
                                           found->second.count);
  size_t next = 0, compared = 0;
  bool unclear = false, other_inputs = false, differs = false;
  for (const Slot slot : {Slot::kInput, Slot::kKwarg, Slot::kParameter, Slot::kOutput}) {
    const size_t first = next;
    while (next < expected.size() && expected[next].slot == slot) ++next;
    const std::vector<const TensorValue*> made = TensorsOf(entry, slot);
    // Not every generation has parameters in a module's entry.
    if (slot == Slot::kParameter && next == first) continue;
    if (made.size() != next - first) {
      unclear = true;
      continue;
    }
    for (size_t i = 0; i < made.size(); ++i) {
      const Expected& there = expected[first + i];
      const bool same_shape = there.shape == HashOfShape(*made[i]);
      const std::optional<uint64_t> checksum = ChecksumOf(*made[i], there.kind);
      const bool known = same_shape && checksum.has_value();
      compared += known && slot == Slot::kOutput;
      const bool same = known && *checksum == there.checksum;
      if (slot == Slot::kOutput) {
        differs |= known && !same;
      } else {
        other_inputs |= !same_shape || (known && !same);
        unclear |= !known;
      }
    }
  }
  if (other_inputs) return Verdict::kOtherInputs;
  if (unclear || compared == 0) return Verdict::kUnclear;
  return differs ? Verdict::kDiffers : Verdict::kAlike;
}

Status ReferenceSearch::Write(const Entry& entry) {
  verdict_ = Compare(entry);
  ++counts_[static_cast<size_t>(verdict_)];
  return Status::Ok();
}

Message ReferenceSearch::Report() const {
  struct Sentence {
    Message one;
    Message::Format<1> many;
  };
  const Sentence sentences[] = {
      {"1 call equal"_t, "{} calls equal"_t},
      {"1 call different"_t, "{} calls different"_t},
      {"1 call with other inputs"_t, "{} calls with other inputs"_t},
      {"1 call that cannot be compared"_t, "{} calls that cannot be compared"_t},
      {"1 call without a partner"_t, "{} calls without a partner"_t}};
  std::vector<Message> parts;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 1) parts.push_back(sentences[i].one);
    if (counts_[i] > 1) parts.push_back(sentences[i].many(counts_[i]));
  }
  if (parts.empty()) return {};
  return "compared with {}: {}"_t(file_, Message::Joined(std::move(parts), ", "));
}

}  // namespace msprobe::dump
