#include "engine/compare/ranks/compared_part.h"

#include <fmt/format.h>

#include <map>
#include <set>

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

namespace {

constexpr std::string_view kBegin = "compare_part_", kEnd = ".bin";

std::string Heading() { return fmt::format("msprobe {}: a part of a comparison\n", kVersion); }

template <typename Archive>
void FieldsOfPart(Archive& a, Archived<Archive, ComparedPart>& p) {
  a(p.index, p.count, p.target, p.golden, p.left_out, p.pairs, p.compared);
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

Status CheckSame(const ComparedPart& part, const ComparedPart& first, const std::string& path) {
  if (part.count == first.count && part.target == first.target && part.golden == first.golden)
    return Status::Ok();
  return InvalidArgument("{} is part {} of {} of {} against {}"_t(path, part.index, part.count,
                                                                  part.target, part.golden))
      .Expected("a part of {} of {} against {}"_t(first.count, first.target, first.golden))
      .Hint("remove the parts of other comparisons, or give each comparison a folder"_t);
}

// Of a pair that a part saw, and none has compared.
Status WhyNotCompared(const ComparedPart& all, const std::string& missing,
                      const std::string& folder) {
  if (missing.empty()) {  // ranks were added to a run, or removed, between two parts
    return InvalidArgument("not compared: the parts did not see the same ranks"_t)
        .Hint("compare all parts once more"_t);
  }
  return Unsupported("not compared: part {} of {} is missing"_t(missing, all.count))
      .Hint("msprobe compare {} {} --part {}/{} -o {}"_t(
          all.target, all.golden, missing.substr(0, missing.find(',')), all.count, folder));
}

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
  ComparedPart all;
  std::set<int64_t> found;
  // Of all parts. Those that a part has compared replace others.
  std::map<Place, ComparedPair> pairs;
  std::set<Place> compared;
  for (const std::string& name : names) {
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    const std::string path = JoinPath(folder, name);
    MSPROBE_ASSIGN_OR_RETURN(ComparedPart part, ReadPart(path));
    if (found.empty()) {
      all.count = part.count;
      all.target = part.target, all.golden = part.golden;
      all.left_out = std::move(part.left_out);
    }
    MSPROBE_RETURN_IF_ERROR(CheckSame(part, all, path));
    found.insert(part.index);
    for (ComparedPair& pair : part.pairs) pairs.emplace(PlaceOf(pair), std::move(pair));
    for (ComparedPair& pair : part.compared) {
      const Place place = PlaceOf(pair);
      compared.insert(place);
      pairs[place] = std::move(pair);
    }
  }
  if (found.empty()) {
    return NotFound(folder)
        .Expected("files such as {}"_t(NameOf(1, 2)))
        .Hint("msprobe compare TARGET GOLDEN --part 1/2 -o {}"_t(folder));
  }
  const Status lost = WhyNotCompared(all, MissingOf(found, all.count), folder);
  for (auto& [place, pair] : pairs) {
    if (!compared.contains(place)) {
      pair.result.step = pair.step, pair.result.rank = pair.rank;
      pair.result.target = pair.target, pair.result.golden = pair.golden;
      pair.result.failed = lost;
    }
    all.compared.push_back(std::move(pair));
  }
  return all;
}

}  // namespace msprobe::compare
