#include "engine/isolation/other_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/compare/model/value_names.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::isolation {
namespace {

// An argument by the name that it has for people, wherever it stands.
struct Argument {
  std::string name;
  const Leaf* leaf;
};

std::vector<Argument> ArgumentsOf(const Dump& dump, const Record& call) {
  std::vector<Argument> arguments;
  for (const Leaf& leaf : dump.LeavesOf(call)) {
    const bool given = leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg;
    if (given && (leaf.kind == LeafKind::kTensor || leaf.kind == LeafKind::kScalar))
      arguments.push_back({compare::LeafLabel(dump, leaf, -1).English(), &leaf});
  }
  return arguments;
}

const Leaf* Named(const std::vector<Argument>& arguments, std::string_view name) {
  const auto found = std::ranges::find(arguments, name, &Argument::name);
  return found == arguments.end() ? nullptr : found->leaf;
}

// The last operation before `call` that returned this tensor; null: none is recorded.
const Record* MakerOf(const Dump& dump, int32_t call, const Leaf& tensor) {
  const auto makes = [&](const Leaf& leaf) {
    return leaf.slot == Slot::kOutput && leaf.kind == LeafKind::kTensor &&
           leaf.fingerprint.view() == tensor.fingerprint.view() &&
           leaf.shape.view() == tensor.shape.view();
  };
  if (tensor.fingerprint.empty()) return nullptr;
  for (int32_t i = call - 1; i >= 0; --i) {
    const Record& record = dump.records[i];
    if (record.is_module || record.direction != Direction::kForward) continue;
    if (std::ranges::any_of(dump.LeavesOf(record), makes)) return &record;
  }
  return nullptr;
}

class Pair {
 public:
  Pair(const Dump& target, const Dump& golden, std::span<const compare::Partner> partners,
       int32_t call)
      : target_(target), golden_(golden), partners_(partners), call_(call) {}

  OtherCall Compared() const {
    const std::vector<Argument> mine = ArgumentsOf(target_, target_.records[call_]),
                                others = ArgumentsOf(golden_, golden_.records[Partner()]);
    std::vector<Message> why;
    std::string differing;
    size_t many = 0;
    bool told = true;
    for (const auto& [name, leaf] : mine) {
      const Leaf* other = Named(others, name);
      if (other == nullptr || other->kind != leaf->kind) {
        if (leaf->kind == LeafKind::kTensor) why.push_back("only the target passes {}"_t(name));
        continue;
      }
      if (Message text = Different(name, *leaf, *other); !text.empty())
        why.push_back(std::move(text));
      if (leaf->kind != LeafKind::kTensor) continue;
      told = told && !leaf->fingerprint.empty() && !other->fingerprint.empty();
      if (leaf->fingerprint.view() == other->fingerprint.view()) continue;
      differing += (differing.empty() ? "" : ", ") + name;
      ++many;
    }
    for (const auto& [name, leaf] : others) {
      const Leaf* other = Named(mine, name);
      if (leaf->kind == LeafKind::kTensor && (other == nullptr || other->kind != leaf->kind))
        why.push_back("only the golden passes {}"_t(name));
    }
    if (!why.empty() || !told) return {.why = Message::Joined(std::move(why), "; ")};
    if (differing.empty()) return {.inputs = "bit-equal on both sides"_t};
    return {.inputs =
                (many == 1
                     ? "{} differs: each side is measured against float64 of its own inputs, so "
                       "only what the call itself adds is seen"_t
                     : "{} differ: each side is measured against float64 of its own inputs, so "
                       "only what the call itself adds is seen"_t)(differing)};
  }

 private:
  int32_t Partner() const { return partners_[call_].golden; }

  Message Different(const std::string& name, const Leaf& mine, const Leaf& other) const {
    if (mine.kind == LeafKind::kScalar) {
      // The same computation in another precision is what float64 judges.
      const auto is_dtype = [](const Leaf& leaf) {
        return ElementType(leaf.value.view()).dtype().has_value();
      };
      if (mine.value.view() == other.value.view() || (is_dtype(mine) && is_dtype(other))) return {};
      return "{} is {} in the target, {} in the golden"_t(name, mine.value.view(),
                                                          other.value.view());
    }
    if (mine.shape.view() == other.shape.view()) return {};
    return Message::Joined({"{} has shape {} in the target, {} in the golden"_t(
                                name, mine.shape.view(), other.shape.view()),
                            MadeBy(mine, other)},
                           "; ");
  }

  // Which call of one run made the other shape; empty: both runs make it.
  Message MadeBy(const Leaf& mine, const Leaf& other) const {
    if (const Record* maker = MakerOf(target_, call_, mine);
        maker != nullptr && partners_[maker - target_.records.data()].golden < 0)
      return Sentence(target_, *maker, "target"_t);
    const Record* maker = MakerOf(golden_, Partner(), other);
    if (maker == nullptr) return {};
    const auto record = static_cast<int32_t>(maker - golden_.records.data());
    return std::ranges::any_of(partners_, [&](const auto& p) { return p.golden == record; })
               ? Message()
               : Sentence(golden_, *maker, "golden"_t);
  }

  static Message Sentence(const Dump& dump, const Record& maker, const Message& run) {
    const std::string line = maker.stack < 0 ? "" : dump::UserSourceLine(dump.stacks[maker.stack]);
    if (line.empty()) return "{}, which only the {} calls, makes it"_t(maker.name.view(), run);
    return "{}, which only the {} calls, makes it ({})"_t(maker.name.view(), run, line);
  }

  const Dump &target_, &golden_;
  std::span<const compare::Partner> partners_;
  int32_t call_;
};

}  // namespace

OtherCall OtherCallOf(const Dump& target, const Dump& golden,
                      std::span<const compare::Partner> partners, int32_t call) {
  return Pair(target, golden, partners, call).Compared();
}

}  // namespace msprobe::isolation
