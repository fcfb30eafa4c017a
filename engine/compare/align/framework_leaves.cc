#include "engine/compare/align/framework_leaves.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/compare/align/call_index.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/model/left_unwritten.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/parameter_names.h"

namespace msprobe::compare {
namespace {

using Leaves = std::vector<uint32_t>;  // indices into Dump::leaves

bool GoesIn(const Leaf& leaf) { return SlotClass(leaf.slot) == SlotClass(Slot::kInput); }

Leaves TensorsOf(const Dump& dump, uint32_t record, bool output, bool with_none = false) {
  Leaves out;
  const Record& r = dump.records[record];
  for (uint32_t i = r.first_leaf; i < r.first_leaf + r.leaf_count; ++i) {
    const Leaf& leaf = dump.leaves[i];
    const bool kind = leaf.kind == LeafKind::kTensor || (with_none && leaf.kind == LeafKind::kNone);
    // What nobody wrote, and an argument behind the call, is no partner of a result.
    if (kind && !LeftUnwritten(dump, static_cast<int32_t>(i)) && !IsChangedInPlace(leaf, r) &&
        (output ? leaf.slot == Slot::kOutput : GoesIn(leaf)))
      out.push_back(i);
  }
  return out;
}

std::set<uint64_t> ContentsOf(const Dump& dump, const Leaves& leaves) {
  std::set<uint64_t> out;
  for (const uint32_t i : leaves) out.insert(ContentKey(dump.leaves[i]));
  out.erase(0);
  return out;
}

bool SameShape(const Leaf& a, const Leaf& b) { return a.shape.SameWithoutOnes(b.shape); }

constexpr uint32_t kNone = UINT32_MAX;

// Links the tensors of one call with those of the calls that together compute the same.
class GroupLinker {
 public:
  GroupLinker(const Dump& many, std::span<const uint32_t> members, const Dump& one, uint32_t whole,
              bool many_is_target, bool same_operation, LeafLinks* links)
      : many_(many),
        members_(members),
        one_(one),
        whole_(whole),
        many_is_target_(many_is_target),
        same_operation_(same_operation),
        links_(*links) {}

  void LinkForward() {
    const Leaves made = TensorsOf(many_, members_.back(), true),
                 result = TensorsOf(one_, whole_, true);
    LinkInOrder(made, result, true);
    const bool same_shape =
        !made.empty() && !result.empty() && SameShape(Many(made[0]), One(result[0]));
    LinkInputs(same_shape);
    if (same_operation_ && members_.size() == 1) LinkPlain();
    Close(many_, members_, many_is_target_);
    Close(one_, std::span(&whole_, 1), !many_is_target_);
  }

  // The backward records of the same calls; kNone: not recorded.
  void LinkBackward(std::span<const uint32_t> members, uint32_t whole) {
    if (whole == kNone) return;
    std::set<uint64_t> passed;  // gradients that one part hands to another
    const Leaves wanted = TensorsOf(one_, whole, false);
    const uint32_t last = members.back();
    if (last != kNone) LinkInOrder(TensorsOf(many_, last, false), wanted, true);
    for (const uint32_t member : members) {
      if (member == kNone) continue;
      if (member != last) LinkPassed(TensorsOf(many_, member, false), last);
      if (member != last) passed.merge(ContentsOf(many_, TensorsOf(many_, member, false)));
    }
    LinkGradients(members, whole, passed);
    for (const uint32_t member : members) {
      if (member != kNone) Close(many_, std::span(&member, 1), many_is_target_);
    }
    Close(one_, std::span(&whole, 1), !many_is_target_);
  }

 private:
  // A tensor that a member takes and no other member made.
  struct Outside {
    size_t member = 0, place = 0;  // place among the tensors that the member takes
    uint32_t leaf = 0;
  };

  const Leaf& Many(uint32_t leaf) const { return many_.leaves[leaf]; }
  const Leaf& One(uint32_t leaf) const { return one_.leaves[leaf]; }
  bool Transposed(uint32_t many, uint32_t one) const {
    return IsTransposed(Many(many).shape, One(one).shape);
  }

  bool Link(uint32_t many, uint32_t one, bool again = false) {
    const uint32_t target = many_is_target_ ? many : one, golden = many_is_target_ ? one : many;
    if (links_.golden_of[target] >= 0 || (links_.taken[golden] && !again)) return false;
    links_.golden_of[target] = static_cast<int32_t>(golden);
    links_.taken[golden] = 1;
    return true;
  }

  // Links those of the same shape, first at the same place; with `first` also the first two when
  // nothing else fits: then a shape differs.
  void LinkInOrder(const Leaves& many, const Leaves& one, bool first) {
    std::vector<char> used_many(many.size(), 0), used_one(one.size(), 0);
    bool any = false;
    const auto link = [&](size_t i, size_t j) {
      if (used_many[i] || used_one[j] || !SameShape(Many(many[i]), One(one[j]))) return;
      used_many[i] = used_one[j] = 1;
      any = true;
      Link(many[i], one[j]);
    };
    for (size_t i = 0; i < std::min(many.size(), one.size()); ++i) link(i, i);
    for (size_t i = 0; i < many.size(); ++i) {
      for (size_t j = 0; j < one.size() && !used_many[i]; ++j) link(i, j);
    }
    if (first && !any && !many.empty() && !one.empty()) Link(many[0], one[0]);
  }

  // Plain values that a Primitive was constructed with, and the arguments of the same meaning.
  void LinkPlain() {
    const Record &primitive = many_.records[members_[0]], &function = one_.records[whole_];
    for (uint32_t i = primitive.first_leaf; i < primitive.first_leaf + primitive.leaf_count; ++i) {
      if (Many(i).kind != LeafKind::kScalar || Many(i).slot != Slot::kKwarg) continue;
      const std::string_view wanted = ArgumentOfConstructor(LeafPlace(Many(i), primitive));
      if (wanted.empty()) continue;
      for (uint32_t j = function.first_leaf; j < function.first_leaf + function.leaf_count; ++j) {
        if (One(j).kind != LeafKind::kScalar || !GoesIn(One(j))) continue;
        const std::string_view place = LeafPlace(One(j), function);
        size_t position = 0;
        const auto [end, error] =
            std::from_chars(place.data(), place.data() + place.size(), position);
        const bool by_place = error == std::errc() && end == place.data() + place.size();
        const std::string name =
            by_place ? ParameterName(one_, function, position) : std::string(place);
        if (name != wanted) continue;
        Link(i, j);
        break;
      }
    }
  }

  std::vector<Outside> FromOutside() const {
    std::vector<Outside> out;
    std::set<uint64_t> made;
    for (size_t m = 0; m < members_.size(); ++m) {
      const Leaves in = TensorsOf(many_, members_[m], false);
      for (size_t q = 0; q < in.size(); ++q) {
        const uint64_t key = ContentKey(Many(in[q]));
        const bool inside = key == 0 ? m > 0 && q == 0 : made.contains(key);
        if (!inside) out.push_back({m, q, in[q]});
      }
      made.merge(ContentsOf(many_, TensorsOf(many_, members_[m], true)));
    }
    return out;
  }

  void LinkInputs(bool same_result_shape) {
    wanted_ = TensorsOf(one_, whole_, false);
    origin_.assign(wanted_.size(), {});
    // The last of several calls of which the others were not found: what it takes is not known.
    if (!same_operation_ && members_.size() == 1) return;
    const std::vector<Outside> outside = FromOutside();
    std::vector<char> linked(outside.size(), 0), used(wanted_.size(), 0);
    const auto link = [&](size_t i, size_t j, bool fits) {
      if (!fits || linked[i] || used[j]) return;
      linked[i] = used[j] = 1;
      origin_[j] = outside[i];
      has_origin_.insert(j);
      Link(outside[i].leaf, wanted_[j]);
    };
    const auto same = [&](size_t i, size_t j) {
      return SameShape(Many(outside[i].leaf), One(wanted_[j]));
    };
    for (size_t i = 0; i < outside.size(); ++i) {
      const auto order = ArgumentOrderOf(many_.records[members_[outside[i].member]].api);
      const size_t q = outside[i].place;
      size_t j = same_operation_ && members_.size() == 1 ? q : wanted_.size();
      if (q < order.size()) j = static_cast<size_t>(order[q]);
      if (j < wanted_.size()) link(i, j, same(i, j));
    }
    for (size_t i = 0; i < outside.size(); ++i) {
      for (size_t j = 0; j < wanted_.size() && !linked[i]; ++j) link(i, j, same(i, j));
    }
    for (size_t i = 0; i < outside.size(); ++i) {
      for (size_t j = 0; j < wanted_.size() && !linked[i]; ++j)
        link(i, j, Transposed(outside[i].leaf, wanted_[j]));
    }
    if (same_result_shape || members_.size() != 1) return;
    for (size_t i = 0; i < std::min(outside.size(), wanted_.size()); ++i) link(i, i, true);
  }

  // A part may hand the gradient on that it was given (BiasAdd): the next part is then given what
  // the whole call is given.
  void LinkPassed(const Leaves& in, uint32_t last) {
    if (last == kNone) return;
    for (const uint32_t given : TensorsOf(many_, last, false)) {
      const uint64_t key = ContentKey(Many(given));
      const int32_t partner = PartnerOf(given);
      if (key == 0 || partner < 0) continue;
      for (const uint32_t leaf : in) {
        if (ContentKey(Many(leaf)) == key && SameShape(Many(leaf), One(partner)) && many_is_target_)
          Link(leaf, static_cast<uint32_t>(partner), true);
      }
    }
  }
  int32_t PartnerOf(uint32_t many) const { return many_is_target_ ? links_.golden_of[many] : -1; }

  void LinkGradients(std::span<const uint32_t> members, uint32_t whole,
                     const std::set<uint64_t>& passed) {
    // The gradients of the last of several calls of which the others were not found belong to
    // tensors that the other framework does not show.
    if (!same_operation_ && members_.size() == 1) return;
    const Leaves wanted = TensorsOf(one_, whole, true, true);
    std::vector<Leaves> made;
    for (const uint32_t member : members)
      made.push_back(member == kNone ? Leaves() : TensorsOf(many_, member, true, true));
    GradientLinks links{wanted, std::vector<char>(wanted.size(), 0), {}};
    // By the forward call, where the one side lists gradients as it lists arguments.
    if (FactsOf(one_.dialect).orders_gradients_by_argument && wanted.size() == wanted_.size()) {
      for (const size_t j : has_origin_) LinkByOrigin(made[origin_[j].member], j, &links);
    }
    for (const bool transposed : {false, true}) {
      for (size_t m = 0; m < made.size(); ++m) {
        Leaves out = made[m];
        if (ArrivalOrder(members_[m])) std::reverse(out.begin(), out.end());
        for (const uint32_t leaf : out) {
          if (!passed.contains(ContentKey(Many(leaf)))) LinkByShape(leaf, transposed, &links);
        }
      }
    }
  }

  // Gradients of the one call, and which of them have a partner.
  struct GradientLinks {
    const Leaves& wanted;
    std::vector<char> used;
    std::set<uint32_t> linked;  // leaves of the other side
  };

  void LinkGradient(uint32_t leaf, size_t j, GradientLinks* links) {
    if (links->used[j] || links->linked.contains(leaf)) return;
    links->used[j] = 1;
    links->linked.insert(leaf);
    Link(leaf, links->wanted[j]);
  }

  bool AreTensors(uint32_t many, uint32_t one) const {
    return Many(many).kind == LeafKind::kTensor && One(one).kind == LeafKind::kTensor;
  }

  // `out`: the gradients of the member whose argument is wanted gradient j.
  void LinkByOrigin(const Leaves& out, size_t j, GradientLinks* links) {
    const size_t q = origin_[j].place, n = out.size();
    if (q >= n) return;
    const bool reversed = ArrivalOrder(members_[origin_[j].member]);
    for (const bool from_end : {reversed, !reversed}) {
      const uint32_t leaf = out[from_end ? n - 1 - q : q], one = links->wanted[j];
      if (AreTensors(leaf, one) && (SameShape(Many(leaf), One(one)) || Transposed(leaf, one)))
        LinkGradient(leaf, j, links);
    }
  }

  void LinkByShape(uint32_t leaf, bool transposed, GradientLinks* links) {
    for (size_t j = 0; j < links->wanted.size() && !links->linked.contains(leaf); ++j) {
      const uint32_t one = links->wanted[j];
      const bool fits = transposed ? Transposed(leaf, one) : SameShape(Many(leaf), One(one));
      if (AreTensors(leaf, one) && fits) LinkGradient(leaf, j, links);
    }
  }

  // Older tools list the gradients of a Primitive in the order in which they arrive: the last
  // argument's first.
  bool ArrivalOrder(uint32_t member) const {
    return !FactsOf(many_.dialect).orders_gradients_by_argument &&
           many_.records[member].api.view().starts_with("Primitive.");
  }

  void Close(const Dump& dump, std::span<const uint32_t> records, bool target) {
    std::vector<char>& closed = target ? links_.closed_target : links_.closed_golden;
    for (const uint32_t record : records) {
      const Record& r = dump.records[record];
      for (uint32_t i = r.first_leaf; i < r.first_leaf + r.leaf_count; ++i) {
        // Plain arguments have the same places only in the same operation.
        const bool alone = !same_operation_ || members_.size() > 1;
        if (alone || dump.leaves[i].kind == LeafKind::kTensor) closed[i] = 1;
      }
    }
  }

  const Dump& many_;
  const std::span<const uint32_t> members_;
  const Dump& one_;
  const uint32_t whole_;
  const bool many_is_target_, same_operation_;
  LeafLinks& links_;
  Leaves wanted_;                // the tensors that the one call takes
  std::vector<Outside> origin_;  // for each of them the tensor that it is paired with
  std::set<size_t> has_origin_;
};

// "weights.norm.gamma" is "weights.norm.weight", "state.fc.bias.moment1" is
// "state.fc.bias.exp_avg": a place in the entry of an optimizer, in the words of PyTorch.
std::string InPyTorchsWords(std::string_view place) {
  std::string out;
  for (size_t at = 0; at <= place.size();) {
    const size_t dot = std::min(place.find('.', at), place.size());
    std::string_view part = place.substr(at, dot - at);
    for (const ParameterNames& names : OtherParameterNames()) {
      if (part == names.mindspore) part = names.pytorch;
    }
    (out += out.empty() ? "" : ".") += part;
    at = dot + 1;
  }
  return out;
}

// Values of a step of an optimizer by their names: many weights have one shape.
void LinkOptimizerStep(const Dump& target, uint32_t t, const Dump& golden, uint32_t g,
                       LeafLinks* links) {
  using SlotPlace = std::pair<uint64_t, std::string>;
  const bool from = target.framework == "mindspore";
  const Record &ours = target.records[t], &theirs = golden.records[g];
  std::map<SlotPlace, uint32_t> as_written, in_words;
  for (uint32_t i = theirs.first_leaf; i < theirs.first_leaf + theirs.leaf_count; ++i) {
    const Leaf& leaf = golden.leaves[i];
    const std::string_view place = LeafPlace(leaf, theirs);
    as_written.emplace(SlotPlace(SlotClass(leaf.slot), place), i);
    in_words.emplace(SlotPlace(SlotClass(leaf.slot), from ? place : InPyTorchsWords(place)), i);
  }
  for (uint32_t i = ours.first_leaf; i < ours.first_leaf + ours.leaf_count; ++i) {
    const Leaf& leaf = target.leaves[i];
    if (links->golden_of[i] >= 0) continue;
    const std::string_view place = LeafPlace(leaf, ours);
    auto found = as_written.find({SlotClass(leaf.slot), std::string(place)});
    if (found == as_written.end()) {
      found =
          in_words.find({SlotClass(leaf.slot), from ? InPyTorchsWords(place) : std::string(place)});
      if (found == in_words.end()) continue;
    }
    if (links->taken[found->second]) continue;
    links->golden_of[i] = static_cast<int32_t>(found->second);
    links->taken[found->second] = 1;
  }
  // A tensor of another name is no partner, whatever its shape: one framework counts steps for each
  // weight, the other keeps a moment that it does not use.
  const auto close = [](const Dump& dump, const Record& record, std::vector<char>* closed) {
    for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
      if (dump.leaves[i].kind == LeafKind::kTensor) (*closed)[i] = 1;
    }
  };
  close(target, ours, &links->closed_target);
  close(golden, theirs, &links->closed_golden);
}

uint32_t BackwardOf(const Dump& dump, const CallIndex& index, uint32_t record) {
  const Record& r = dump.records[record];
  const int32_t found = index.Find(r.api, r.call, Direction::kBackward);
  return found < 0 ? kNone : static_cast<uint32_t>(found);
}

}  // namespace

void LinkFrameworkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping,
                         std::span<const SameResult> results, LeafLinks* links) {
  if (links->empty()) {
    links->golden_of.assign(target.leaves.size(), -1);
    links->taken.assign(golden.leaves.size(), 0);
  }
  links->closed_target.assign(target.leaves.size(), 0);
  links->closed_golden.assign(golden.leaves.size(), 0);
  const CallIndex target_index(target), golden_index(golden);
  const bool mindspore = target.framework == "mindspore";
  for (const SameResult& result : results) {
    if (mapping.places.contains(std::string(target.records[result.target.back()].api))) continue;
    if (IsOptimizerCall(target.records[result.target.back()].api)) {
      LinkOptimizerStep(target, result.target[0], golden, result.golden[0], links);
      continue;
    }
    // Of two single calls MindSpore's is the part: the table of arguments is written for it.
    const bool single = result.target.size() == 1 && result.golden.size() == 1;
    const bool many_is_target = single ? mindspore : result.golden.size() == 1;
    const Dump &many = many_is_target ? target : golden, &one = many_is_target ? golden : target;
    const CallIndex &many_index = many_is_target ? target_index : golden_index,
                    &one_index = many_is_target ? golden_index : target_index;
    const std::vector<uint32_t>& members = many_is_target ? result.target : result.golden;
    const uint32_t whole = many_is_target ? result.golden[0] : result.target[0];
    GroupLinker linker(many, members, one, whole, many_is_target, result.same_operation, links);
    linker.LinkForward();
    std::vector<uint32_t> backwards;
    for (const uint32_t member : members) backwards.push_back(BackwardOf(many, many_index, member));
    linker.LinkBackward(backwards, BackwardOf(one, one_index, whole));
  }
}

std::vector<CallPart> GoldenParts(const Dump& target, const Dump& golden,
                                  std::span<const SameResult> results) {
  std::vector<CallPart> parts;
  const CallIndex target_index(target), golden_index(golden);
  for (const SameResult& result : results) {
    const Record& whole = target.records[result.target.back()];
    const int32_t whole_backward = target_index.Find(whole.api, whole.call, Direction::kBackward);
    for (size_t i = 0; i + 1 < result.golden.size(); ++i) {
      parts.push_back({result.target.back(), result.golden[i]});
      const Record& part = golden.records[result.golden[i]];
      const int32_t backward = golden_index.Find(part.api, part.call, Direction::kBackward);
      if (whole_backward >= 0 && backward >= 0) {
        parts.push_back({static_cast<uint32_t>(whole_backward), static_cast<uint32_t>(backward)});
      }
    }
  }
  return parts;
}

bool LeavesInputsOpen(const Dump& dump, uint32_t call, const Dump& other, uint32_t whole) {
  Leaves taken = TensorsOf(dump, call, false);
  for (const uint32_t wanted : TensorsOf(other, whole, false)) {
    const auto found = std::find_if(taken.begin(), taken.end(), [&](uint32_t leaf) {
      return SameShape(dump.leaves[leaf], other.leaves[wanted]);
    });
    if (found == taken.end()) return true;
    taken.erase(found);
  }
  return false;
}

std::vector<uint32_t> Makers(const Dump& dump, const std::vector<uint32_t>& calls) {
  std::vector<uint32_t> out = {calls.back()};
  std::set<uint64_t> wanted = ContentsOf(dump, TensorsOf(dump, calls.back(), false));
  const bool no_contents = wanted.empty();  // a dump of structures
  for (size_t i = calls.size() - 1; i-- > 0;) {
    const Leaves made = TensorsOf(dump, calls[i], true);
    const bool makes =
        no_contents ? !made.empty() : std::any_of(made.begin(), made.end(), [&](uint32_t leaf) {
          return wanted.contains(ContentKey(dump.leaves[leaf]));
        });
    if (!makes) continue;
    wanted.merge(ContentsOf(dump, TensorsOf(dump, calls[i], false)));
    out.insert(out.begin(), calls[i]);
  }
  return out;
}

}  // namespace msprobe::compare
