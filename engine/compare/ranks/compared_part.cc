#include "engine/compare/ranks/compared_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/compare/ranks/archive.h"

namespace msprobe::compare {

template <typename Archive>
void Fields(Archive& a, Archived<Archive, kernels::Sketch>& s) {
  const auto complex = [&](auto& number) {
    double parts[2] = {number.real(), number.imag()};
    a(parts[0], parts[1]);
    if constexpr (Archive::kReads) number = {parts[0], parts[1]};
  };
  complex(s.rows), complex(s.wave);
  a(s.squares);
  bool has_grid = s.grid.has_value();
  a(has_grid);
  if (!has_grid) return;
  if constexpr (Archive::kReads) s.grid.emplace();
  complex(*s.grid);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, StepWeight>& w) {
  a(w.name, w.dtype, w.shape, w.trained, w.fingerprint, w.sketch, w.max, w.min, w.mean, w.norm);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, Findings::Side>& s) {
  a(s.dump, s.dialect, s.calls, s.values, s.complete, s.only_here);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, Findings::OtherCall>& o) {
  a(o.name, o.what, o.roundings);
  a.Enumerator(o.call_class, CallClass::kUnknown);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, Summary>& s) {
  a.Enumerator(s.verdict, RunVerdict::kDiffers);
  a(s.rows, s.calls, s.compared, s.target_values, s.golden_values, s.neutral_rows, s.other_forms,
    s.without_effect, s.too_wide, s.target_only_rows, s.golden_only_rows, s.target_only_calls,
    s.golden_only_calls, s.compiled_calls, s.aligned_calls, s.unreadable_rows,
    s.calls_compared_nowhere, s.first_compared_nowhere);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, RunStart>& r) {
  a(r.mistake, r.weights, r.data, r.settings);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, FirstDivergence>& f) {
  a(f.pair, f.row);
  a.Enumerator(f.call_class, CallClass::kUnknown);
  a(f.confidence, f.module, f.source_line, f.caller_line, f.golden_line, f.why, f.advice, f.ranks,
    f.leads_to_it);
}

template <typename Archive>
void FieldsOfFindings(Archive& a, Archived<Archive, Findings>& f) {
  a.Enumerator(f.mode, Mode::kTensor);
  a(f.summary, f.target_side, f.golden_side, f.began, f.exact, f.first, f.first_name, f.first_bits,
    f.rewrites, f.wrong_region, f.equal, f.largest_noise, f.why_largest_noise, f.not_judged,
    f.other_arguments, f.unmatched_calls, f.two_frameworks, f.compared_nowhere, f.others,
    f.more_others, f.not_observed);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, ExchangeCall>& e) {
  a(e.name, e.key, e.pair, e.gives_wrong, e.gives_unknown, e.gets_wrong, e.source_line);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, RankTrace>& t) {
  a(t.rank, t.first, t.received, t.from_outside, t.exchanges);
  if constexpr (Archive::kReads) {
    const auto exchanges = static_cast<int64_t>(t.exchanges.size());
    a.Expect(t.received < exchanges, "an exchange of the rank"_t);
  }
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, LoneCollective>& l) {
  a(l.pair, l.in_target, l.key, l.name, l.source_line);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, CollectiveOrder>& o) {
  a(o.lone, o.after_end);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, BothSides>& b) {
  a(b.target, b.golden);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, StepWeights::Weight>& w) {
  a(w.name, w.norm, w.max, w.min, w.differs, w.epsilon);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, StepWeights>& w) {
  a(w.begin, w.end, w.count, w.differing, w.begins_otherwise, w.first_is_weight, w.by_chance,
    w.unrelated, w.related, w.written, w.error_behind_weight, w.first_error, w.gradient_noise,
    w.gradients_agree, w.optimizer_calls, w.alone, w.in_graph_mode, w.file_order);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, ApiTally>& t) {
  a(t.name, t.agree, t.differ, t.unknown, t.first);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, WrongCall>& w) {
  a(w.name, w.source_line, w.what);
  a.Enumerator(w.call_class, CallClass::kUnknown);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, RankDetails>& d) {
  a(d.apis, d.wrong);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, FailHit>& h) {
  a(h.condition, h.rows, h.first, h.value);
}

// Of the limits the text of the user's file is kept.
template <typename Archive>
void FieldsOfThresholds(Archive& a, Archived<Archive, RankResult>& r) {
  std::string text = r.thresholds ? r.thresholds->text() : "";
  a(text);
  if constexpr (Archive::kReads) {
    if (text.empty()) return;
    Result<ThresholdTable> table = ThresholdTable::Parse(text, "thresholds");
    a.Expect(table.ok(), "limits"_t);
    if (table.ok()) r.thresholds = std::make_shared<const ThresholdTable>(*std::move(table));
  }
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, RankResult>& r) {
  FieldsOfFindings(a, r);
  FieldsOfThresholds(a, r);
  a(r.step, r.rank, r.failed, r.target, r.golden, r.target_weights, r.golden_weights, r.is_empty,
    r.judged, r.otherwise, r.rounding_of_step, r.wrong_update_after, r.trace, r.collectives,
    r.weights, r.target_is_mindspore, r.golden_is_mindspore, r.tolerance, r.table, r.rows_left_out,
    r.details, r.hits);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, ComparedPair>& p) {
  a(p.step, p.rank, p.target, p.golden, p.analysis, p.json, p.finding, p.unwritten, p.result);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, PairOfCopies::Rank>& r) {
  a(r.rank, r.path);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, PairOfCopies>& p) {
  a(p.step, p.rank, p.target, p.golden, p.target_ranks, p.golden_ranks);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, KnownFile>& f) {
  a(f.name, f.bytes, f.crc);
}

template <typename Archive>
void Fields(Archive& a, Archived<Archive, RankCopy>& c) {
  a(c.path, c.dump, c.tensor_folder, c.note, c.place, c.files, c.failed);
  if constexpr (Archive::kReads) a.Expect(StaysInFolder(c), "files below the folder"_t);
}

namespace {

constexpr std::string_view kBegin = "compare_part_", kEnd = ".bin";

std::string Heading() { return fmt::format("msprobe {}: a part of a comparison\n", kVersion); }

template <typename Archive>
void FieldsOfPart(Archive& a, Archived<Archive, ComparedPart>& p) {
  a(p.index, p.count, p.target, p.golden, p.left_out, p.pairs, p.compared, p.joined, p.words,
    p.named, p.copies);
  if constexpr (Archive::kReads)
    a.Expect(p.index >= 1 && p.index <= p.count && p.count <= kMostParts,
             "a part from 1 to their number"_t);
}

std::string NameOf(int64_t index, int64_t count) {
  return fmt::format("{}{}_of_{}{}", kBegin, index, count, kEnd);
}

using Place = std::pair<int32_t, int32_t>;  // step, rank
Place PlaceOf(const ComparedPair& pair) { return {pair.step, pair.rank}; }

// Which numbers from 1 to `count` are missing: "2, 5".
std::string MissingOf(const std::set<int64_t>& found, int64_t count) {
  constexpr size_t kShown = 8;
  std::string text;
  size_t missing = 0;
  for (int64_t i = 1; i <= count; ++i) {
    if (found.contains(i) || ++missing > kShown) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return missing > kShown ? text + ", ..." : text;
}

bool IsOfSame(const ComparedPart& part, const ComparedPart& first) {
  return part.count == first.count && part.target == first.target && part.golden == first.golden;
}

Status CheckSame(const ComparedPart& part, const ComparedPart& first, const std::string& path) {
  if (IsOfSame(part, first)) return Status::Ok();
  return InvalidArgument("{} is part {} of {} of {} against {}"_t(path, part.index, part.count,
                                                                  part.target, part.golden))
      .Expected("a part of {} of {} against {}"_t(first.count, first.target, first.golden))
      .Hint("remove the parts of other comparisons, or give each comparison a folder"_t);
}

// Ranks were added to a run, or removed, between two parts.
Status SawOtherRanks() {
  return InvalidArgument("not compared: the parts did not see the same ranks"_t)
      .Hint("compare all parts once more"_t);
}

std::string FlagsOf(const ComparedPart& part) {
  std::string flags;
  for (const std::string& word : part.words) flags += " " + word;
  return flags;
}

auto PlaceOf(const PairOfCopies& pair) {
  std::vector<std::pair<int32_t, std::string>> ranks;
  for (const auto* of : {&pair.target_ranks, &pair.golden_ranks}) {
    for (const PairOfCopies::Rank& rank : *of) ranks.emplace_back(rank.rank, rank.path);
    ranks.emplace_back(-1, "");
  }
  return std::tuple(pair.step, pair.rank, pair.target, pair.golden, std::move(ranks));
}

// All parts judge the same values, by the same flags.
Status CheckJoined(const ComparedPart& part, const ComparedPart& first) {
  const auto place = [](const PairOfCopies& pair) { return PlaceOf(pair); };
  if (!std::ranges::equal(part.joined, first.joined, {}, place, place)) return SawOtherRanks();
  const auto file = [](const KnownFile& f) { return std::tuple(f.name, f.bytes, f.crc); };
  if (part.words == first.words && std::ranges::equal(part.named, first.named, {}, file, file))
    return Status::Ok();
  const std::string expected = FlagsOf(first), found = FlagsOf(part);
  if (expected != found) {
    return InvalidArgument("part {} of {} had other flags"_t(part.index, part.count))
        .Expected("those of part {}:{}"_t(first.index, expected))
        .Found(found.empty() ? "none"_t : Message(found.substr(1)))
        .Hint("compare the part once more with these flags"_t);
  }
  return InvalidArgument("a file that a flag names was changed between part {} and part {}"_t(
                             first.index, part.index))
      .Hint("compare all parts once more"_t);
}

// The files of parts as one part.
class Gathering {
 public:
  explicit Gathering(std::string folder) : folder_(std::move(folder)) {}

  Status Read(const std::string& name) {
    const std::string path = JoinPath(folder_, name);
    MSPROBE_ASSIGN_OR_RETURN(ComparedPart part, ReadPart(path));
    if (!parts_.empty()) MSPROBE_RETURN_IF_ERROR(CheckSame(part, parts_.begin()->second, path));
    const int64_t index = part.index;
    parts_.insert_or_assign(index, std::move(part));
    return Status::Ok();
  }
  bool empty() const { return parts_.empty(); }

  Result<ComparedPart> Gather() {
    const ComparedPart& first = parts_.begin()->second;
    ComparedPart all;
    all.index = first.index, all.count = first.count;
    all.target = first.target, all.golden = first.golden;
    all.left_out = first.left_out;
    all.joined = first.joined, all.words = first.words, all.named = first.named;
    for (auto& [index, part] : parts_) {
      // Part 1 knows whether ranks are joined; another one that ran before it may have missed it.
      if (part.joined.empty() != all.joined.empty()) {
        otherwise_.insert(index);
        continue;
      }
      found_.insert(index);
      if (!all.joined.empty()) MSPROBE_RETURN_IF_ERROR(CheckJoined(part, all));
      Take(std::move(part), &all);
    }
    const Status lost = WhyNotCompared(all);
    for (auto& [place, pair] : pairs_) {
      if (!compared_.contains(place)) Lose(lost, &pair);
      all.compared.push_back(std::move(pair));
    }
    AddLostCopies(lost, &all);
    return all;
  }

 private:
  // Pairs that a part has compared replace others.
  void Take(ComparedPart part, ComparedPart* all) {
    for (ComparedPair& pair : part.pairs) pairs_.emplace(PlaceOf(pair), std::move(pair));
    for (ComparedPair& pair : part.compared) {
      const Place place = PlaceOf(pair);
      compared_.insert(place);
      pairs_[place] = std::move(pair);
    }
    for (RankCopy& copy : part.copies) all->copies.push_back(std::move(copy));
  }

  static void Lose(const Status& lost, ComparedPair* pair) {
    pair->result.step = pair->step, pair->result.rank = pair->rank;
    pair->result.target = pair->target, pair->result.golden = pair->golden;
    pair->result.failed = lost;
  }

  static void AddLostCopies(const Status& lost, ComparedPart* all) {
    std::set<std::string> copied;
    for (const RankCopy& copy : all->copies) copied.insert(copy.path);
    const auto add = [&](const std::string& path) {
      if (copied.insert(path).second) all->copies.push_back({.path = path, .failed = lost});
    };
    for (const PairOfCopies& pair : all->joined) {
      if (pair.target_ranks.empty()) add(pair.target);
      if (pair.golden_ranks.empty()) add(pair.golden);
      for (const auto* ranks : {&pair.target_ranks, &pair.golden_ranks}) {
        for (const PairOfCopies::Rank& rank : *ranks) add(rank.path);
      }
    }
  }

  // Of a pair or a rank that a part saw, and none has compared or copied.
  Status WhyNotCompared(const ComparedPart& all) const {
    const std::string missing = MissingOf(found_, all.count);
    if (missing.empty()) return SawOtherRanks();
    Message why = "not compared: part {} of {} is missing"_t(missing, all.count);
    const bool all_there = found_.size() + otherwise_.size() == static_cast<size_t>(all.count);
    if (all_there) {
      why = "not compared: part {} of {} ran before part 1 had found whether ranks are joined"_t(
          missing, all.count);
    }
    return Unsupported(std::move(why))
        .Hint("msprobe compare {} {}{} --part {}/{} -o {}"_t(all.target, all.golden, FlagsOf(all),
                                                             missing.substr(0, missing.find(',')),
                                                             all.count, folder_));
  }

  const std::string folder_;
  std::map<int64_t, ComparedPart> parts_;
  std::set<int64_t> found_, otherwise_;
  std::map<Place, ComparedPair> pairs_;  // of all parts
  std::set<Place> compared_;
};

}  // namespace

bool IsInPart(size_t rank, size_t ranks, int64_t index, int64_t count) {
  const auto of = static_cast<uint64_t>(count), i = static_cast<uint64_t>(index);
  return rank >= (i - 1) * ranks / of && rank < i * ranks / of;
}

Status WritePart(const ComparedPart& part, const std::string& folder) {
  ArchiveWriter out;
  FieldsOfPart(out, part);
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  return WriteFileAtomically(JoinPath(folder, NameOf(part.index, part.count)),
                             std::vector<std::string>{Heading(), out.bytes()});
}

Result<ComparedPart> ReadPart(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string heading = Heading();
  std::string_view bytes = file.bytes();
  if (!bytes.starts_with(heading)) {
    return Unsupported("{} is no part of a comparison by msprobe {}"_t(path, kVersion))
        .Hint("compare the part with this version"_t);
  }
  bytes.remove_prefix(heading.size());
  ArchiveReader in(bytes, path);
  ComparedPart part;
  FieldsOfPart(in, part);
  MSPROBE_RETURN_IF_ERROR(in.End());
  return part;
}

Result<ComparedPart> ReadParts(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  Gathering parts(folder);
  for (const std::string& name : names) {
    if (name.starts_with(kBegin) && name.ends_with(kEnd)) MSPROBE_RETURN_IF_ERROR(parts.Read(name));
  }
  if (parts.empty()) {
    return NotFound(folder)
        .Expected("files such as {}"_t(NameOf(1, 2)))
        .Hint("msprobe compare TARGET GOLDEN --part 1/2 -o {}"_t(folder));
  }
  return parts.Gather();
}

std::optional<bool> JoinsInFirstPart(const ComparedPart& part, const std::string& folder) {
  const Result<ComparedPart> first = ReadPart(JoinPath(folder, NameOf(1, part.count)));
  if (!first.ok() || !IsOfSame(*first, part)) return std::nullopt;
  return !first->joined.empty();
}

}  // namespace msprobe::compare
