// The ranks of one side as one run, once it is known which of the other side's values is the
// partner of which of theirs, and what shape the whole of it has.
//
//   Joining joining(runs, golden, path, {.reordered = &modules});
//   MSPROBE_ASSIGN_OR_RETURN(JoinedRun run, joining.Run());
//   joining.layouts()[leaf].kind;   // how each of its values lies
//
// join_ranks.h and join_both.h are the doors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/layouts/declared_layout.h"
#include "engine/compare/layouts/join_ranks.h"
#include "engine/compare/layouts/joined_dump.h"

namespace msprobe::compare::layouts {

// What both sides together say of one value, where both have several ranks (whole_shape.h).
struct AgreedValue {
  int32_t partner = -1;  // the other side's leaf
  Shape whole;           // "": not known
  bool ordered = true;   // false: nothing tells along which dimension the shards stand
  bool summed = false;   // the sum over ranks is the same on both sides, whatever the parts are
  bool ignored = false;  // the user says so
  const DeclaredDims* dims = nullptr;  // how it lies, as the user says
};

// An error: of `path` no rank has numbers.
Status CheckStatistics(std::span<const RankRun> runs, const std::string& path);

class Joining {
 public:
  struct Given {
    const std::set<std::string>* reordered = nullptr;  // modules whose weights lie in pieces
    const Dump* joined_before =
        nullptr;  // with the numbers of the whole, by which calls find partners
    // Of each value of the joined dump, where both sides have several ranks. Null: the golden is
    // one process.
    const std::vector<AgreedValue>* agreed = nullptr;
    const Dump* names = nullptr;  // whose names the calls get; null: the golden's
    std::function<bool(const JoinedCall&)> left_out;  // calls that the joined run does not make
    bool divided = false;   // each rank has a part of the batch, as the other side knows
    bool averages = false;  // and the loss of a rank is the mean of its part
    bool scales = true;     // whether gradients may be multiples of the golden's
    const DeclaredSide* side = nullptr;        // what the user says of these ranks
    const DeclaredLayout* declared = nullptr;  // and of values
    std::optional<double> factor;              // of gradients
  };
  Joining(std::span<const RankRun> runs, const Dump& golden, const std::string& path,
          const Given& given);

  // Errors: what the user says is not what was recorded.
  Result<JoinedRun> Run();
  // After Run(). Of each value of the joined dump.
  const std::vector<ValueLayout>& layouts() const { return layouts_; }
  double factor() const { return factor_; }
  bool divided() const { return divided_; }

 private:
  void FindPartners(const Dump* whole);
  void FindBackward();
  bool IsInForwardPass(uint32_t record);
  void LayOut();
  const Leaf& LeafAt(size_t i) { return joined_.dump().leaves[i]; }
  const Record& RecordAt(size_t i) { return joined_.dump().records[LeafAt(i).record]; }
  bool IsTensor(size_t i) { return LeafAt(i).kind == LeafKind::kTensor; }
  bool IsLoss(size_t i);
  bool TakesParts(size_t i);
  Shape WholeOf(size_t i) const;
  const DeclaredDims* DimsOf(size_t i);
  bool IsIgnored(size_t i);
  ValueLayout LayoutOf(size_t i, bool again);
  uint64_t ContentOf(size_t i) const;
  bool IsReordered(size_t i);
  double RatioOf(size_t i, const ValueLayout& layout);
  bool PassesGradients(size_t i, const ValueLayout& layout);
  double FactorOfGradients();
  double FactorAt(size_t i, const ValueLayout& layout);
  void Fill(size_t i);
  bool AddsUp(size_t i, const ValueLayout& layout);
  void Describe(std::vector<Message>* notes);

  std::span<const RankRun> runs_;
  const Dump& golden_;
  const Given given_;
  const LayoutFacts facts_;
  JoinedDump joined_;
  Status status_ = Status::Ok();
  std::vector<ValueLayout> layouts_;
  std::vector<int32_t> partner_;  // of each leaf: the golden's
  // A leaf with a partner, by the contents of all ranks.
  std::unordered_map<uint64_t, size_t> known_;
  std::unordered_set<uint64_t> unordered_;  // contents of all ranks
  double factor_ = 1;
  uint32_t first_backward_ = 0;                                   // record
  std::set<std::pair<std::string_view, int64_t>> goes_backward_;  // calls
  bool divided_ = false;  // each rank has a part of the batch
};

}  // namespace msprobe::compare::layouts
