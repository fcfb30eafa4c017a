#include "engine/compare/layouts/join_both.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/align/align.h"
#include "engine/compare/layouts/declared_layout.h"
#include "engine/compare/layouts/joined_weights.h"
#include "engine/compare/layouts/joining.h"
#include "engine/compare/layouts/whole_shape.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/measure/run_start.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare::layouts {
namespace {

// The ranks of one side.
struct Side {
  explicit Side(RanksOfSide from) : path(std::move(from.path)) {
    for (RankDump& rank : from.ranks) {
      before.push_back(dump::WeightsBefore(rank.dump));
      after.push_back(dump::WeightsAfter(rank.dump));
      runs.push_back(
          {.rank = rank.rank, .dump = std::make_shared<const Dump>(std::move(rank.dump))});
    }
  }
  // A weight of several ranks once, so that its content tells where it is.
  std::vector<StepWeight> Weights() const {
    std::vector<StepWeight> all;
    std::set<std::pair<std::string_view, std::string_view>> seen;
    for (const std::vector<StepWeight>& of_rank : before) {
      for (const StepWeight& weight : of_rank) {
        if (seen.emplace(weight.name, weight.fingerprint).second) all.push_back(weight);
      }
    }
    return all;
  }
  // Whether all exchanges of several tensors are those of all ranks.
  bool IsDividedOneWay() const {
    std::set<std::string_view> groups;
    for (const RankRun& run : runs) {
      for (const Record& record : run.dump->records) {
        const std::optional<Exchange> exchange = ExchangeOf(*run.dump, record);
        if (exchange && !IsPointToPoint(*exchange)) groups.insert(exchange->ranks);
      }
    }
    return groups.size() <= 1;
  }

  std::string path;
  std::vector<RankRun> runs;
  std::vector<std::vector<StepWeight>> before, after;
};

class BothSides {
  using Kind = ValueLayout::Kind;

 public:
  BothSides(Side target, Side golden, const DeclaredLayout* declared)
      : target_(std::move(target)),
        golden_(std::move(golden)),
        target_facts_(target_.runs),
        golden_facts_(golden_.runs),
        one_way_(target_.IsDividedOneWay() && golden_.IsDividedOneWay()),
        declared_(declared) {
    weights_ = WholeWeights(target_.runs, target_.before, golden_.runs, golden_.before, one_way_);
    const std::vector<StepWeight> of_golden = JoinWeights(golden_.runs, golden_.before, weights_);
    reordered_ = ReorderedModules(target_.runs, target_.before, of_golden);
  }

  Result<JoinedSides> Run() {
    if (declared_ != nullptr) {
      target_side_.emplace(declared_->target_mesh, *declared_);
      golden_side_.emplace(declared_->golden_mesh, *declared_);
      if (!declared_->dims.empty()) {
        MSPROBE_RETURN_IF_ERROR(target_side_->Check(target_.runs.size(), target_.path));
        MSPROBE_RETURN_IF_ERROR(golden_side_->Check(golden_.runs.size(), golden_.path));
      }
    }
    JoinedSides sides = Draft();
    MSPROBE_RETURN_IF_ERROR(Agree(sides.target, sides.golden));
    FindUnrelated(sides);
    if (!unrelated_.empty()) sides = Draft();
    // First calls find their partners by the shapes and numbers of parts, then by those of the
    // whole.
    for (int pass = 0; pass < 2; ++pass) {
      MSPROBE_RETURN_IF_ERROR(Agree(sides.target, sides.golden));
      MSPROBE_ASSIGN_OR_RETURN(sides, JoinOnce(sides));
    }
    sides.target.began_with = JoinWeights(target_.runs, target_.before, weights_);
    sides.target.left_behind = JoinWeights(target_.runs, target_.after, weights_);
    sides.golden.began_with = JoinWeights(golden_.runs, golden_.before, weights_);
    sides.golden.left_behind = JoinWeights(golden_.runs, golden_.after, weights_);
    return sides;
  }

 private:
  // Stages of other pipelines send other values, and exchanges that stand at one place may have
  // nothing in common but their name. The golden is compared as one process, which makes no such
  // calls.
  bool IsLeftOut(const JoinedCall& call) const {
    const RankCall& of = call.of.front();
    const Dump& dump = *golden_.runs[of.run].dump;
    const std::optional<Exchange> exchange = ExchangeOf(dump, dump.records[of.record]);
    return exchange && (IsPointToPoint(*exchange) ||
                        unrelated_.contains(LineOf(dump, dump.records[of.record])));
  }

  // Both sides with the numbers of parts.
  JoinedSides Draft() {
    const Dump none;
    const auto left_out = [this](const JoinedCall& call) { return IsLeftOut(call); };
    JoinedDump golden(golden_.runs, Without(JoinCalls(golden_.runs), left_out), none, golden_.path);
    golden.PassThrough();
    JoinedDump target(target_.runs, JoinCalls(target_.runs), golden.dump(), target_.path);
    target.PassThrough();
    golden_parts_ = golden.values();
    target_parts_ = target.values();
    return {.target = target.Take(), .golden = golden.Take(), .notes = {}};
  }

  // The API and the line of a call.
  static std::string LineOf(const Dump& dump, const Record& record) {
    const bool known = record.stack >= 0 && !dump.stacks[record.stack].empty();
    return fmt::format("{} {}", record.api.view(),
                       known ? dump.stacks[record.stack].front() : std::string_view());
  }

  // Lines of exchanges of which no tensor is a part of what its partner's is: one side exchanges
  // activations, and the other one gradients.
  void FindUnrelated(const JoinedSides& sides) {
    std::map<std::string, bool> related;  // by line
    for (const Record& record : sides.golden.records) {
      if (!ExchangeOf(sides.golden, record)) continue;
      for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
        if (of_golden_[i].partner < 0 || sides.golden.leaves[i].kind != LeafKind::kTensor) continue;
        related[LineOf(sides.golden, record)] |= !of_golden_[i].whole.empty();
      }
    }
    for (const auto& [line, any] : related) {
      if (!any) unrelated_.insert(line);
    }
  }

  // What both sides say of each value that has a partner.
  Status Agree(const Dump& target, const Dump& golden) {
    of_target_.assign(target.leaves.size(), {});
    of_golden_.assign(golden.leaves.size(), {});
    CompareOptions options;
    options.shapes_of_parts = true;
    for (const Row& row : AlignDumps(target, golden, options).rows) {
      if (row.target < 0 || row.golden < 0) continue;
      AgreedValue& a = of_target_[row.target];
      AgreedValue& b = of_golden_[row.golden];
      a.partner = row.golden;
      b.partner = row.target;
      if (target.leaves[row.target].kind != LeafKind::kTensor ||
          golden.leaves[row.golden].kind != LeafKind::kTensor)
        continue;
      MSPROBE_RETURN_IF_ERROR(AskUser(target, row.target, golden, row.golden));
      if (a.dims != nullptr) continue;
      const Direction direction = target.records[target.leaves[row.target].record].direction;
      const WholeShape whole = WholeOf(target_facts_.Summarize(target_parts_[row.target]),
                                       golden_facts_.Summarize(golden_parts_[row.golden]),
                                       {.one_way = one_way_,
                                        .gradient = direction == Direction::kBackward ||
                                                    direction == Direction::kParameterGrad});
      if (!whole.known) continue;
      a.whole = b.whole = shapes_.Of(whole.extents);
      a.ordered = b.ordered = whole.ordered;
      a.summed = b.summed = whole.summed;
      // An exchange of one side adds up what belongs to a sum on the other side, too.
      const Kind mine = target_facts_.Of(target_parts_[row.target], {.whole = a.whole}).kind;
      const Kind other = golden_facts_.Of(golden_parts_[row.golden], {.whole = b.whole}).kind;
      a.summed |= other == Kind::kSum;
      b.summed |= mine == Kind::kSum;
    }
    return Status::Ok();
  }

  // What the user says of a value. Both sides must be parts of one whole.
  Status AskUser(const Dump& target, int32_t mine, const Dump& golden, int32_t other) {
    if (declared_ == nullptr) return Status::Ok();
    AgreedValue& a = of_target_[mine];
    AgreedValue& b = of_golden_[other];
    std::vector<std::string> names = NamesOfValue(golden, other);
    for (std::string& name : NamesOfValue(target, mine)) names.push_back(std::move(name));
    a.ignored = b.ignored = declared_->Ignores(names);
    const DeclaredDims* dims = declared_->DimsOf(names);
    if (dims == nullptr) return Status::Ok();
    MSPROBE_ASSIGN_OR_RETURN(
        const std::vector<int64_t> whole,
        golden_side_->WholeOf(*dims, golden_parts_[other], golden_.runs, names.front()));
    a.whole = b.whole = shapes_.Of(whole);
    a.dims = b.dims = dims;
    return Status::Ok();
  }

  Joining::Given Given(const std::vector<AgreedValue>& agreed, const Dump& names,
                       bool scales) const {
    return {.reordered = &reordered_,
            .agreed = &agreed,
            .names = &names,
            .left_out = LeftOut(agreed),
            .divided = divided_,
            .averages = averages_,
            .scales = scales,
            .side = &agreed == &of_golden_ ? OrNull(golden_side_) : OrNull(target_side_),
            .declared = declared_,
            .factor = FactorOf(agreed, scales)};
  }

  std::function<bool(const JoinedCall&)> LeftOut(const std::vector<AgreedValue>& agreed) const {
    if (&agreed != &of_golden_) return nullptr;
    return [this](const JoinedCall& call) { return IsLeftOut(call); };
  }

  static const DeclaredSide* OrNull(const std::optional<DeclaredSide>& side) {
    return side ? &*side : nullptr;
  }

  // The factor that the user says is the target's; the golden's gradients are then not scaled.
  std::optional<double> FactorOf(const std::vector<AgreedValue>& agreed, bool scales) const {
    if (declared_ == nullptr || !declared_->gradient_factor || !scales) return std::nullopt;
    return &agreed == &of_target_ ? *declared_->gradient_factor : 1;
  }

  Result<JoinedSides> JoinOnce(const JoinedSides& before) {
    divided_ = averages_ = false;
    MSPROBE_ASSIGN_OR_RETURN(JoinedSides sides, JoinWith(before, /*scales_golden=*/false));
    // Gradients may be multiples of the other side's on either side; then losses are those of
    // parts, too.
    const double factor = target_factor_;
    if (factor == 1) {
      Joining other(golden_.runs, sides.target, golden_.path,
                    Given(of_golden_, before.golden, /*scales=*/true));
      MSPROBE_RETURN_IF_ERROR(other.Run().status());
      if (other.factor() == 1) return sides;
    }
    averages_ = true;
    return JoinWith(factor == 1 ? sides : before, /*scales_golden=*/factor == 1);
  }

  // The golden first, by the shapes of `before`, then the target by the numbers of the golden.
  Result<JoinedSides> JoinWith(const JoinedSides& before, bool scales_golden) {
    Joining golden(golden_.runs, before.target, golden_.path,
                   Given(of_golden_, before.golden, scales_golden));
    MSPROBE_ASSIGN_OR_RETURN(JoinedRun of_golden, golden.Run());
    divided_ = divided_ || golden.divided();
    Joining target(target_.runs, of_golden.dump, target_.path,
                   Given(of_target_, of_golden.dump, !scales_golden));
    MSPROBE_ASSIGN_OR_RETURN(JoinedRun of_target, target.Run());
    target_factor_ = target.factor();
    if (target.divided() && !divided_) {  // then the golden's gradients may be addends, too
      divided_ = true;
      return JoinWith(before, scales_golden);
    }
    JoinedSides sides{.target = std::move(of_target.dump), .golden = std::move(of_golden.dump)};
    const int64_t open = CloseOpen(target.layouts(), golden.layouts(), &sides);
    ForgetOrders(&sides);
    for (const auto& [name, notes] :
         {std::pair("target"_t, &of_target.notes), std::pair("golden"_t, &of_golden.notes)}) {
      for (const Message& note : *notes) sides.notes.push_back(Message::Joined({name, note}, ": "));
    }
    if (open > 0) {
      sides.notes.push_back(
          "{} values are not compared: what the ranks of both sides hold does not tell the whole"_t(
              open));
    }
    return sides;
  }

  // Takes the numbers of values out that nothing relates.
  int64_t CloseOpen(const std::vector<ValueLayout>& target, const std::vector<ValueLayout>& golden,
                    JoinedSides* sides) {
    std::vector<char> open_target(target.size(), 0), open_golden(golden.size(), 0);
    int64_t open = 0;
    for (size_t i = 0; i < of_target_.size(); ++i) {
      const int32_t partner = of_target_[i].partner;
      if (partner < 0 || sides->target.leaves[i].kind != LeafKind::kTensor) continue;
      const Kind a = target[i].kind, b = golden[partner].kind;
      const auto is_open = [](Kind kind) {
        return kind == Kind::kDivergent || kind == Kind::kUnknown;
      };
      const bool one_whole = (a == Kind::kWhole && b == Kind::kDivergent) ||
                             (b == Kind::kWhole && a == Kind::kDivergent);
      if ((!is_open(a) && !is_open(b)) || one_whole || of_target_[i].ignored) continue;
      ++open;
      open_target[i] = open_golden[partner] = 1;
      // No shape is right: one says the least.
      sides->target.leaves[i].shape =
          sides->target.shapes.Of(sides->golden.leaves[partner].shape.view());
    }
    Blank(open_target, target_facts_, target_parts_, &sides->target);
    Blank(open_golden, golden_facts_, golden_parts_, &sides->golden);
    return open;
  }

  // Buffers of an exchange hold the parts of its ranks one after the other: those of other ranks,
  // in another order.
  void ForgetOrders(JoinedSides* sides) const {
    std::vector<char> target(sides->target.leaves.size(), 0),
        golden(sides->golden.leaves.size(), 0);
    for (size_t i = 0; i < of_target_.size(); ++i) {
      const int32_t partner = of_target_[i].partner;
      const Leaf& leaf = sides->target.leaves[i];
      if (partner < 0 || leaf.kind != LeafKind::kTensor || leaf.shape.extents().size() != 1)
        continue;
      const Record& mine = sides->target.records[leaf.record];
      const Record& other = sides->golden.records[sides->golden.leaves[partner].record];
      const std::optional<Exchange> a = ExchangeOf(sides->target, mine);
      const std::optional<Exchange> b = ExchangeOf(sides->golden, other);
      if (!a || !b || a->ranks == b->ranks) continue;
      if (a->kind.starts_with("all_gather") || a->kind.starts_with("reduce_scatter"))
        target[i] = golden[partner] = 1;
    }
    ForgetOrder(target, &sides->target);
    ForgetOrder(golden, &sides->golden);
  }

  static void ForgetOrder(const std::vector<char>& which, Dump* dump) {
    const auto is_one = [&](const auto& item) { return which[item.leaf] != 0; };
    std::erase_if(dump->sketches, is_one);
    for (size_t i = 0; i < which.size(); ++i) {
      if (which[i] != 0) dump->leaves[i].fingerprint = std::string_view();
    }
    for (JoinedLeaf& joined : dump->joined) {
      if (!is_one(joined)) continue;
      joined.rows = joined.squares = joined.wave = false;
      joined.sketch.grid.reset();
    }
  }

  // What all ranks hold of it tells only where it goes.
  static void Blank(const std::vector<char>& open, const LayoutFacts& facts,
                    const std::vector<std::vector<ValuePart>>& parts, Dump* dump) {
    TextArena arena;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i] == 0) continue;
      Leaf& leaf = dump->leaves[i];
      leaf.has_stats = false;
      leaf.max = leaf.min = leaf.mean = leaf.norm = std::string_view();
      leaf.max_value = leaf.min_value = leaf.mean_value = leaf.norm_value = NAN;
      uint64_t content = HashText("open");
      for (const ValuePart& part : parts[i])
        content = (content ^ ContentKey(facts.LeafOf(part))) * 0x9e3779b97f4a7c15 + 1;
      std::string text;
      AppendHex(&text, content, 16);
      leaf.fingerprint = arena.Copy(text);
    }
    arena.Release(&dump->arena);
    const auto closed = std::make_shared<const Message>(
        "not compared: nothing says how the parts of both sides belong together"_t);
    const auto is_open = [&](const auto& item) { return open[item.leaf] != 0; };
    std::erase_if(dump->sketches, is_open);
    std::erase_if(dump->rests, is_open);
    for (JoinedLeaf& joined : dump->joined) {
      if (!is_open(joined)) continue;
      joined.sum = joined.rows = joined.squares = joined.wave = false;
      joined.sketch.grid.reset();
      joined.how = closed;
    }
  }

  Side target_, golden_;
  const LayoutFacts target_facts_, golden_facts_;
  const bool one_way_;
  const DeclaredLayout* declared_;
  std::optional<DeclaredSide> target_side_, golden_side_;
  std::vector<StepWeight> weights_;  // names and shapes of the whole
  std::set<std::string> reordered_;
  std::vector<std::vector<ValuePart>> target_parts_, golden_parts_;  // of each leaf
  std::vector<AgreedValue> of_target_, of_golden_;
  std::set<std::string> unrelated_;  // lines of the golden's exchanges
  ShapePool shapes_;
  double target_factor_ = 1;
  bool divided_ = false, averages_ = false;
};

// Whether the ranks that were recorded are all of the run.
Status CheckAllRanks(const Side& side) {
  const size_t processes = ProcessesOf(*side.runs.front().dump);
  if (processes == side.runs.size()) return Status::Ok();
  return InvalidArgument()
      .At(side.path)
      .Expected("all ranks of the run, which are joined to compare two runs of other layouts"_t)
      .Found(processes == 0 ? "{} ranks, and no word on how many the run had"_t(side.runs.size())
                            : "{} of {} ranks"_t(side.runs.size(), processes))
      .Hint(
          "record both runs on the same number of ranks; if they had that, and one recorded only "
          "some, --common compares the ranks that both have"_t);
}

}  // namespace

Result<JoinedSides> JoinBoth(RanksOfSide target, RanksOfSide golden,
                             const DeclaredLayout* declared) {
  Side a(std::move(target)), b(std::move(golden));
  MSPROBE_RETURN_IF_ERROR(CheckAllRanks(a));
  MSPROBE_RETURN_IF_ERROR(CheckAllRanks(b));
  MSPROBE_RETURN_IF_ERROR(CheckStatistics(a.runs, a.path));
  MSPROBE_RETURN_IF_ERROR(CheckStatistics(b.runs, b.path));
  const std::vector<StepWeight> weights = b.Weights();
  for (size_t i = 0; i < a.runs.size(); ++i) {
    a.runs[i].modules = ModuleNames(a.before[i], weights);
    if (declared != nullptr) a.runs[i].modules.Declare(declared->modules);
  }
  return BothSides(std::move(a), std::move(b), declared).Run();
}

}  // namespace msprobe::compare::layouts
