#include "engine/compare/layouts/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <optional>

#include "engine/compare/align/align.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/model/names.h"

namespace msprobe::compare::layouts {
namespace {

using Kind = ValueLayout::Kind;

// A factor is one of the run if so many of the gradients have it.
constexpr double kShareOfFactor = 0.3, kNearFactor = 2e-3;
// How far a sum over ranks is off at most, where a sentence says that it is the golden's.
constexpr double kNearSum = 1e-4;

bool IsBackward(Direction direction) {
  return direction == Direction::kBackward || direction == Direction::kParameterGrad;
}

bool Adds(const ValueLayout& layout) {
  return layout.kind == Kind::kSum || layout.kind == Kind::kMean;
}

}  // namespace

Status CheckStatistics(std::span<const RankRun> runs, const std::string& path) {
  const bool any = std::any_of(runs.begin(), runs.end(), [](const RankRun& run) {
    return std::any_of(run.dump->leaves.begin(), run.dump->leaves.end(), [](const Leaf& leaf) {
      return leaf.kind == LeafKind::kTensor && leaf.has_stats;
    });
  });
  if (any) return Status::Ok();
  return InvalidArgument()
      .At(path)
      .Expected("statistics of tensors, of which those of the whole run can be made"_t)
      .Found("none"_t)
      .Hint("record with the task statistics or tensor"_t);
}

Joining::Joining(std::span<const RankRun> runs, const Dump& golden, const std::string& path,
                 const Given& given)
    : runs_(runs),
      golden_(golden),
      given_(given),
      facts_(runs),
      joined_(runs, given.left_out ? Without(JoinCalls(runs), given.left_out) : JoinCalls(runs),
              given.names == nullptr ? golden : *given.names, path) {
  joined_.PassThrough();
  if (given.agreed != nullptr) {
    for (const AgreedValue& value : *given.agreed) partner_.push_back(value.partner);
  } else {
    FindPartners(given.joined_before);
  }
  FindBackward();
  // What wraps a model for that (DistributedDataParallel, fully_shard) is in the header.
  divided_ = given.divided || std::any_of(runs.begin(), runs.end(), [](const RankRun& run) {
               const Result<dump::ParallelLayout> layout = dump::ParallelLayoutOf(*run.dump);
               return layout.ok() && !layout->wrappers.empty();
             });
}

Result<JoinedRun> Joining::Run() {
  LayOut();
  if (!status_.ok()) return status_;
  for (size_t i = 0; i < layouts_.size(); ++i) Fill(i);
  JoinedRun run;
  Describe(&run.notes);
  run.dump = joined_.Take();
  return run;
}

void Joining::LayOut() {
  layouts_.assign(joined_.values().size(), {});
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (partner_[i] >= 0) layouts_[i] = LayoutOf(i, /*again=*/false);
  }
  factor_ = FactorOfGradients();
  divided_ = divided_ || factor_ != 1;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (partner_[i] < 0 || !IsTensor(i)) continue;
    const uint64_t content = ContentOf(i);
    if (layouts_[i].kind == Kind::kDivergent) {
      const auto found = known_.find(content);
      const bool adds = found != known_.end() && Adds(layouts_[found->second]);
      if (adds || divided_ || (IsLoss(i) && TakesParts(i)))
        layouts_[i] = LayoutOf(i, /*again=*/true);
    }
    known_.emplace(content, i);
  }
}

// `whole`: the joined dump with the shapes of whole values; null: they are not known yet.
void Joining::FindPartners(const Dump* whole) {
  partner_.assign(joined_.values().size(), -1);
  CompareOptions options;
  options.shapes_of_parts = whole == nullptr;
  const Dump& target = whole == nullptr ? joined_.dump() : *whole;
  for (const Row& row : AlignDumps(target, golden_, options).rows) {
    if (row.target >= 0 && row.golden >= 0) partner_[row.target] = row.golden;
  }
}

// A number of a forward call: each rank has that of its part of the batch.
bool Joining::IsLoss(size_t i) {
  return LeafAt(i).shape.elements() == 1 && RecordAt(i).direction == Direction::kForward &&
         !IsOptimizerCall(RecordAt(i).api);
}

// Whether its call takes a shard, or such a number.
bool Joining::TakesParts(size_t i) {
  const Record& record = RecordAt(i);
  for (uint32_t k = record.first_leaf; k < record.first_leaf + record.leaf_count; ++k) {
    const bool part =
        layouts_[k].kind == Kind::kShards || (Adds(layouts_[k]) && LeafAt(k).shape.elements() == 1);
    if (k != i && part) return true;
  }
  return false;
}

const DeclaredDims* Joining::DimsOf(size_t i) {
  if (given_.agreed != nullptr) return (*given_.agreed)[i].dims;
  if (given_.side == nullptr || partner_[i] < 0) return nullptr;
  return given_.declared->DimsOf(NamesOfValue(golden_, partner_[i]));
}

bool Joining::IsIgnored(size_t i) {
  if (given_.agreed != nullptr) return (*given_.agreed)[i].ignored;
  return given_.declared != nullptr && given_.declared->Ignores(NamesOfValue(joined_.dump(), i));
}

Shape Joining::WholeOf(size_t i) const {
  return given_.agreed != nullptr ? (*given_.agreed)[i].whole : golden_.leaves[partner_[i]].shape;
}

// `again`: what other ranks have other elements of. Where each rank has a part of the batch, these
// are losses of its part, and gradients of parameters, of which each rank has an addend.
ValueLayout Joining::LayoutOf(size_t i, bool again) {
  if (!IsTensor(i)) return {};
  if (const DeclaredDims* dims = DimsOf(i)) {
    const std::string name(golden_.leaves[partner_[i]].name.view());
    Result<ValueLayout> declared =
        given_.side->LayoutOf(*dims, joined_.values()[i], runs_, WholeOf(i), name);
    if (declared.ok()) return *std::move(declared);
    if (status_.ok()) status_ = declared.status();
    return {};
  }
  const bool means = factor_ != 1 || given_.averages;
  ValueLayout layout =
      facts_.Of(joined_.values()[i],
                {.whole = WholeOf(i),
                 .golden = &golden_.leaves[partner_[i]],
                 .averaged = again && means && IsLoss(i) && IsInForwardPass(LeafAt(i).record),
                 .added = again && (IsLoss(i) || IsBackward(RecordAt(i).direction))});
  if (given_.agreed == nullptr) return layout;
  if (!layout.padded.empty()) return {};  // of two divided vocabularies nobody knows the whole one
  const AgreedValue& agreed = (*given_.agreed)[i];
  if (layout.kind == Kind::kDivergent && agreed.summed)
    layout = facts_.Of(joined_.values()[i], {.whole = agreed.whole, .added = true});
  if (layout.kind == Kind::kShards && !agreed.ordered) layout.dimension = -1;
  return layout;
}

uint64_t Joining::ContentOf(size_t i) const {
  uint64_t hash = 1;
  for (const ValuePart& part : joined_.values()[i]) {
    const uint64_t content = ContentKey(facts_.LeafOf(part));
    hash = (hash ^ content ^ static_cast<uint64_t>(part.run + 1) * 0x9e3779b97f4a7c15) *
           0xff51afd7ed558ccd;
    hash ^= hash >> 29;
  }
  return hash;
}

// Of a value in a module whose weights lie in pieces nothing tells the order of its shards; nor of
// what is made of it.
bool Joining::IsReordered(size_t i) {
  if (given_.reordered == nullptr || given_.reordered->empty()) return false;
  const std::set<std::string>& reordered = *given_.reordered;
  const Record& record = RecordAt(i);
  if (unordered_.contains(ContentOf(i))) return true;
  if (IsOptimizerCall(record.api)) {
    return std::any_of(reordered.begin(), reordered.end(), [&](const std::string& module) {
      return LeafAt(i).name.view().find("." + module + ".") != std::string_view::npos;
    });
  }
  for (uint32_t k = record.first_leaf; k < i; ++k) {
    if (unordered_.contains(ContentOf(k))) return true;
  }
  const std::string_view around = record.is_module         ? record.api.view()
                                  : !record.parent.empty() ? WithoutCall(record.parent)
                                                           : record.module.view();
  const std::string path(PathOfModule(around));
  return std::any_of(reordered.begin(), reordered.end(), [&](const std::string& module) {
    return path == module || path.starts_with(module + ".") || module.starts_with(path + ".");
  });
}

void Joining::FindBackward() {
  const std::vector<Record>& records = joined_.dump().records;
  const auto first = std::find_if(records.begin(), records.end(), [](const Record& record) {
    return record.direction == Direction::kBackward;
  });
  first_backward_ = static_cast<uint32_t>(first - records.begin());
  for (const Record& record : records) {
    if (record.direction == Direction::kBackward)
      goes_backward_.emplace(record.api.view(), record.call);
  }
}

// Not what is computed of gradients, or of the next weights.
bool Joining::IsInForwardPass(uint32_t record) {
  const Record& of = joined_.dump().records[record];
  return record < first_backward_ || goes_backward_.contains({of.api.view(), of.call});
}

double Joining::RatioOf(size_t i, const ValueLayout& layout) {
  const Leaf& golden = golden_.leaves[partner_[i]];
  const Shape whole = layout.padded.empty() ? WholeOf(i) : joined_.dump().shapes.Of(layout.padded);
  const JoinedNumbers n = JoinNumbers(layout, joined_.values()[i], runs_, whole, /*factor=*/1);
  if (!n.known) return 0;
  if (Adds(layout)) {  // whose mean may be nothing but rounding
    const JoinedLeaf* joined = golden_.JoinedOf(partner_[i]);
    const std::optional<kernels::Sketch> own = golden_.SketchOf(partner_[i]);
    const bool rows = n.joined.rows && (joined != nullptr ? joined->rows : own.has_value());
    if (!rows) return golden.mean_value != 0 ? std::abs(n.mean / golden.mean_value) : 0;
    const std::complex<double> theirs = joined != nullptr ? joined->sketch.rows : own->rows;
    const double times = std::abs(n.joined.sketch.rows - factor_ * theirs);
    return times < std::abs(n.joined.sketch.rows - theirs) ? factor_ : 1;
  }
  return golden.norm_value > 0 ? n.norm / golden.norm_value : 0;
}

// A forward call in the middle of a backward pass may pass gradients on: an exchange of them, which
// may also average them. It may also be a forward pass that is made again.
bool Joining::PassesGradients(size_t i, const ValueLayout& layout) {
  if (given_.agreed == nullptr || LeafAt(i).record < first_backward_ || partner_[i] < 0)
    return false;
  const Record& record = RecordAt(i);
  if (record.direction != Direction::kForward || IsOptimizerCall(record.api)) return false;
  const double ratio = RatioOf(i, layout);
  return std::abs(ratio - factor_) < std::abs(ratio - 1);
}

// What each gradient is a multiple of: a rank that computes the mean over its part of the batch has
// as many times the golden's gradients as there are parts. 1: they are as the golden's.
double Joining::FactorOfGradients() {
  if (given_.factor) return *given_.factor;
  if (!given_.scales) return 1;
  std::vector<double> ratios;
  size_t parts = 1;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const ValueLayout& layout = layouts_[i];
    if (layout.kind != Kind::kWhole && layout.kind != Kind::kShards) continue;
    if (RecordAt(i).direction == Direction::kForward && layout.kind == Kind::kShards)
      parts = std::max(parts, layout.places.size());
    if (RecordAt(i).direction != Direction::kBackward || WholeOf(i).elements() < 4) continue;
    if (const double ratio = RatioOf(i, layout); std::isfinite(ratio) && ratio > 0)
      ratios.push_back(ratio);
  }
  const auto near = [&](double factor) {
    return std::count_if(ratios.begin(), ratios.end(),
                         [&](double ratio) { return std::abs(ratio / factor - 1) < kNearFactor; });
  };
  double best = 1;
  for (size_t factor = 2; factor <= parts; ++factor) {
    if (near(static_cast<double>(factor)) > near(best)) best = static_cast<double>(factor);
  }
  const auto share = static_cast<double>(near(best)) / std::max<double>(1, ratios.size());
  return share > kShareOfFactor ? best : 1;
}

// Gradients that were added up over the ranks already have no factor any more.
double Joining::FactorAt(size_t i, const ValueLayout& layout) {
  const Direction direction = RecordAt(i).direction;
  if (factor_ == 1 || layout.kind == Kind::kUnknown || layout.kind == Kind::kDivergent) return 1;
  if (!IsBackward(direction)) return PassesGradients(i, layout) ? factor_ : 1;
  if (partner_[i] < 0) return factor_;
  if (layout.kind == Kind::kWhole &&
      ContentKey(LeafAt(i)) == ContentKey(golden_.leaves[partner_[i]]))
    return 1;
  if (direction != Direction::kParameterGrad || layout.kind == Kind::kSum) return factor_;
  const double ratio = RatioOf(i, layout);
  return std::abs(ratio - factor_) < std::abs(ratio - 1) ? factor_ : 1;
}

void Joining::Fill(size_t i) {
  if (!IsTensor(i)) {
    joined_.Keep(i);
    return;
  }
  if (IsIgnored(i)) {
    const Shape whole = partner_[i] >= 0 ? golden_.leaves[partner_[i]].shape : LeafAt(i).shape;
    joined_.Close(i, whole, "not compared: --layout ignores it"_t);
    return;
  }
  ValueLayout& layout = layouts_[i];
  Shape whole = facts_.LeafOf(joined_.values()[i].front()).shape;
  if (partner_[i] >= 0) {
    if (layout.kind != Kind::kUnknown) whole = WholeOf(i);
  } else if (const auto found = known_.find(ContentOf(i));
             found != known_.end() &&
             joined_.values()[found->second].size() == joined_.values()[i].size()) {
    layout = layouts_[found->second];
    if (layout.kind != Kind::kUnknown) whole = WholeOf(found->second);
  } else {
    layout = facts_.Of(joined_.values()[i], {.whole = Shape()});
  }
  if (!layout.padded.empty()) whole = joined_.dump().shapes.Of(layout.padded);
  if (layout.kind == Kind::kUnknown) layout.places = {{0}};
  if (layout.kind == Kind::kShards && IsReordered(i)) {
    layout.dimension = -1;
    unordered_.insert(ContentOf(i));
  }
  joined_.Set(i, layout, whole, FactorAt(i, layout), AddsUp(i, layout));
}

// Whether what other ranks have other elements of would be the golden's if it were added up.
bool Joining::AddsUp(size_t i, const ValueLayout& layout) {
  if (layout.kind != Kind::kDivergent || partner_[i] < 0) return false;
  const Leaf& golden = golden_.leaves[partner_[i]];
  const std::vector<ValuePart>& parts = joined_.values()[i];
  ValueLayout sum{.kind = Kind::kSum, .places = {{}}};
  for (size_t k = 0; k < parts.size(); ++k) sum.places[0].push_back(static_cast<int32_t>(k));
  const JoinedNumbers n = JoinNumbers(sum, parts, runs_, WholeOf(i), factor_);
  const double size = std::max(n.norm, golden.norm_value);
  const std::optional<kernels::Sketch> sketch = golden_.SketchOf(partner_[i]);
  return n.known && n.joined.rows && sketch &&
         std::abs(n.joined.sketch.rows - sketch->rows) <= kNearSum * size &&
         std::abs(n.joined.sketch.wave - sketch->wave) <= kNearSum * size;
}

void Joining::Describe(std::vector<Message>* notes) {
  std::map<Kind, int64_t> counts;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    if (IsTensor(i)) ++counts[layouts_[i].kind];
  }
  notes->push_back(
      "{} ranks were joined to one run: {} values are whole on each rank that "
      "has them, {} "
      "are joined of shards, {} are sums over ranks"_t(runs_.size(), counts[Kind::kWhole],
                                                       counts[Kind::kShards],
                                                       counts[Kind::kSum] + counts[Kind::kMean]));
  if (const int64_t open = counts[Kind::kDivergent] + counts[Kind::kUnknown]; open > 0)
    notes->push_back(
        "{} values differ between ranks, and nothing says how they belong together"_t(open));
  if (factor_ != 1)
    notes->push_back(
        "before they are added up, the gradients of each rank are {} times the "
        "golden's: it computes "
        "a mean over its part of the batch"_t(factor_));
  for (const RankRun& run : runs_) {
    for (const auto& [own, other] : run.modules.renamed())
      notes->push_back("module `{}` of rank {} is the golden's `{}`"_t(own, run.rank, other));
  }
}

}  // namespace msprobe::compare::layouts
