// The dialects: file formats that dumps come in, and what is known of each. docs/older/dialects.md
// says how each looks. A new dialect is a value of the enum and a row in dialect.cc.
//
//   const DialectFacts& facts = FactsOf(Dialect::kHooks);
//   facts.name;                                    // "torch_npu.hooks"
//   if (facts.keeps_storages) ...
#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe {

enum class Dialect : uint8_t {
  kNone,       // a dump that no reader made
  kMsprobe27,  // ours
  kOtherOurs,  // of our format, by another version; Dump::dialect_detail says which one
  kMsprobe26,
  kMsprobe8,
  kMsprobe1_2,
  kMsprobe1,
  kPtdbg6,
  kPtdbg5,
  kPtdbg1To4,
  kPtdbgFirst,      // ptdbg_ascend 0.1
  kHooks,           // torch_npu.hooks, the lines and the files of storages
  kTensors,         // tensor files without a dump around them
  kCheckpoint,      // the tensors of a model; Dump::dialect_detail is the layout of its files
  kMindSporeGraph,  // the operators of a compiled graph, as MindSpore itself writes them
};
inline constexpr int kDialectCount = 15;

// What readers and comparisons ask. A fact that a row does not name is false.
struct DialectFacts {
  Dialect dialect = Dialect::kNone;
  std::string_view name;  // as reports print it, before Dump::dialect_detail

  // A count of NaN, infinities or zeros that is not in an entry is 0. Else it is unknown.
  bool leaves_out_counts_of_zero = false;
  // Statistics of float32 and narrower floats are float32 numbers, spelled with the digits that
  // those need.
  bool writes_float32_statistics = false;
  // Gradients of an API's inputs are listed in the order of its arguments. Else the order is that
  // of the autograd graph.
  bool orders_gradients_by_argument = false;
  // The CRC-32 of a bfloat16 tensor is that of its elements as float32.
  bool casts_bfloat16_for_crc32 = false;
  // Text values and stacks are written by GuardText (guarded_text.h).
  bool guards_text = false;
  // A tensor file may hold a whole storage; its name says which part is the tensor.
  bool keeps_storages = false;
  // Records are tensors of files, not calls of a program: no stacks, no order, no backward pass.
  bool has_no_calls = false;
};

const DialectFacts& FactsOf(Dialect dialect);

// Of the member "tool" in the header of a dump.json: kMsprobe27 of "msprobe 27.0.0", kOtherOurs of
// "msprobe 28.1". Older tools wrote none: kNone.
Dialect DialectOfTool(std::string_view tool);

}  // namespace msprobe
