// What a comparison is asked for: the kind of data, how calls are paired, limits.
//
//   CompareOptions options;
//   options.mode = Mode::kMd5;
//   options.mapping.apis["Cell.net.fc.Dense"] = "Module.net.fc.Linear";
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::compare {

// Names that differ on purpose. Keys are the target's spelling, values the golden's.
struct NameMapping {
  // Record::api, whole: {"Cell.net.fc.Dense", "Module.net.fc.Linear"}, {"Functional.abs",
  // "Torch.abs"}.
  std::map<std::string, std::string> apis;
  // Leaf::name, whole: {"Functional.add.0.forward.input.1", "Torch.add.0.forward.kwargs.other"}.
  // Wins over everything else; the two may belong to calls that are not paired otherwise.
  std::map<std::string, std::string> leaves;
  // Of calls of an api (the target's spelling): where its values are found in the golden. Keys are
  // SlotClass (record_keys.h) of the forward call and first part of the place, "0" or "weight";
  // values of a listed slot class without an entry have no partner.
  struct Places {
    std::map<std::pair<uint64_t, std::string>, std::string> moved;
    std::set<uint64_t> listed;
  };
  std::map<std::string, Places> places;
  std::vector<std::string> notes;  // what of a request could not be done; told with the result
  bool empty() const { return apis.empty() && leaves.empty() && places.empty(); }
};

enum class Alignment : uint8_t {
  kAuto,   // equal names in the same order, else by content: survives inserted, removed and renamed
           // calls
  kNames,  // equal names only, as the earlier tools did: an inserted call shifts every later call
           // of the same API
};

struct CompareOptions {
  // Unset: tensors when both dumps have tensor files, checksums when both carry them, else
  // statistics.
  std::optional<Mode> mode;
  Alignment alignment = Alignment::kAuto;
  NameMapping mapping;
  // Calls whose values have other shapes or are not as many are no partners.
  bool same_shapes = false;
  // A row is `noise` up to this multiple of what rounding explains for its dtype (judge.h has the
  // table).
  double tolerance = 1;
  // Bytes of tensor files held at one time, over all threads. One pair may exceed it, alone.
  uint64_t max_tensor_bytes = uint64_t{4} << 30;
  // A pair of tensors that needs more memory than this is not read: its row is unknown, and says
  // what it needs. Files that are mapped need none, as the system can take it back, unless they
  // count, too.
  uint64_t most_tensor_bytes = UINT64_MAX;
  bool mapped_counts = false;
  std::shared_ptr<const ThresholdTable> thresholds;  // null: the shipped ones
  ThreadPool* pool = nullptr;                        // null: ThreadPool::Default()
};

}  // namespace msprobe::compare
