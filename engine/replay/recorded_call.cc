#include "engine/replay/recorded_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/text.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::replay {
namespace {

using compare::BaseApi;
using compare::LeafPlace;

bool IsAny(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

bool IsIdentifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

std::string_view PrefixOf(std::string_view api) { return api.substr(0, api.find('.')); }

// Whether two executions of the operation give other numbers by intent.
bool DrawsNumbers(std::string_view base) {
  return base.find("rand") != base.npos || base.find("dropout") != base.npos ||
         IsAny(base, {"bernoulli", "multinomial", "gumbel_softmax", "normal", "uniform", "poisson",
                      "exponential", "cauchy", "geometric", "log_normal", "rrelu"});
}

Message WhySkipped(const Dump& dump, const Record& record, bool functions) {
  const std::string_view prefix = PrefixOf(record.api), base = BaseApi(record.api);
  if (prefix == "Distributed") return "a collective needs the other ranks"_t;
  if (prefix == "Function" && !functions)
    return "it is code of the program: msprobe replay --import MODULE executes it"_t;
  if (!IsAny(prefix, {"Functional", "Tensor", "Torch", "VF", "Aten", "NPU", "Function"}))
    return "{} is not an API of the framework"_t(prefix);
  if (!IsCallableApi(record.api.view()))
    return "{} is not the name of an operation"_t(Excerpt(record.api.view()));
  if (ReturnsUnwrittenMemory(base)) return "it returns memory that nobody has written"_t;
  if (DrawsNumbers(base)) return "it draws random numbers"_t;
  if (!record.exception.empty())
    return "the recorded call ended with {}"_t(record.exception.view());
  const auto leaves = dump.LeavesOf(record);
  const bool result = std::any_of(leaves.begin(), leaves.end(), [](const Leaf& leaf) {
    return leaf.slot == Slot::kOutput && leaf.kind == LeafKind::kTensor;
  });
  return result ? Message() : "it has no tensor as result"_t;
}

// Types, shapes and plain values of all arguments, without what only these numbers are.
std::string SignatureOf(const Dump& dump, const Record& record) {
  std::string text(record.api.view());
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kInput && leaf.slot != Slot::kKwarg) continue;
    text += fmt::format("|{}:{}", LeafPlace(leaf, record), leaf.type.view());
    if (leaf.kind == LeafKind::kTensor) {
      text += fmt::format("{}{}", leaf.dtype.view(), leaf.shape.view());
    } else {
      text += leaf.value.view();
    }
  }
  return text;
}

// The list element or dictionary entry `key` of an argument, made when it is not there.
Argument* Child(Argument* parent, std::string_view key) {
  size_t index = 0;
  const auto number = std::from_chars(key.data(), key.data() + key.size(), index);
  const bool is_number =
      !key.empty() && number.ec == std::errc() && number.ptr == key.data() + key.size();
  constexpr size_t kMost = 1 << 20;  // a damaged name must not take all memory
  if (parent->kind == Argument::Kind::kLeaf && parent->leaf < 0)
    parent->kind = is_number ? Argument::Kind::kList : Argument::Kind::kDictionary;
  if (parent->kind == Argument::Kind::kList) {
    if (!is_number || index >= kMost) return nullptr;
    if (parent->values.size() <= index) parent->values.resize(index + 1);
    return &parent->values[index];
  }
  if (parent->kind != Argument::Kind::kDictionary) return nullptr;
  const auto at = std::find(parent->names.begin(), parent->names.end(), key);
  if (at != parent->names.end()) return &parent->values[at - parent->names.begin()];
  parent->names.emplace_back(key);
  return &parent->values.emplace_back();
}

}  // namespace

bool IsCallableApi(std::string_view api) {
  const std::vector<std::string_view> parts = Split(api, '.');
  if (parts.size() < 2 || !std::all_of(parts.begin(), parts.end(), IsIdentifier)) return false;
  if (!IsAny(parts[0], {"Functional", "Tensor", "Torch", "VF", "Aten", "NPU", "Function"}))
    return false;
  // Deeper names would reach other modules: torch.serialization.os.system.
  const bool space = IsAny(parts[1], {"fft", "linalg", "special", "nested", "sparse"});
  const bool deep = parts[0] == "Aten" || (parts[0] == "Torch" && space) ||
                    (parts[0] == "NPU" && parts[1] == "atb");
  const size_t most = deep ? 3 : 2;
  if (parts.size() > most) return false;
  return !IsAny(parts.back(),
                {"load", "save", "from_file", "compile", "import_ir_module",
                 "import_ir_module_from_buffer", "load_library", "_import_dotted_name",
                 "_preload_cuda_deps", "_running_with_deploy", "vmap", "tofile"});
}

std::vector<RecordedCall> CallsOf(const Dump& dump, const CallChoice& choice) {
  std::vector<RecordedCall> calls;
  std::unordered_map<std::string, size_t> place;
  std::unordered_set<std::string> seen;
  for (size_t r = 0; r < dump.records.size(); ++r) {
    const Record& record = dump.records[r];
    if (record.is_module || record.call < 0 || PrefixOf(record.api) == "Optimizer") continue;
    const std::string name = fmt::format("{}.{}", record.api.view(), record.call);
    if (record.direction == Direction::kBackward) {
      if (const auto found = place.find(name); found != place.end())
        calls[found->second].backward = static_cast<int32_t>(r);
      continue;
    }
    if (record.direction != Direction::kForward) continue;
    const std::string_view base = BaseApi(record.api);
    if (!choice.white_list.empty() && choice.white_list.count(base) == 0) continue;
    if (choice.black_list.count(base) > 0) continue;
    if (choice.distinct && !seen.insert(SignatureOf(dump, record)).second) continue;
    place.emplace(name, calls.size());
    calls.push_back({.name = name,
                     .forward = static_cast<int32_t>(r),
                     .skip = WhySkipped(dump, record, choice.functions)});
  }
  return calls;
}

Arguments ArgumentsOf(const Dump& dump, const Record& record) {
  Arguments arguments;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kInput && leaf.slot != Slot::kKwarg) continue;
    std::string_view path = LeafPlace(leaf, record);
    Argument* at = leaf.slot == Slot::kInput ? &arguments.positional : &arguments.keywords;
    while (at != nullptr) {
      const size_t dot = path.find('.');
      at = Child(at, path.substr(0, dot));
      if (dot == path.npos) break;
      path.remove_prefix(dot + 1);
    }
    if (at != nullptr) at->leaf = static_cast<int32_t>(&leaf - dump.leaves.data());
  }
  return arguments;
}

}  // namespace msprobe::replay
