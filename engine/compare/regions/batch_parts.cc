#include "engine/compare/regions/batch_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/moving_operations.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/joined_tensors.h"

namespace msprobe::compare {
namespace {

using Records = std::vector<int32_t>;  // indices into Dump::records, in their order

// Whether two shapes differ in the extent of one dimension.
bool DifferInOne(Shape a, Shape b) {
  const auto x = a.extents(), y = b.extents();
  if (!a.known() || !b.known() || x.size() != y.size()) return false;
  int different = 0;
  for (size_t d = 0; d < x.size(); ++d) different += x[d] != y[d];
  return different == 1;
}

// What is known of a tensor. In the order of precedence between the two tensors of a row.
enum class Joint : char { kNone, kDiffers, kAgrees };

class BatchParts {
 public:
  explicit BatchParts(Comparison* c) : c_(*c) {}

  bool Join() {
    if (!FindStreams()) return false;
    for (const bool target : {true, false}) {
      agreed_[target ? 0 : 1].assign(DumpOf(target).leaves.size(), Joint::kNone);
    }
    for (const auto& [key, stream] : streams_) {
      if (stream[0].empty() || stream[1].empty()) continue;
      JoinStream(stream[0], stream[1]);
    }
    for (const RecordPair& pair : c_.pairs) {
      if (pair.matched()) JoinPieces(pair);
    }
    // Where no tensor of another shape agrees when it is put together, nothing says that a batch was
    // divided: the shapes differ, and that is all.
    return divided_ && Apply();
  }

 private:
  using Stream = std::array<Records, 2>;  // calls of one place, of the target and of the golden

  const Dump& DumpOf(bool target) const { return target ? c_.target : c_.golden; }

  // What calls have in common that do the same: the module or operation, the direction, and which of
  // such calls it is inside the call of its module.
  class Keys {
   public:
    uint64_t Of(const Dump& dump, const Record& record) {
      const uint64_t own =
          HashText(record.api.view(), 31 + static_cast<uint64_t>(record.direction));
      if (record.parent.empty()) return own + Dimensions(dump, record);
      const uint64_t place = HashText(WithoutCall(record.parent), own);
      return place + seen_[HashText(record.parent.view(), own)]++;
    }

   private:
    // Outside of modules nothing but the tensors tells the mean over a sequence from that of a loss.
    static uint64_t Dimensions(const Dump& dump, const Record& record) {
      uint64_t all = 0;
      for (const Leaf& leaf : dump.LeavesOf(record)) {
        if (leaf.kind == LeafKind::kTensor) all = 11 * all + 1 + leaf.shape.extents().size();
      }
      return all;
    }

    std::unordered_map<uint64_t, uint64_t> seen_;  // calls of one operation in one call of a module
  };

  // The places at which shapes differ, with all their calls. False: there is none.
  bool FindStreams() {
    std::unordered_set<uint64_t> wanted;
    std::vector<uint64_t> keys[2];
    bool any = false;
    for (const Measure& m : c_.measures) any |= m.reason == Reason::kShapeDiffers;
    for (const RecordPair& pair : c_.pairs) any |= IsGradientAlone(pair);
    if (!any) return false;
    for (const bool target : {true, false}) {
      Keys of;
      for (const Record& r : DumpOf(target).records)
        keys[target ? 0 : 1].push_back(of.Of(DumpOf(target), r));
    }
    for (const RecordPair& pair : c_.pairs) {
      if (!pair.matched()) continue;
      const bool gradients = c_.target.records[pair.target].direction == Direction::kParameterGrad;
      bool other_shapes = gradients;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i)
        other_shapes |= c_.measures[i].reason == Reason::kShapeDiffers;
      if (!other_shapes) continue;
      wanted.insert(keys[0][pair.target]);
      wanted.insert(keys[1][pair.golden]);
    }
    for (const int side : {0, 1}) {
      for (size_t r = 0; r < keys[side].size(); ++r) {
        if (wanted.count(keys[side][r]) > 0)
          streams_[keys[side][r]][side].push_back(static_cast<int32_t>(r));
      }
    }
    return true;
  }

  // Whether only one run has the entry: it went backward more often, and added the gradients up.
  bool IsGradientAlone(const RecordPair& pair) const {
    if (pair.matched()) return false;
    const Record& record =
        pair.target >= 0 ? c_.target.records[pair.target] : c_.golden.records[pair.golden];
    return record.direction == Direction::kParameterGrad;
  }

  void JoinStream(const Records& target, const Records& golden) {
    if (c_.target.records[target.front()].direction == Direction::kParameterGrad) {
      if (target.size() == golden.size()) return;
      // What the parts before the last one left is the gradient of a part of the batch.
      JoinGroup({target.back()}, {golden.back()}, target, golden);
      return;
    }
    size_t t = 0, g = 0;
    while (t < target.size() && g < golden.size()) {
      Records group[2] = {{target[t++]}, {golden[g++]}};
      // The side with fewer elements takes one call more, until both have equally many.
      for (double more = Surplus(group); more != 0; more = Surplus(group)) {
        if (std::isnan(more)) return;
        if (more < 0 ? t == target.size() : g == golden.size()) return;
        more < 0 ? group[0].push_back(target[t++]) : group[1].push_back(golden[g++]);
      }
      if (group[0].size() > 1 || group[1].size() > 1)
        JoinGroup(group[0], group[1], group[0], group[1]);
    }
  }

  // A call that cuts one tensor in another number of pieces, such as chunk(4) beside chunk(1): what it
  // takes agrees, and so do its results when they are put together.
  void JoinPieces(const RecordPair& pair) {
    const Record &t = c_.target.records[pair.target], &g = c_.golden.records[pair.golden];
    if (t.direction != Direction::kForward || !MovesData(t.api) || BaseApi(t.api) != BaseApi(g.api))
      return;
    bool other_shape = false, agrees = true;
    Parts pieces[2];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c_.rows[i];
      for (const bool target : {true, false}) {
        const int32_t index = target ? row.target : row.golden;
        if (index < 0) continue;
        const Leaf& leaf = DumpOf(target).leaves[index];
        if (leaf.kind != LeafKind::kTensor) continue;
        if (leaf.slot == Slot::kOutput) {
          pieces[target ? 0 : 1].push_back(&leaf);
          agrees &= leaf.has_stats;
        } else {
          agrees &= c_.measures[i].verdict == RowVerdict::kEqual ||
                    c_.measures[i].verdict == RowVerdict::kNoise;
        }
      }
      other_shape |= c_.measures[i].reason == Reason::kShapeDiffers;
    }
    double elements[2] = {0, 0};
    for (const int side : {0, 1}) {
      for (const Leaf* piece : pieces[side]) {
        elements[side] += static_cast<double>(piece->shape.elements());
        agrees &= piece == pieces[0].front() || piece->shape == pieces[0].front()->shape ||
                  DifferInOne(piece->shape, pieces[0].front()->shape);
      }
    }
    if (!other_shape || !agrees || pieces[0].empty() || pieces[1].empty() ||
        elements[0] != elements[1] || !AgreeJoined(c_, pieces[0], pieces[1]))
      return;
    for (const bool target : {true, false}) {
      for (const Leaf* leaf : TensorsOf(target, target ? pair.target : pair.golden))
        agreed_[target ? 0 : 1][leaf - DumpOf(target).leaves.data()] = Joint::kAgrees;
    }
    divided_ = true;
  }

  // The tensors of a call, in their order.
  Parts TensorsOf(bool target, int32_t record) const {
    Parts tensors;
    const Dump& dump = DumpOf(target);
    for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
      if (leaf.kind == LeafKind::kTensor) tensors.push_back(&leaf);
    }
    return tensors;
  }

  // By how many elements of its first tensor that has another shape the target's part of a group is
  // larger. NaN: the calls are no parts of one batch.
  double Surplus(const Records (&group)[2]) const {
    const auto t = TensorsOf(true, group[0].front()), g = TensorsOf(false, group[1].front());
    if (t.size() != g.size()) return Leaf::kNaN;
    for (size_t i = 0; i < t.size(); ++i) {
      double elements[2] = {0, 0};
      bool same = true;
      for (const bool target : {true, false}) {
        for (const int32_t record : group[target ? 0 : 1]) {
          const auto tensors = TensorsOf(target, record);
          if (tensors.size() != t.size()) return Leaf::kNaN;
          if (tensors[i]->shape != g[i]->shape) {
            same = false;
            if (!DifferInOne(tensors[i]->shape, g[i]->shape)) return Leaf::kNaN;
          }
          elements[target ? 0 : 1] += static_cast<double>(tensors[i]->shape.elements());
        }
      }
      if (!same) return elements[0] - elements[1];
    }
    return 0;
  }

  // Judges the tensors of a group of calls; `all_target` and `all_golden` get the verdicts.
  void JoinGroup(const Records& target, const Records& golden, const Records& all_target,
                 const Records& all_golden) {
    const size_t count = TensorsOf(true, target.front()).size();
    std::vector<Parts> places[2] = {std::vector<Parts>(count), std::vector<Parts>(count)};
    for (const bool of_target : {true, false}) {
      for (const int32_t record : of_target ? target : golden) {
        const Parts tensors = TensorsOf(of_target, record);
        if (tensors.size() != count) return;
        for (size_t i = 0; i < count; ++i) places[of_target ? 0 : 1][i].push_back(tensors[i]);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const bool agrees = PlaceAgrees(places[0][i], places[1][i]);
      const Leaf &t = *places[0][i].front(), &g = *places[1][i].front();
      divided_ |= agrees && (t.shape != g.shape || t.slot == Slot::kParameterGrad);
      const Joint joint = agrees ? Joint::kAgrees : Joint::kDiffers;
      for (const bool of_target : {true, false}) {
        for (const int32_t record : of_target ? all_target : all_golden) {
          const Parts tensors = TensorsOf(of_target, record);
          if (i < tensors.size())
            agreed_[of_target ? 0 : 1][tensors[i] - DumpOf(of_target).leaves.data()] = joint;
        }
      }
    }
  }

  // Whether results of sums or means over parts make those of the whole: sums add up, means are
  // weighted by what each call takes.
  bool ReductionsAgree(const Parts& target, const Parts& golden) const {
    const Record& record = c_.golden.records[golden.front()->record];
    const std::string_view base = BaseApi(record.api);
    const bool is_mean = base == "mean";
    if (record.direction != Direction::kForward || record.is_module || (!is_mean && base != "sum"))
      return false;
    double whole[2] = {0, 0}, weights[2] = {0, 0};
    for (const bool of_target : {true, false}) {
      for (const Leaf* leaf : of_target ? target : golden) {
        if (leaf->slot != Slot::kOutput || leaf->shape.elements() != 1) return false;
        const Parts taken = TensorsOf(of_target, static_cast<int32_t>(leaf->record));
        const double weight = is_mean ? static_cast<double>(taken.front()->shape.elements()) : 1;
        whole[of_target ? 0 : 1] += weight * leaf->mean_value;
        weights[of_target ? 0 : 1] += is_mean ? weight : 0;
      }
    }
    if (is_mean) whole[0] /= weights[0], whole[1] /= weights[1];
    Leaf t = *target.front(), g = *golden.front();
    for (const auto& [leaf, value] : {std::pair(&t, whole[0]), std::pair(&g, whole[1])}) {
      leaf->max_value = leaf->min_value = leaf->mean_value = value;
      leaf->norm_value = std::abs(value);
      leaf->fingerprint = leaf->checksum = TextRef();
    }
    return AgreeJoined(c_, {&t}, {&g});
  }

  bool PlaceAgrees(const Parts& target, const Parts& golden) const {
    double elements[2] = {0, 0};
    for (const Leaf* leaf : target) elements[0] += static_cast<double>(leaf->shape.elements());
    for (const Leaf* leaf : golden) elements[1] += static_cast<double>(leaf->shape.elements());
    for (const auto* side : {&target, &golden}) {
      for (const Leaf* leaf : *side) {
        if (!leaf->has_stats || leaf->slot != golden.front()->slot) return false;
      }
    }
    if (elements[0] == elements[1]) return AgreeJoined(c_, target, golden);
    if (ReductionsAgree(target, golden)) return true;
    // No part of the batch: every call has the same tensor.
    return std::all_of(target.begin(), target.end(), [&](const Leaf* t) {
      return std::all_of(golden.begin(), golden.end(), [&](const Leaf* g) {
        return t->shape == g->shape && AgreeJoined(c_, {t}, {g});
      });
    });
  }

  // What the group says of both tensors of a row.
  Joint JointOf(const Row& row) const {
    const Joint t = row.target < 0 ? Joint::kAgrees : agreed_[0][row.target];
    const Joint g = row.golden < 0 ? Joint::kAgrees : agreed_[1][row.golden];
    return std::min(t, g);
  }

  bool Apply() {
    bool any = false;
    const bool had_marks = !c_.rewritten.empty();
    c_.rewritten.resize(c_.pairs.size(), 0);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      const RecordPair& pair = c_.pairs[p];
      bool tensors = false, all = true;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const Row& row = c_.rows[i];
        const Leaf& leaf =
            row.target >= 0 ? c_.target.leaves[row.target] : c_.golden.leaves[row.golden];
        if (leaf.kind != LeafKind::kTensor) continue;
        const Joint joint = JointOf(row);
        tensors = true;
        all = all && joint == Joint::kAgrees;
        Measure& m = c_.measures[i];
        if (joint == Joint::kAgrees && m.verdict == RowVerdict::kDiffers)
          m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kOtherParts};
        if (joint == Joint::kDiffers && m.reason == Reason::kShapeDiffers)
          m.reason = Reason::kOtherParts;
      }
      if (!tensors || !all) continue;
      any = true;
      if (c_.rewritten[p] == 0) c_.rewritten[p] = Comparison::kPartOfBatch;
      // Plain values, such as the shape for a view, follow from the size of the part.
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        Measure& m = c_.measures[i];
        if (m.verdict == RowVerdict::kDiffers)
          m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kOtherParts};
      }
    }
    if (!any && !had_marks) c_.rewritten.clear();
    return any;
  }

  Comparison& c_;
  std::unordered_map<uint64_t, Stream> streams_;
  bool divided_ = false;          // a tensor that one run has in parts agrees as a whole
  std::vector<Joint> agreed_[2];  // for each leaf of the target, of the golden
};

}  // namespace

bool JoinBatchParts(Comparison* c) {
  if (!c->exact.empty() || OfTwoFrameworks(c->target, c->golden)) return false;
  return BatchParts(c).Join();
}

}  // namespace msprobe::compare
