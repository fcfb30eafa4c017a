// The keys by which alignment recognises a call. A key is a hash of what a call looks like, without
// its number and without its values. There are several, from strict to loose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/compare_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

// What a key is made of. A looser key is used only in the gaps that the stricter ones leave.
enum class KeyLevel : uint8_t {
  kSite,       // api, direction, enclosing module, leaf names and shapes, the source text of the
               // innermost frames
  kStructure,  // as kSite without the source: survives edited files
  kLikeness,   // as kSite, but of the api only its last part, and no module: survives a renamed or
               // wrapped module tree
  kPlace,      // api, direction, enclosing module: survives another batch size
  kApi,        // api and direction: survives another module tree
  kBaseName,  // last part of the api without underscores: Torch.add, Tensor.__add__ and Tensor.add_
              // are one
};
inline constexpr int kKeyLevels = 6;

// Which evidence both dumps have. What only one of the two recorded is left out of the keys: it
// must not make equal calls look different.
struct KeyEvidence {
  bool stacks = false, parents = false;
  bool shapes = true;            // false: those of one side are shapes of parts
  bool cross_framework = false;  // one dump is of MindSpore: class names and prefixes differ
};
KeyEvidence CommonEvidence(const Dump& target, const Dump& golden);

// One 64-bit hash for each record. Equal keys mean "may be the same call". The target's names are
// translated by `mapping` first.
class RecordKeys {
 public:
  RecordKeys(const Dump& dump, const KeyEvidence& evidence, const NameMapping* mapping);
  uint64_t Key(uint32_t record, KeyLevel level) const;
  // The hash of the innermost frames of its stack; 0 when it has no stack.
  uint64_t Stack(const Record& record) const;

 private:
  const Dump& dump_;
  KeyEvidence evidence_;
  const NameMapping* mapping_;
  std::vector<uint64_t> stacks_;
};

uint64_t HashText(std::string_view text, uint64_t seed = 0);
// "Module.fc.Linear" for "Module.fc.Linear.forward.0"; the name itself when it is not the name of a
// module's call.
std::string_view WithoutCall(std::string_view entry_name);
// The golden's spelling of an api of the target; the api itself when `mapping` is null.
std::string_view MappedApi(std::string_view api, const NameMapping* mapping);
// "add" of "Tensor.__add__", "Torch.add" and "Tensor.add_".
std::string_view BaseApi(std::string_view api);
// A step of an optimizer, clipping of gradients, a call of GradScaler: "Optimizer.AdamW.step".
bool IsOptimizerCall(std::string_view api);
// The part of a leaf's name that belongs to the leaf: ".input.0" of "Torch.add.3.forward.input.0".
std::string_view LeafSuffix(const Leaf& leaf, const Record& record);
// Whether the leaf is what the call left in an argument or buffer that it does not return: the
// running statistics of batch_norm, x of `x[index] = y` (ours only).
bool IsChangedInPlace(const Leaf& leaf, const Record& record);
// The leaf's place in its slot, the same in every dialect: "0" of "Torch.add.3.forward.input.0",
// "Torch_add_3_forward_input.0" and, of a single result, "Torch_add_3_forward_output".
std::string_view LeafPlace(const Leaf& leaf, const Record& record);
// Leaves are paired only within one slot class. Positional and keyword arguments are one class,
// since a program may pass an argument either way; outputs are another.
uint64_t SlotClass(Slot slot);
// What the elements of a tensor are recognised by: its fingerprint, else its checksum, else its
// statistics; 0: nothing was recorded.
uint64_t ContentKey(const Leaf& leaf);
// Whether one is the transpose of the other, of a matrix that is not square: [16, 48] and [48, 16].
bool IsTransposed(Shape a, Shape b);
// Whether one dump is of MindSpore and the other is not.
bool OfTwoFrameworks(const Dump& target, const Dump& golden);
// Whether the two checksums are of one kind. An MD5 has 32 digits, and no other kind has.
bool ComparableChecksums(const Leaf& a, const Leaf& b);

}  // namespace msprobe::compare
