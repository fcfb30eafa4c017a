#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/value_text.h"
#include "engine/compare/proofs/words.h"
#include "engine/compare/regions/regions.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/report_page/data_links.h"
#include "engine/report_page/element_differences.h"
#include "engine/report_page/page_calls.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_part.h"
#include "engine/report_page/page_values.h"

namespace msprobe::report_page {
namespace {

using compare::CallClass;
using compare::Comparison;
using compare::Measure;
using compare::RecordPair;
using compare::Row;

// NaN: it has none. A plain argument that differs is no distance.
double RoundingsOf(const Measure& m) {
  return m.reason == compare::Reason::kValueDiffers ? kernels::Diff::kNaN : m.severity;
}

constexpr int32_t kAround = 500;  // calls before and after the first divergence

// The values of the calls of a comparison, one line of JSON for each call.
class Values {
 public:
  Values(const Comparison& c, const ElementDifferences& differences)
      : c_(c),
        differences_(differences),
        made_by_(MakersOf(c.target)),
        takers_(c.target, made_by_) {
    pair_of_.assign(c.target.records.size(), -1);
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (c.pairs[p].target >= 0) pair_of_[c.pairs[p].target] = static_cast<int32_t>(p);
    }
  }

  // [[label, verdict, severity, target, golden, reason, made by, taken by, elements,
  // differences], ...]; golden is 0 where it is the same text as target, and a side that is not
  // there is null. The last two are only there where elements were compared.
  void AppendLine(size_t pair, std::string* line) const {
    const RecordPair& p = c_.pairs[pair];
    *line += '[';
    for (uint32_t r = p.first_row; r < p.first_row + p.row_count; ++r) {
      if (line->back() != '[') *line += ',';
      AppendRow(static_cast<int32_t>(r), line);
    }
    *line += ']';
  }

 private:
  void AppendRow(int32_t r, std::string* line) const {
    const Row& row = c_.rows[r];
    const Measure& m = c_.measures[r];
    const Leaf* target = row.target < 0 ? nullptr : &c_.target.leaves[row.target];
    const Leaf* golden = row.golden < 0 ? nullptr : &c_.golden.leaves[row.golden];
    *line += '[';
    AppendJsonString(line, compare::LeafLabel(c_, r).English());
    fmt::format_to(std::back_inserter(*line), ",{},", static_cast<int>(m.verdict));
    AppendShortNumber(RoundingsOf(m), line);
    *line += ',';
    AppendSides(target, golden, line);
    *line += ',';
    const Message note = c_.notes.empty() ? Message() : c_.notes[r];
    AppendMessage(Message::Joined({compare::ReasonText(m.reason), note}, "; "), line);
    AppendLinks(row, line);
    if (const kernels::Diff* diff = c_.DiffOf(r)) {
      AppendElements(*diff, target->shape, line);
      if (diff->unequal > 0 && dump::HasTensorData(*target)) {
        *line += ',';
        differences_.AppendJson(static_cast<uint32_t>(r), line);
      }
    }
    *line += ']';
  }

  static void AppendSides(const Leaf* target, const Leaf* golden, std::string* line) {
    std::string first, second;
    target == nullptr ? void(first = "null") : AppendSide(*target, &first);
    golden == nullptr ? void(second = "null") : AppendSide(*golden, &second);
    *line += first;
    *line += ',';
    *line += first == second ? "0" : second;
  }

  void AppendLinks(const Row& row, std::string* line) const {
    const int32_t maker = row.target < 0 ? -1 : made_by_[row.target];
    *line += ',';
    AppendInteger(line, maker < 0 ? -1 : pair_of_[maker]);
    *line += ',';
    std::vector<int32_t> takers;
    if (row.target >= 0 && c_.target.leaves[row.target].slot == Slot::kOutput) {
      const int32_t record = static_cast<int32_t>(c_.target.leaves[row.target].record);
      for (const int32_t taker : takers_.Of(record)) {
        if (Takes(taker, row.target)) takers.push_back(pair_of_[taker]);
      }
    }
    AppendCalls(takers, line);
  }

  // Whether a record takes this output, and not another one of the same call.
  bool Takes(int32_t record, int32_t output) const {
    const Leaf& made = c_.target.leaves[output];
    const auto leaves = c_.target.LeavesOf(c_.target.records[record]);
    return std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
      return leaf.slot != Slot::kOutput && leaf.norm == made.norm && leaf.mean == made.mean;
    });
  }

  static void AppendElements(const kernels::Diff& d, Shape shape, std::string* line) {
    *line += ",{";
    const auto number = [&](std::string_view name, double value) {
      if (std::isnan(value)) return;
      fmt::format_to(std::back_inserter(*line), "\"{}\":", name);
      AppendShortNumber(value, line);
      *line += ',';
    };
    number("cosine", d.cosine), number("relative L2", d.relative_l2);
    number("largest absolute error", d.max_abs_error);
    number("largest relative error", d.max_rel_error);
    number("largest ULP", d.max_ulp < 0 ? kernels::Diff::kNaN : static_cast<double>(d.max_ulp));
    if (d.count > 0) {  // a table does not say how many
      number("unequal elements", static_cast<double>(d.unequal));
      number("elements", static_cast<double>(d.count));
    }
    if (d.worst_index >= 0) {
      number("worst target", d.worst_target), number("worst golden", d.worst_golden);
      *line += "\"worst place\":";
      AppendJsonString(line, compare::IndexText(d.worst_index, shape));
      *line += ',';
    }
    line->back() = '}';
  }

  const Comparison& c_;
  const ElementDifferences& differences_;
  const std::vector<int32_t> made_by_;
  const Takers takers_;
  std::vector<int32_t> pair_of_;  // of each target record; -1: none
};

const Leaf* ShownLeaf(const Dump& dump, const Record& record) {
  const Leaf* shown = nullptr;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor) continue;
    if (leaf.slot == Slot::kOutput) return &leaf;
    if (shown == nullptr) shown = &leaf;
  }
  return shown;
}

const std::vector<std::string_view>* StackIn(const Dump& dump, int32_t record) {
  if (record < 0) return nullptr;
  const int32_t stack = dump.records[record].stack;
  return stack < 0 || static_cast<size_t>(stack) >= dump.stacks.size() ? nullptr
                                                                       : &dump.stacks[stack];
}

uint32_t ModuleIn(const Dump& dump, int32_t record, ModuleTree* modules) {
  if (record < 0) return 0;
  const Record& r = dump.records[record];
  return modules->Of(r.is_module        ? r.name.view()
                     : r.parent.empty() ? r.module.view()
                                        : r.parent.view());
}

class Part {
 public:
  Part(const Comparison& c, const PartOptions& options)
      : c_(c),
        options_(options),
        name_(fmt::format("p{}", options.index)),
        regions_(compare::RegionsOf(c)) {}

  PageText Make() {
    compare::PageRelease pages(c_.target, c_.golden);
    calls_.Reserve(c_.pairs.size());
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      AddCall(static_cast<int32_t>(p));
      pages.RowsDone(c_.pairs[p].row_count);
    }
    calls_.region = RegionNumbers();
    if (HasRewrites()) calls_.rewritten.assign(c_.rewritten.begin(), c_.rewritten.end());
    PageText html;
    calls_.AppendTo(name_, &html);
    calls_ = {};  // what follows needs as much memory
    const std::vector<uint8_t> ranks = Ranks();
    const std::vector<uint8_t> kept = Chosen(ranks);
    const ElementDifferences differences(c_, RowsByRank(ranks, kept), options_.tensor_bytes);
    const Values values(c_, differences);
    AppendBlocks(
        name_ + "-values", c_.pairs.size(),
        [&](size_t p, std::string* line) {
          if (kept[p] == 0) return;
          values.AppendLine(p, line);
          pages.RowsDone(c_.pairs[p].row_count);
        },
        &html);
    AppendProofs(ranks, &html);
    AppendText(name_ + "-head", Head(std::count(kept.begin(), kept.end(), 0)), &html);
    return html;
  }

 private:
  void AddCall(int32_t p) {
    const RecordPair& pair = c_.pairs[p];
    const Record& record = compare::RecordOf(c_, p);
    const Dump& dump = pair.target >= 0 ? c_.target : c_.golden;
    const auto* stack = StackIn(c_.target, pair.target);
    if (stack == nullptr) stack = StackIn(c_.golden, pair.golden);
    uint32_t module = ModuleIn(c_.target, pair.target, &calls_.modules);
    if (module == 0) module = ModuleIn(c_.golden, pair.golden, &calls_.modules);
    uint32_t stack_number = calls_.stacks.Of(stack);
    // A backward call has the stack and the module of its forward call, which stands before it.
    const int32_t forward = static_cast<size_t>(p) < c_.forward_of.size() ? c_.forward_of[p] : -1;
    if (forward >= 0 && forward < p) {
      if (stack_number == kNoNumber) stack_number = calls_.stack[forward];
      if (module == 0) module = calls_.module[forward];
    }
    calls_.Add({.record = &record,
                .partner = pair.matched() ? &c_.golden.records[pair.golden] : nullptr,
                .call_class = static_cast<uint8_t>(c_.classes[p]),
                .sides = pair.matched()     ? Sides::kBoth
                         : pair.target >= 0 ? Sides::kTargetOnly
                                            : Sides::kGoldenOnly,
                .module = module,
                .stack = stack_number,
                .shown = ShownLeaf(dump, record),
                .size = LargestError(pair)});
  }

  float LargestError(const RecordPair& pair) const {
    double largest = kernels::Diff::kNaN;
    for (uint32_t r = pair.first_row; r < pair.first_row + pair.row_count; ++r) {
      const double severity = RoundingsOf(c_.measures[r]);
      if (!std::isnan(severity) && !(severity <= largest)) largest = severity;
    }
    return static_cast<float>(largest);
  }

  bool HasRewrites() const {
    return std::any_of(c_.rewritten.begin(), c_.rewritten.end(), [](char r) { return r != 0; });
  }

  std::vector<uint32_t> RegionNumbers() const {
    std::vector<uint32_t> numbers;
    if (!regions_.empty()) numbers.resize(c_.pairs.size());
    for (size_t i = 0; i < regions_.size(); ++i) {
      for (const int32_t p : regions_[i].pairs) numbers[p] = static_cast<uint32_t>(i + 1);
    }
    return numbers;
  }

  // [[1 if it is wrong, the target's calls, the golden's calls], ...]; of the first regions only.
  std::string Regions() const {
    constexpr size_t kMost = 1000;
    std::string json = "[";
    for (size_t i = 0; i < std::min(regions_.size(), kMost); ++i) {
      json += fmt::format("{}[{}", i > 0 ? "," : "", regions_[i].wrong ? 1 : 0);
      for (const bool target : {true, false}) {
        json += ',';
        AppendMessage(compare::DescribeCalls(c_, regions_[i], target), &json);
      }
      json += ']';
    }
    return json + ']';
  }

  // Of each call: 0 where a person looks first, to 3, where all is equal.
  std::vector<uint8_t> Ranks() const {
    std::vector<uint8_t> ranks;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      const bool near =
          c_.first.pair >= 0 && std::abs(static_cast<int32_t>(p) - c_.first.pair) <= kAround;
      const CallClass k = c_.classes[p];
      ranks.push_back(near || k == CallClass::kIntroduced                      ? 0
                      : k == CallClass::kInherited || k == CallClass::kUnknown ? 1
                      : k == CallClass::kNoise                                 ? 2
                                                                               : 3);
    }
    return ranks;
  }

  std::vector<uint8_t> Chosen(std::span<const uint8_t> ranks) const {
    constexpr uint32_t kBytesOfRow = 110;
    std::vector<uint32_t> costs;
    for (const RecordPair& pair : c_.pairs) costs.push_back(2 + kBytesOfRow * pair.row_count);
    return ChooseCalls(costs, ranks, options_.value_bytes);
  }

  // [1 if farther values are left out, [depth, 1 if a wrong result is made of it, sentence], ...]
  // of each call that is not plainly equal.
  void AppendProofs(std::span<const uint8_t> ranks, PageText* html) const {
    if (!c_.decided || c_.decided->proofs == nullptr) return;
    constexpr size_t kMostLines = 40;
    constexpr uint32_t kBytesOfLine = 130;
    const std::vector<uint32_t> costs(c_.pairs.size(), kMostLines * kBytesOfLine);
    const std::vector<uint8_t> kept = ChooseCalls(costs, ranks, options_.proof_bytes);
    const auto append = [&](size_t p, std::string* line) {
      if (kept[p] == 0 || c_.classes[p] == CallClass::kEqual) return;
      const auto chain = compare::ChainOf(c_, static_cast<int32_t>(p), kMostLines);
      if (chain.lines.empty()) return;
      *line += chain.more ? "[1" : "[0";
      for (const compare::ProofLine& each : chain.lines) {
        fmt::format_to(std::back_inserter(*line), ",[{},{},", each.depth, each.exposed ? 1 : 0);
        AppendMessage(each.text, line);
        *line += ']';
      }
      *line += ']';
    };
    AppendBlocks(name_ + "-proofs", c_.pairs.size(), append, html);
  }

  // The rows of calls that keep their values: those of the first divergence, then by the ranks.
  std::vector<uint32_t> RowsByRank(std::span<const uint8_t> ranks,
                                   std::span<const uint8_t> kept) const {
    std::vector<uint32_t> rows;
    if (c_.diffs.empty()) return rows;
    const auto add = [&](size_t p) {
      const RecordPair& pair = c_.pairs[p];
      for (uint32_t r = 0; r < pair.row_count; ++r) rows.push_back(pair.first_row + r);
    };
    if (c_.first.pair >= 0) add(static_cast<size_t>(c_.first.pair));
    for (uint8_t rank = 0; rank < 3; ++rank) {
      for (size_t p = 0; p < ranks.size(); ++p) {
        if (ranks[p] == rank && kept[p] != 0 && static_cast<int64_t>(p) != c_.first.pair) add(p);
      }
    }
    return rows;
  }

  std::string Head(int64_t without_values) const {
    std::string json = "{\"classes\":[";
    for (int k = 0; k < 5; ++k) {
      if (k > 0) json += ',';
      AppendJsonString(&json, compare::ClassName(static_cast<CallClass>(k)));
    }
    if (HasRewrites()) json += ",\"rewrite\"";  // beside the class of the call
    json += fmt::format(
        "],\"calls\":{},\"first\":{},\"step\":{},\"rank\":{},\"withoutValues\":{},\"block\":{},"
        "\"sizeName\":\"roundings\",\"proofs\":{},\"target\":",
        c_.pairs.size(), c_.first.pair, options_.step, options_.rank, without_values, kCallsOfBlock,
        c_.decided ? 1 : 0);
    AppendJsonString(&json, c_.target.path);
    json += ",\"golden\":";
    AppendJsonString(&json, c_.golden.path);
    json += ",\"why\":";
    AppendMessage(c_.first.why, &json);
    json += ",\"advice\":";
    AppendMessage(c_.first.advice, &json);
    json += ",\"source\":";
    AppendJsonString(&json, c_.first.source_line);
    json += ",\"caller\":";
    AppendJsonString(&json, c_.first.caller_line);
    json += ",\"goldenLine\":";
    AppendJsonString(&json, c_.first.golden_line);
    return json + ",\"regions\":" + Regions() + '}';
  }

  const Comparison& c_;
  const PartOptions& options_;
  const std::string name_;
  const std::vector<compare::Region> regions_;
  CallColumns calls_;
};

}  // namespace

PagePart PartOf(const Comparison& comparison, const PartOptions& options) {
  return {.html = Part(comparison, options).Make()};
}

}  // namespace msprobe::report_page
