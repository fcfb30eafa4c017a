// The dump of a joined run while it is made: first with the numbers of the first rank that makes a
// call, so that calls find their partners in the golden; then with those of all ranks.
//
//   JoinedDump joined(runs, JoinCalls(runs), golden, path);
//   for (size_t i = 0; i < joined.values().size(); ++i) joined.Set(i, layout, whole, 1);
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/layouts/joined_numbers.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare::layouts {

class JoinedDump {
 public:
  JoinedDump(std::span<const RankRun> runs, std::vector<JoinedCall> calls, const Dump& golden,
             const std::string& path);

  Dump& dump() { return dump_; }
  // Of each leaf of the dump: what the ranks have of it, by run.
  const std::vector<std::vector<ValuePart>>& values() const { return values_; }

  // A call that only some ranks make passes the values of the others through: it takes and makes
  // values of all ranks.
  void PassThrough();

  // Gives the leaf the numbers of the whole. Call it for each leaf in their order, once.
  // `adds_up`: the sum of the parts, which nothing adds up, would be the golden's.
  void Set(size_t leaf, const ValueLayout& layout, Shape whole, double factor,
           bool adds_up = false);
  // The leaf has no numbers: it is not compared. Its fingerprint tells where it goes.
  void Close(size_t leaf, Shape whole, Message how);
  // The leaf keeps the elements of its first part: nothing is joined.
  void Keep(size_t leaf);

  // The dump, which owns all texts from now on.
  Dump Take();

 private:
  using Content = std::pair<int32_t, uint64_t>;            // run, what it holds
  using Holders = std::map<Content, std::vector<size_t>>;  // leaves of more than one rank

  void NameCalls(const Dump& golden);
  std::string NameOf(size_t call) const;
  void AddCall(size_t call);
  void AddLeaves(size_t call, Record* record);
  std::string PlaceOf(const RankCall& of, const Leaf& leaf) const;
  Content ContentOf(const ValuePart& part) const;
  std::vector<Content> OtherParts(size_t leaf, const ValuePart& part) const;
  std::optional<std::pair<size_t, size_t>> FindWhole(std::string_view parent,
                                                     const std::vector<size_t>& before,
                                                     const ValuePart& taken,
                                                     const std::vector<size_t>& later,
                                                     const ValuePart& made) const;
  void PassThrough(const Record& record, const Holders& holders);
  void CopySide(const ValuePart& part, uint32_t leaf);
  void PlaceShards(const ValueLayout& layout, const std::vector<ValuePart>& parts,
                   JoinedLeaf* joined) const;
  std::shared_ptr<const Message> Shared(Message how);

  std::span<const RankRun> runs_;
  std::vector<JoinedCall> calls_;
  std::vector<std::string> apis_;
  std::vector<int64_t> numbers_;
  std::vector<std::map<std::string_view, size_t>> call_of_name_;  // of each run
  std::vector<std::vector<ValuePart>> values_;
  std::unordered_map<std::string, std::shared_ptr<const Message>> hows_;  // by the English text
  TextArena arena_;
  Dump dump_;
};

// The names by which a pattern finds a value: as tables have it, and after the module of its call:
// "layers.0.attn.Functional.linear.3.forward.output.0".
std::vector<std::string> NamesOfValue(const Dump& dump, size_t leaf);

}  // namespace msprobe::compare::layouts
