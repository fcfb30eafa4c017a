// The content of a dump of any generation: records in execution order, each with its leaves
// (tensors and plain values).
//
//   MSPROBE_ASSIGN_OR_RETURN(Dump dump, ReadDump("runs/a/step0/rank0"));   // reader.h
//   for (const Record& r : dump.records)
//     for (const Leaf& leaf : dump.LeavesOf(r)) Print(leaf.name, leaf.max);
//
// Text members point into the mapped files or into `arena`; both live as long as the Dump (which
// moves, but does not copy).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text_ref.h"
#include "engine/model/dialect.h"
#include "engine/model/element_type.h"
#include "engine/model/precision_text.h"
#include "engine/model/shape.h"
#include "engine/model/signature.h"
#include "engine/model/sketch_text.h"
#include "engine/model/step_weight.h"

namespace msprobe {

enum class Task : uint8_t {
  kStatistics,
  kTensor,
  kStructure,
  kOverflowCheck,
  kNanCheck,
  kGradProbe,
  kFreeBenchmark,
  kOther
};
enum class Level : uint8_t { kL0, kL1, kMix, kL2, kDebug, kOther };

// In the order in which tables list them within one record.
enum class Slot : uint8_t { kInput, kKwarg, kParameter, kOutput, kParameterGrad, kDebug };
enum class Direction : uint8_t { kForward, kBackward, kParameterGrad, kNone };
enum class LeafKind : uint8_t {
  kTensor,
  kScalar,  // a plain value with a type: int, str, slice, torch.Size, dtype, process group, ...
  kNone,    // null: nothing was recorded; dtype and shape are "N/A", the four statistics "null"
};

// Elements of each kind; -1: the dialect does not say.
struct ElementCounts {
  int64_t nan = -1, pos_inf = -1, neg_inf = -1, zero = -1;
};
inline constexpr ElementCounts kUnknownCounts{}, kNoneOfAKind{0, 0, 0, 0};

// Held by the million: what most leaves have alike is held once.
struct Leaf {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  uint32_t record = 0;  // index into Dump::records
  Slot slot = Slot::kInput;
  LeafKind kind = LeafKind::kTensor;
  bool has_stats = false;  // the numbers below mean something: a measured tensor, a number, a bool
  TextRef name;            // row name in tables: "Functional.linear.0.forward.input.0"
  TextRef type;            // "torch.Tensor", "int", ...
  ElementType dtype;       // "torch.float32", "Float32"; "<class 'int'>" for a Python scalar
  Shape shape;             // "[2, 3]" as a Python list prints
  TextRef requires_grad;   // "True", "False" or "" when the dialect does not say
  // As spelled in the file ("NaN", "Infinity"); "" when absent, "null" when null, "True" for true.
  // Of a scalar: its value as Python prints it, four times.
  TextRef max, min, mean, norm;
  double max_value = kNaN, min_value = kNaN, mean_value = kNaN, norm_value = kNaN;
  const ElementCounts* counts = &kUnknownCounts;  // or one of Dump::counts
  TextRef checksum;     // checksum text (CRC-32 or xor, as the dialect wrote it); "" when absent
  TextRef fingerprint;  // ours, as 16 hex digits; "" when absent
  // Text of a scalar. Of a tensor: its name inside a file that holds several, or, without
  // data_name, its elements as dumps of torch_npu.hooks list them, "[1.5, -2.0]".
  TextRef value;
  // File below the tensor folder, as the dump spells it (ReadTensorData in tensor_data.h looks
  // nowhere else); "" when none, "-1" when the tool failed to write it.
  TextRef data_name;
};

static_assert(sizeof(Leaf) <= 152);

// Who took part in a call of torch.distributed. Numbers of processes count over all of them.
struct ProcessGroup {
  enum class Role : uint8_t { kNone, kSource, kReceiver };
  std::string_view ranks;  // "[0, 1]", in the group's order
  int32_t place = -1;      // of this process in `ranks`
  Role role = Role::kNone;
  int32_t peer = -1;  // whom the numbers come from or go to, in calls that have one
};

struct Record {
  TextRef name;       // "Functional.linear.0.forward", "Module.fc.Linear.backward.0"
  TextRef api;        // without call number and direction: "Functional.linear"
  int64_t call = -1;  // call number; -1 when the name has none
  Direction direction = Direction::kNone;
  bool is_module = false;  // Module.* or Cell.*
  uint32_t first_leaf = 0, leaf_count = 0;
  int32_t stack = -1;  // index into Dump::stacks, -1: unknown
  int32_t group = -1;  // index into Dump::groups, -1: none recorded
  TextRef parent;      // entry name of the enclosing module call; "" when none or unknown
  // "Module.fc.Linear" where the module around an API call is known and its call was not recorded
  // (ours, level L1); else "".
  TextRef module;
  enum class Mode : uint8_t { kUnknown, kEval, kTrain };
  Mode training = Mode::kUnknown;  // of a module's call (ours only)
  TextRef exception;               // type of the exception that ended the call (ours only); else ""
};

// What only few leaves have.
struct LeafText {
  uint32_t leaf = 0;  // index into Dump::leaves
  std::string_view text;
};
using LeafTexts = std::vector<LeafText>;  // in the order of their leaves

// The text of leaf number `leaf`, "" when it has none.
inline std::string_view TextOf(const LeafTexts& texts, int32_t leaf) {
  const auto found = std::lower_bound(
      texts.begin(), texts.end(), leaf,
      [](const LeafText& item, int32_t index) { return static_cast<int64_t>(item.leaf) < index; });
  const bool here = found != texts.end() && static_cast<int64_t>(found->leaf) == leaf;
  return here ? found->text : std::string_view();
}

// Numbers of a tensor without its extremes (kernels/rest_stats.h).
struct LeafRest {
  uint32_t leaf = 0;  // index into Dump::leaves
  int64_t extremes = 0;
  double max = 0, min = 0, norm = 0;
};

// The part of a DTensor that a tensor is, as the dump spells it.
struct LeafShard {
  uint32_t leaf = 0;              // index into Dump::leaves
  std::string_view mesh;          // "[[0, 1], [2, 3]]"
  std::string_view placements;    // [{"Shard": {"dim": 0}}, {"Replicate": {}}]
  std::string_view global_shape;  // "[8, 16]"; "" where the dump does not say
};

// Of a value that was joined of those of several ranks (compare/layouts): how, and what is known of
// it.
struct JoinedLeaf {
  uint32_t leaf = 0;  // index into Dump::leaves
  // "joined: Shard(2) of ranks 0, 1"; values that are joined alike share it.
  std::shared_ptr<const Message> how;
  // A sum over ranks: of its statistics only the mean is known, the others are bounds.
  bool sum = false;
  // Which numbers of its sketch are known. Its grid says itself whether it is.
  bool rows = false, squares = false, wave = false;
  kernels::Sketch sketch;
  // What each rank has of it: number of the rank, index into Dump::ranks, leaf of that dump; where
  // its shard begins in `dimension`, -1: not known.
  struct Part {
    int32_t rank = 0, dump = 0, leaf = 0;
    int64_t begin = -1;
  };
  std::vector<Part> parts;
  int32_t dimension = -1;  // of shards; -1: they are none, or of several dimensions
};

// A parameter or buffer that the run began with.
struct Weight {
  std::string_view name;         // "encoder.ln.weight"
  std::string_view fingerprint;  // "" when its elements could not be read
};

// What only some records have.
struct RecordText {
  uint32_t record = 0;  // index into Dump::records
  std::string_view text;
};
using RecordTexts = std::vector<RecordText>;  // in the order of their records

// The text of record number `record`, "" when it has none.
inline std::string_view TextOf(const RecordTexts& texts, int32_t record) {
  const auto found = std::lower_bound(texts.begin(), texts.end(), record,
                                      [](const RecordText& item, int32_t index) {
                                        return static_cast<int64_t>(item.record) < index;
                                      });
  const bool here = found != texts.end() && static_cast<int64_t>(found->record) == record;
  return here ? found->text : std::string_view();
}

// Code that a compiler (torch.compile) made was entered here: what it computes has no records.
struct CompiledCode {
  // "Module.fc.Linear": the innermost module that ran; "": no module was known.
  std::string_view module;
  std::string_view line;  // the user's line that entered it first: "train.py:41 y = f(x)"; or ""
};

namespace dump {
class TensorArchives;
}

struct Dump {
  std::string path;           // the file that was read; of a folder of tensors, the folder
  std::string folder;         // its directory
  std::string tensor_folder;  // folder of the tensor files; "" when there is none
  Dialect dialect = Dialect::kNone;
  Message dialect_detail;  // see Dialect; empty for those that have none
  std::string framework = "pytorch";
  Task task = Task::kStatistics;
  Level level = Level::kOther;
  bool has_checksums = false;  // some leaf carries a checksum: compared by checksum
  bool sampled = false;        // tensor data are a sample of each tensor's elements
  bool numbers_parsed = true;  // false: ReadOptions::parse_numbers
  // ptdbg_ascend 0.1: of tensors of more than 512 elements the files hold the first 256, each
  // sample_step-th, the last 256. 1: all elements; 0: other samples, or several runs with
  // different steps in one file.
  int64_t sample_step = 1;
  bool complete = true;  // false: the run was killed; `note` says what is missing
  Message note;

  std::vector<Record> records;  // in execution (file) order
  std::vector<Leaf> leaves;     // grouped by record, in table order within one
  std::vector<std::vector<std::string_view>> stacks;  // frames, innermost first
  std::vector<ProcessGroup> groups;
  // Of values in memory that nobody had written all of: the call that returned the memory.
  LeafTexts unwritten;
  LeafTexts unreadable;           // of tensors without numbers: why, "meta tensor"
  LeafTexts strides;              // of tensors that are not contiguous, in elements: "[1, 4]"
  LeafTexts sketches;             // as the file spells them: SketchOf
  std::vector<LeafRest> rests;    // of tensors with extremes, in the order of their leaves
  std::vector<LeafShard> shards;  // of DTensors (ours only), in the order of their leaves
  // Of a dump that was joined of those of several ranks (compare/layouts): of each joined value, in
  // the order of their leaves; of each record that not all ranks have, which have it; the dumps of
  // the ranks; the weights with which the step began, and the next one.
  std::vector<JoinedLeaf> joined;
  std::vector<std::pair<uint32_t, std::vector<int32_t>>> ranks_of_records;
  std::vector<std::shared_ptr<const Dump>> ranks;
  std::vector<StepWeight> began_with, left_behind;
  std::vector<Weight> weights;         // of weights.json: at the first start of a run only
  std::vector<Signature> signatures;   // of signatures.json (ours only), sorted by api
  std::vector<CompiledCode> compiled;  // of coverage.json (ours only), one for each module
  // Of calls that may draw random numbers (ours only): the state of the generator when the call
  // began, a fingerprint.
  RecordTexts random_draws;
  RecordTexts precisions;  // of calls under another policy than the header says: PrecisionOf
  // The number of the forward and backward pass within the step, one for each record; of
  // construct.json. Empty: it does not say.
  std::vector<int32_t> micro_steps;
  // What the header says of the run (ours only): "torch" -> "2.13.0", "seed" -> "1234", ...
  std::vector<std::pair<std::string, std::string>> provenance;

  std::vector<MappedFile> files;  // what the views point into
  std::shared_ptr<const dump::TensorArchives>
      archives;  // files of several tensors; see tensor_data.h
  std::deque<std::string> arena;
  ShapePool shapes;
  std::list<ElementCounts> counts;

  // As reports print it: "msprobe 27", "checkpoint: safetensors"; "" when no reader made the dump.
  Message DialectName() const {
    return Message::Joined({std::string(FactsOf(dialect).name), dialect_detail}, "");
  }
  void AddNote(Message text) { note = Message::Joined({std::move(note), std::move(text)}, "; "); }
  // The call that returned the memory of a leaf; "" when all of it had been written.
  std::string_view AllocationOf(int32_t leaf) const { return TextOf(unwritten, leaf); }
  // Why a leaf has no numbers; "" when it has, and in dumps of other tools.
  std::string_view UnreadableOf(int32_t leaf) const { return TextOf(unreadable, leaf); }
  // "" of a contiguous tensor, and in dumps of other tools.
  std::string_view StridesOf(int32_t leaf) const { return TextOf(strides, leaf); }
  // What shows whether two tensors have the same elements, rows or parts; kernels::SketchShapeOf
  // says how many rows and columns its numbers are of. Of a tensor with extremes (RestOf) the
  // extremes count as 0. nullopt: none was recorded (another tool, tensors of a device, of one
  // element).
  std::optional<kernels::Sketch> SketchOf(int32_t leaf) const {
    const std::string_view text = TextOf(sketches, leaf);
    return text.empty() ? std::nullopt : ParseSketch(text);
  }
  // Null: the tensor has no extremes, or its dump does not say.
  const LeafRest* RestOf(int32_t leaf) const {
    const auto found =
        std::lower_bound(rests.begin(), rests.end(), leaf, [](const LeafRest& item, int32_t index) {
          return static_cast<int64_t>(item.leaf) < index;
        });
    const bool here = found != rests.end() && static_cast<int64_t>(found->leaf) == leaf;
    return here ? &*found : nullptr;
  }
  // Null: the dump was not joined, or not this value.
  const JoinedLeaf* JoinedOf(int32_t leaf) const {
    const auto found = std::lower_bound(joined.begin(), joined.end(), leaf,
                                        [](const JoinedLeaf& item, int32_t index) {
                                          return static_cast<int64_t>(item.leaf) < index;
                                        });
    const bool here = found != joined.end() && static_cast<int64_t>(found->leaf) == leaf;
    return here ? &*found : nullptr;
  }
  // The state of the generator when a call began; "": it draws no random numbers, or the dump does
  // not say.
  std::string_view RandomStateOf(int32_t record) const { return TextOf(random_draws, record); }
  // The precision policy of a forward call (precision_text.h); "": the dump does not say.
  std::string_view PrecisionOf(int32_t record) const {
    const auto header = std::find_if(provenance.begin(), provenance.end(),
                                     [](const auto& item) { return item.first == kPrecision; });
    if (header == provenance.end()) return {};
    const std::string_view own = TextOf(precisions, record);
    return own.empty() ? std::string_view(header->second) : own;
  }
  std::span<const Leaf> LeavesOf(const Record& record) const {
    return {leaves.data() + record.first_leaf, record.leaf_count};
  }
};

}  // namespace msprobe
