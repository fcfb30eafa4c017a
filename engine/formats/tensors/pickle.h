// A restricted unpickler: bytes in, a tree of plain values out. It runs nothing, imports nothing
// and never recurses.
//
//   MSPROBE_ASSIGN_OR_RETURN(PickleTree tree, Unpickle(bytes, {.path = "x.pt"}));
//   const PickleNode& root = tree.root();
//   // The first key and the first value.
//   if (root.kind == PickleKind::kDict) Use(tree[root.items[0]], tree[root.items[1]]);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::formats {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // text: little-endian two's complement, more than 8 bytes
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kSet,
  kDict,    // items: key, value, key, value...; ordered as written. collections.OrderedDict is one
            // too
  kGlobal,  // module and text (the name): one of the allowed globals
  kCall,    // items: [callee, argument tuple]: a call that Python would make; it was not made. With
            // keep_objects a third item may follow: the state that the object would get
  kPersistent,  // items: [id]: how torch.save names a storage
};

// Strings point into the pickle's bytes.
struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  uint16_t depth = 0;   // of nesting below; an upper bound of 256 is enforced while building
  int64_t integer = 0;  // kInt; kBool: 0 or 1
  double real = 0;      // kFloat
  std::string_view module, text;
  std::vector<uint32_t>
      items;  // indices of other nodes; a node may stand in several places, even below itself
  uint64_t offset = 0;  // in the file, of the opcode that made it
};

class PickleTree {
 public:
  const PickleNode& root() const { return nodes_[root_]; }
  uint32_t root_index() const { return root_; }
  const PickleNode& operator[](uint32_t index) const { return nodes_[index]; }
  size_t size() const { return nodes_.size(); }
  // The callee of a call and a global by its dotted name: "torch._utils._rebuild_tensor_v2". Empty
  // for other nodes.
  std::string DottedName(const PickleNode& node) const;

 private:
  friend class PickleMachine;
  std::vector<PickleNode> nodes_;
  uint32_t root_ = 0;
};

struct UnpickleOptions {
  std::string path;              // for messages
  uint64_t base_offset = 0;      // of `bytes` in that file, for messages
  uint32_t max_nodes = 4 << 20;  // about 110 bytes of memory each
  // Objects of any class are kCall nodes in the tree; otherwise they are an error. No code runs.
  bool keep_objects = false;
};

// Protocols 2 to 5, as torch.save writes them. Globals beyond a short list of plain ones (tensor
// and parameter rebuilders, storages, dtypes, torch.Size, torch.device, OrderedDict, set, complex,
// ...), opcodes that torch.save never writes, nesting over 256, indices and lengths out of range
// are kInvalidDump with file and offset. `consumed`, when given, gets the length up to and
// including STOP; without it bytes after STOP are an error.
Result<PickleTree> Unpickle(std::string_view bytes, const UnpickleOptions& options = {},
                            size_t* consumed = nullptr);

}  // namespace msprobe::formats
