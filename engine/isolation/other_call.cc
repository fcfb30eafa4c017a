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
    std::string why, differing;
    bool told = true;
    for (const auto& [name, leaf] : mine) {
      const Leaf* other = Named(others, name);
      if (other == nullptr || other->kind != leaf->kind) {
        if (leaf->kind == LeafKind::kTensor) Add(&why, "only the target passes " + name);
        continue;
      }
      Add(&why, Different(name, *leaf, *other));
      if (leaf->kind != LeafKind::kTensor) continue;
      told = told && !leaf->fingerprint.empty() && !other->fingerprint.empty();
      if (leaf->fingerprint.view() != other->fingerprint.view())
        differing += (differing.empty() ? "" : ", ") + name;
    }
    for (const auto& [name, leaf] : others) {
      const Leaf* other = Named(mine, name);
      if (leaf->kind == LeafKind::kTensor && (other == nullptr || other->kind != leaf->kind))
        Add(&why, "only the golden passes " + name);
    }
    if (!why.empty() || !told) return {.why = std::move(why)};
    if (differing.empty()) return {.inputs = "bit-equal on both sides"};
    return {.inputs = fmt::format(
                "{} {}: each side is measured against float64 of its own inputs, so only what the "
                "call itself adds is seen",
                differing, differing.find(", ") == std::string::npos ? "differs" : "differ")};
  }

 private:
  int32_t Partner() const { return partners_[call_].golden; }

  static void Add(std::string* text, const std::string& more) {
    if (!more.empty()) *text += (text->empty() ? "" : "; ") + more;
  }

  std::string Different(const std::string& name, const Leaf& mine, const Leaf& other) const {
    if (mine.kind == LeafKind::kScalar) {
      // The same computation in another precision is what float64 judges.
      const auto is_dtype = [](const Leaf& leaf) {
        return ElementType(leaf.value.view()).dtype().has_value();
      };
      return mine.value.view() == other.value.view() || (is_dtype(mine) && is_dtype(other))
                 ? ""
                 : fmt::format("{} is {} in the target, {} in the golden", name, mine.value.view(),
                               other.value.view());
    }
    if (mine.shape.view() == other.shape.view()) return "";
    std::string text = fmt::format("{} has shape {} in the target, {} in the golden", name,
                                   mine.shape.view(), other.shape.view());
    Add(&text, MadeBy(mine, other));
    return text;
  }

  // Which call of one run made the other shape; "": both runs make it.
  std::string MadeBy(const Leaf& mine, const Leaf& other) const {
    if (const Record* maker = MakerOf(target_, call_, mine);
        maker != nullptr && partners_[maker - target_.records.data()].golden < 0)
      return Sentence(target_, *maker, "target");
    const Record* maker = MakerOf(golden_, Partner(), other);
    if (maker == nullptr) return "";
    const auto record = static_cast<int32_t>(maker - golden_.records.data());
    return std::ranges::any_of(partners_, [&](const auto& p) { return p.golden == record; })
               ? ""
               : Sentence(golden_, *maker, "golden");
  }

  static std::string Sentence(const Dump& dump, const Record& maker, std::string_view run) {
    const std::string line = maker.stack < 0 ? "" : dump::UserSourceLine(dump.stacks[maker.stack]);
    return fmt::format("{}, which only the {} calls, makes it{}", maker.name.view(), run,
                       line.empty() ? "" : fmt::format(" ({})", line));
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
