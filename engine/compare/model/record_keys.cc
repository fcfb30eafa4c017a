#include "engine/compare/model/record_keys.h"

#include <cstring>

#include "engine/dump/pkl/pkl_names.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;

uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ kMultiplier) * (b ^ 0xd6e8feb86659fd93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A call site is recognised by its innermost frames, out to the forward() of its module. The frames
// further out (the training script, the launcher) differ between runs of the same model.
constexpr size_t kFramesInKey = 3;

// Whether a frame is one of this function. The call of a module has a frame of its forward() and
// around it frames of torch.nn.Module, which our dumps leave out.
bool IsFrameOf(std::string_view frame, std::string_view function) {
  const size_t in = frame.find(", in ");
  return in != std::string_view::npos && frame.substr(in + 5).starts_with(function);
}
bool IsForward(std::string_view frame) { return IsFrameOf(frame, "forward,"); }
bool IsModuleCall(std::string_view frame) {
  return IsFrameOf(frame, "_call_impl,") || IsFrameOf(frame, "_wrapped_call_impl,");
}

// The hash of function and source text of "File <path>, line <n>, in <function>, \n <source>". The
// line's number is left out: an edit elsewhere in the file changes it.
uint64_t HashFrame(std::string_view frame) {
  const size_t in = frame.find(", in ");
  return HashText(in == std::string_view::npos ? frame : frame.substr(in));
}

// One prefix for those that mean the same in MindSpore and PyTorch.
std::string_view CommonPrefix(std::string_view api, uint64_t* seed) {
  static constexpr struct {
    std::string_view from, to;
  } kPrefixes[] = {{"Cell.", "Module."}, {"MintFunctional.", "Functional."}, {"Mint.", "Torch."}};
  for (const auto& [from, to] : kPrefixes) {
    if (api.starts_with(from)) {
      *seed = HashText(to, *seed);
      return api.substr(from.size());
    }
  }
  const size_t dot = api.find('.');
  if (dot == std::string_view::npos) return api;
  *seed = HashText(api.substr(0, dot + 1), *seed);
  return api.substr(dot + 1);
}

uint64_t HashApi(std::string_view api, bool cross_framework) {
  std::string room;
  api = WithoutWrappers(api, &room);
  if (!cross_framework) return HashText(api);
  uint64_t seed = 0;
  const bool module = api.starts_with("Cell.") || api.starts_with("Module.");
  api = CommonPrefix(api, &seed);
  // "fc.Dense" in MindSpore is "fc.Linear" in PyTorch: the path "fc" names the module.
  if (module)
    api = api.substr(0, api.rfind('.') == std::string_view::npos ? api.size() : api.rfind('.'));
  return HashText(api, seed);
}

bool HasParents(const Dump& dump) {
  for (const Record& r : dump.records) {
    if (!r.parent.empty()) return true;
  }
  return false;
}

bool IsMindSpore(const Dump& dump) { return dump.framework == "mindspore"; }

}  // namespace

uint64_t HashText(std::string_view text, uint64_t seed) {
  uint64_t h = Mix(seed ^ text.size(), kMultiplier);
  const char* p = text.data();
  size_t n = text.size();
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = Mix(h, word);
  }
  if (n > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, n);
    h = Mix(h, word);
  }
  return h;
}

KeyEvidence CommonEvidence(const Dump& target, const Dump& golden) {
  return {.stacks = !target.stacks.empty() && !golden.stacks.empty(),
          .parents = HasParents(target) && HasParents(golden),
          .cross_framework = OfTwoFrameworks(target, golden)};
}

std::string_view WithoutCall(std::string_view name) {
  for (const std::string_view mark : {".forward.", ".backward."}) {
    const size_t at = name.rfind(mark);
    if (at == std::string_view::npos) continue;
    const std::string_view number = name.substr(at + mark.size());
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos) {
      return name.substr(0, at);
    }
  }
  return name;
}

std::string_view MappedApi(std::string_view api, const NameMapping* mapping) {
  if (mapping == nullptr || mapping->apis.empty()) return api;
  const auto it = mapping->apis.find(std::string(api));
  return it == mapping->apis.end() ? api : std::string_view(it->second);
}

std::string_view BaseApi(std::string_view api) {
  const size_t dot = api.rfind('.');
  if (dot != std::string_view::npos) api = api.substr(dot + 1);
  const size_t first = api.find_first_not_of('_');
  if (first == std::string_view::npos) return api;
  return api.substr(first, api.find_last_not_of('_') - first + 1);
}

bool IsOptimizerCall(std::string_view api) { return api.starts_with("Optimizer."); }

std::string_view LeafSuffix(const Leaf& leaf, const Record& record) {
  if (leaf.name.starts_with(record.name)) return leaf.name.substr(record.name.size());
  // Some generations call the leaf "Module.fc.Linear.parameters_grad.weight" in an entry that is
  // called "Module.fc.Linear.parameters_grad.0".
  if (leaf.name.starts_with(record.api)) return leaf.name.substr(record.api.size());
  // torch_npu.hooks puts a number in front of each value.
  const std::string_view name = dump::WithoutLineNumber(leaf.name),
                         stem = dump::WithoutLineNumber(record.name);
  return name.starts_with(stem) ? name.substr(stem.size()) : leaf.name.view();
}

bool IsChangedInPlace(const Leaf& leaf, const Record& record) {
  return leaf.slot == Slot::kOutput && LeafSuffix(leaf, record).starts_with(".changed.");
}

uint64_t SlotClass(Slot slot) {
  switch (slot) {
    case Slot::kInput:
    case Slot::kKwarg:
      return 0;
    case Slot::kParameter:
      return 1;
    case Slot::kOutput:
      return 2;
    case Slot::kParameterGrad:
      return 3;
    case Slot::kDebug:
      return 4;
  }
  return 5;
}

std::string_view LeafPlace(const Leaf& leaf, const Record& record) {
  std::string_view place = LeafSuffix(leaf, record);
  if (leaf.slot == Slot::kDebug) return place;
  if (place.starts_with('.') || place.starts_with('_')) place.remove_prefix(1);
  for (const std::string_view word : {"input", "kwargs", "output", "parameters"}) {
    if (!place.starts_with(word)) continue;
    if (place.size() == word.size()) return "0";
    if (place[word.size()] == '.') return place.substr(word.size() + 1);
  }
  return place;
}

bool IsTransposed(Shape a, Shape b) {
  const auto x = a.extents(), y = b.extents();
  return x.size() == 2 && y.size() == 2 && x[0] == y[1] && x[1] == y[0] && x[0] != x[1];
}

bool OfTwoFrameworks(const Dump& target, const Dump& golden) {
  return IsMindSpore(target) != IsMindSpore(golden);
}

bool ComparableChecksums(const Leaf& a, const Leaf& b) {
  constexpr size_t kMd5Digits = 32;
  return (a.checksum.size() == kMd5Digits) == (b.checksum.size() == kMd5Digits);
}

RecordKeys::RecordKeys(const Dump& dump, const KeyEvidence& evidence, const NameMapping* mapping)
    : dump_(dump), evidence_(evidence), mapping_(mapping) {
  if (!evidence.stacks) return;
  stacks_.reserve(dump.stacks.size());
  for (const auto& frames : dump.stacks) {
    uint64_t h = 1;
    for (size_t i = 0; i < frames.size() && i < kFramesInKey; ++i) {
      if (IsModuleCall(frames[i])) break;
      h = Mix(h, HashFrame(frames[i]));
      if (IsForward(frames[i])) break;
    }
    stacks_.push_back(h);
  }
}

uint64_t RecordKeys::Stack(const Record& record) const {
  if (record.stack < 0 || static_cast<size_t>(record.stack) >= stacks_.size()) return 0;
  return stacks_[record.stack];
}

uint64_t RecordKeys::Key(uint32_t index, KeyLevel level) const {
  const Record& r = dump_.records[index];
  const std::string_view api = MappedApi(r.api, mapping_);
  const uint64_t direction = static_cast<uint64_t>(r.direction) + 1;
  if (level == KeyLevel::kBaseName) return Mix(HashText(BaseApi(api)), direction + 64);
  uint64_t h = Mix(level == KeyLevel::kLikeness ? HashText(BaseApi(api))
                                                : HashApi(api, evidence_.cross_framework),
                   direction);
  if (level == KeyLevel::kApi) return h;
  if (evidence_.parents && level != KeyLevel::kLikeness) {
    h = Mix(h, HashApi(MappedApi(WithoutCall(r.parent), mapping_), evidence_.cross_framework));
  }
  if (level == KeyLevel::kPlace) return h;
  for (const Leaf& leaf : dump_.LeavesOf(r)) {
    if (IsChangedInPlace(leaf, r)) continue;  // older dumps have no such values
    h = Mix(h, HashText(LeafPlace(leaf, r),
                        static_cast<uint64_t>(leaf.kind) * 8 + SlotClass(leaf.slot)));
    if (evidence_.shapes) h = Mix(h, leaf.shape.key_without_ones());
  }
  if (level == KeyLevel::kStructure) return h;
  return Mix(h, Stack(r));
}

uint64_t ContentKey(const Leaf& leaf) {
  if (!leaf.fingerprint.empty()) return HashText(leaf.fingerprint, 1);
  if (!leaf.checksum.empty()) return HashText(leaf.checksum, 2);
  if (!leaf.has_stats) return 0;
  return HashText(leaf.norm, HashText(leaf.mean, HashText(leaf.min, HashText(leaf.max, 3))));
}

}  // namespace msprobe::compare
