#include "engine/compare/model/compiled_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

// "layers.0.fc" of "Module.layers.0._orig_mod.fc.Linear": the module's name in its model. The class
// of a module is another one where torch.compile has wrapped it.
std::string PathOfModule(std::string_view module) {
  std::string room;
  std::string_view path = WithoutWrappers(module, &room);
  path.remove_prefix(std::min(path.size(), path.find('.') + 1));
  return std::string(path.substr(0, path.rfind('.') == path.npos ? 0 : path.rfind('.')));
}

bool IsInside(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

// Calls of one run, and the compiled code of the other.
class CompiledSide {
 public:
  CompiledSide(const Comparison& c, bool target)
      : c_(c), target_(target), dump_(target ? c.target : c.golden) {
    const Dump& other = target ? c.golden : c.target;
    for (size_t i = 0; i < other.compiled.size(); ++i) {
      if (other.compiled[i].module.empty()) {
        outside_ = static_cast<int32_t>(i);
      } else {
        paths_.emplace_back(PathOfModule(other.compiled[i].module), static_cast<int32_t>(i));
      }
    }
    if (other.compiled.empty()) return;
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
      if (record >= 0 && dump_.records[record].is_module)
        modules_.try_emplace(dump_.records[record].name.view(), static_cast<int32_t>(p));
    }
    for (const Record& record : other.records) {
      if (!record.module.empty()) elsewhere_.insert(PathOfModule(record.module));
    }
  }

  // The compiled code of the other run inside which the call of a pair ran, an index into
  // Dump::compiled; -1: none.
  int32_t CodeAround(int32_t p) const {
    const int32_t index = target_ ? c_.pairs[p].target : c_.pairs[p].golden;
    if (index < 0 || c_.pairs[p].matched() || (paths_.empty() && outside_ < 0)) return -1;
    const Record& record = dump_.records[index];
    if (IsOptimizerCall(record.api)) return -1;
    if (record.direction == Direction::kBackward && !record.is_module) {
      const int32_t forward = c_.forward_of.empty() ? -1 : c_.forward_of[p];
      return forward >= 0 ? CodeAround(forward) : -1;
    }
    if (record.is_module) {
      if (const int32_t code = CodeOf(record.api); code >= 0) return code;
    } else if (!record.module.empty()) {
      if (const int32_t code = CodeOf(record.module); code >= 0) return code;
      return elsewhere_.contains(PathOfModule(record.module)) ? -1 : outside_;
    }
    bool recorded = false;  // the other run has one of the modules around the call
    std::string_view at = record.parent.view();
    for (int depth = 0; depth < 64 && !at.empty(); ++depth) {
      if (const int32_t code = CodeOf(WithoutCall(at)); code >= 0) return code;
      const auto around = modules_.find(at);
      if (around == modules_.end()) break;
      recorded |= c_.pairs[around->second].matched();
      const RecordPair& pair = c_.pairs[around->second];
      at = dump_.records[target_ ? pair.target : pair.golden].parent.view();
    }
    return recorded ? -1 : outside_;
  }

 private:
  // The compiled code that is entered in a module or in one around it.
  int32_t CodeOf(std::string_view module) const {
    if (paths_.empty()) return -1;
    const std::string path = PathOfModule(module);
    const auto found = std::find_if(paths_.begin(), paths_.end(),
                                    [&](const auto& code) { return IsInside(path, code.first); });
    return found == paths_.end() ? -1 : found->second;
  }

  const Comparison& c_;
  const bool target_;
  const Dump& dump_;
  std::vector<std::pair<std::string, int32_t>> paths_;  // of modules -> index into Dump::compiled
  int32_t outside_ = -1;                                // of code outside of all modules
  std::unordered_map<std::string_view, int32_t> modules_;  // name of a module's call -> its pair
  std::unordered_set<std::string> elsewhere_;  // modules in which the other run recorded calls
};

}  // namespace

void FindCompiledCalls(Comparison* c) {
  for (const bool target : {true, false}) {
    if ((target ? c->golden : c->target).compiled.empty()) continue;
    const CompiledSide side(*c, target);
    for (size_t p = 0; p < c->pairs.size(); ++p) {
      if (side.CodeAround(static_cast<int32_t>(p)) < 0) continue;
      c->rewritten.resize(c->pairs.size(), 0);
      c->rewritten[p] = Comparison::kCompiled;
    }
  }
  // The module by which torch.compile wraps another one.
  for (size_t p = 0; p < c->pairs.size(); ++p) {
    const RecordPair& pair = c->pairs[p];
    if (pair.matched()) continue;
    const Dump& dump = pair.target >= 0 ? c->target : c->golden;
    if (dump.compiled.empty()) continue;
    const Record& record = dump.records[pair.target >= 0 ? pair.target : pair.golden];
    if (!record.is_module || CompiledCodeIn(dump, record.api) == nullptr) continue;
    c->rewritten.resize(c->pairs.size(), 0);
    c->rewritten[p] = Comparison::kCompiled;
  }
}

const CompiledCode* CompiledCodeAround(const Dump& dump, std::string_view module) {
  const std::string path = PathOfModule(module);
  const CompiledCode* innermost = nullptr;
  size_t longest = 0;
  for (const CompiledCode& code : dump.compiled) {
    const std::string entered = code.module.empty() ? "" : PathOfModule(code.module);
    const bool around = entered.empty() ? module.empty() : IsInside(path, entered);
    if (!around || (innermost != nullptr && entered.size() <= longest)) continue;
    innermost = &code;
    longest = entered.size();
  }
  return innermost;
}

bool IsOfCompiledGraph(const Dump& dump, const Record& record) {
  if (dump.framework != "mindspore" || !record.is_module || record.stack >= 0) return false;
  const bool forward = record.direction == Direction::kForward;
  const auto leaves = dump.LeavesOf(record);
  return !leaves.empty() && std::all_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
    return (leaf.slot == Slot::kOutput) == forward;
  });
}

const CompiledCode* CompiledCodeIn(const Dump& dump, std::string_view module) {
  const std::string path = PathOfModule(module);
  const auto found =
      std::find_if(dump.compiled.begin(), dump.compiled.end(), [&](const CompiledCode& code) {
        return code.module.empty() ? module.empty()
                                   : !module.empty() && PathOfModule(code.module) == path;
      });
  return found == dump.compiled.end() ? nullptr : &*found;
}

std::vector<Message> DescribeCompiledCalls(const Comparison& c) {
  std::vector<Message> sentences;
  for (const bool target : {true, false}) {
    const Dump& other = target ? c.golden : c.target;
    if (other.compiled.empty()) continue;
    const CompiledSide side(c, target);
    std::map<int32_t, int64_t> calls;  // of each compiled code
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (c.IsCompiled(static_cast<int32_t>(p))) {
        if (const int32_t code = side.CodeAround(static_cast<int32_t>(p)); code >= 0) ++calls[code];
      }
    }
    for (const auto& [code, count] : calls) {
      const std::string name = ModuleForPeople(other.compiled[code].module);
      const Message module =
          name.empty() ? "code outside of the recorded modules"_t : Message(name);
      const Message there = target ? "golden"_t : "target"_t,
                    here = target ? "target"_t : "golden"_t;
      sentences.push_back(
          count == 1 ? "{} runs compiled code in the {} (torch.compile): 1 call that the {} made "
                       "there is compared at its borders alone"_t(module, there, here)
                     : "{} runs compiled code in the {} (torch.compile): {} calls that the {} made "
                       "there are compared at its borders alone"_t(module, there, count, here));
    }
  }
  return sentences;
}

}  // namespace msprobe::compare
