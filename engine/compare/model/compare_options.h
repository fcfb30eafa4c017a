// What a caller can choose for a comparison: the kind of data, how calls are paired, limits.
//
//   CompareOptions options;
//   options.mode = Mode::kChecksum;
//   options.mapping.apis["Cell.net.fc.Dense"] = "Module.net.fc.Linear";
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::compare {

class OperationTable;

namespace relations {
struct Carried;
}

// Names that differ on purpose. Keys are the target's spelling, values the golden's.
struct NameMapping {
  // Record::api, whole: {"Cell.net.fc.Dense", "Module.net.fc.Linear"}, {"Functional.abs",
  // "Torch.abs"}.
  std::map<std::string, std::string> apis;
  // Leaf::name, whole: {"Functional.add.0.forward.input.1", "Torch.add.0.forward.kwargs.other"}.
  // These pairs win over everything else. Their calls need not be paired with each other.
  std::map<std::string, std::string> leaves;
  // For an api (the target's spelling) the places of its values in the golden. Keys of `moved` are
  // a SlotClass (record_keys.h) of the forward call and the first part of the place, "0" or
  // "weight". Values of a slot class in `listed` that `moved` does not name have no partner.
  struct Places {
    std::map<std::pair<uint64_t, std::string>, std::string> moved;
    std::set<uint64_t> listed;
  };
  std::map<std::string, Places> places;
  std::vector<Message> notes;  // parts of a request that could not be done; shown in reports
  bool empty() const { return apis.empty() && leaves.empty() && places.empty(); }
};

enum class Alignment : uint8_t {
  kAuto,   // by names when all are equal and in the same order, else by what calls look like:
           // inserted, removed and renamed calls do no harm
  kNames,  // by equal names only, as the older tools do: an inserted call shifts every later call
           // of the same API
};

// What makes two values equal enough.
enum class Exactness : uint8_t {
  kAuto,      // bits, when both runs have one environment and make the same calls; else rounding
  kExact,     // bits
  kTolerant,  // differences within rounding are noise
};

struct CompareOptions {
  // Unset: tensors when both dumps have tensor files, checksums when both carry them, else
  // statistics.
  std::optional<Mode> mode;
  Alignment alignment = Alignment::kAuto;
  Exactness exactness = Exactness::kAuto;
  // What the step before left to this one; then what this one leaves to the next
  // (relations/carried.h). Null: the first step.
  std::shared_ptr<relations::Carried> carried;
  bool keep_proofs = false;  // in Decided::proofs
  NameMapping mapping;
  // true: calls are partners only when they have equally many values, of the same shapes.
  bool same_shapes = false;
  // One side has parts of the other's values (layouts/): shapes do not tell which calls are
  // partners.
  bool shapes_of_parts = false;
  // A row is `noise` up to this multiple of the roundings that are explained for its dtype
  // (rounding.h has the table).
  double tolerance = 1;
  // Bytes of tensors that are in memory at one time, over all threads. A single pair that is larger
  // is read alone.
  uint64_t max_resident_tensor_bytes = uint64_t{4} << 30;
  // A pair of tensors that needs more bytes than this is not read: its row is unknown, and says how
  // many bytes it needs. A file that is mapped needs none, because the system can take its pages
  // back; with `mapped_counts` it needs its size.
  uint64_t max_pair_bytes = UINT64_MAX;
  bool mapped_counts = false;
  std::shared_ptr<const ThresholdTable> thresholds;  // null: the shipped ones
  // What is known of operations (judge/operation_facts.h); null: the shipped rows alone.
  std::shared_ptr<const OperationTable> operations;
  ThreadPool* pool = nullptr;  // null: ThreadPool::Default()
  // Called with how many bytes of the tensors are compared, and of how many; by any thread, by
  // several at a time. May be empty.
  std::function<void(uint64_t done, uint64_t all)> progress;
};

}  // namespace msprobe::compare
