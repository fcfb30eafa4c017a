// Compares each call of a run with the call of the same name in a reference dump ("bench_path"), as
// soon as the call has returned. A call differs when its inputs are the same as in the reference
// dump and its outputs are not.
//
//   MSPROBE_RETURN_IF_ERROR(ReferenceSearch::Check("runs/golden", "runs/now"));
//   ReferenceSearch search("runs/golden");
//   MSPROBE_ASSIGN_OR_RETURN(const bool found, search.Begin(step, rank));
//   MSPROBE_RETURN_IF_ERROR(search.Write(entry));
//   if (search.verdict() == ReferenceSearch::Verdict::kDiffers) Keep();
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/summary_mode.h"
#include "engine/dump/read/reader.h"
#include "engine/model/entry_sink.h"

namespace msprobe::dump {

class ReferenceSearch final : public EntrySink {
 public:
  enum class Verdict : uint8_t { kAlike, kDiffers, kOtherInputs, kUnclear, kNoPartner };

  // `path`: a path for FindDumps. Begin reads the dump.
  explicit ReferenceSearch(std::string path) : path_(std::move(path)) {}

  // Whether a run that writes to `dump_path` can be compared with the dumps at `path`. Errors:
  // kNotFound; kInvalidDump; kInvalidArgument: no checksums, or the run would overwrite the dumps.
  static Status Check(const std::string& path, const std::string& dump_path);

  // Reads the dump of this step and rank, with which calls are compared from now on. False: there
  // is none, which is logged once. Errors: as ReadDump.
  Result<bool> Begin(int64_t step, std::optional<int> rank);
  // The checksum that entries must have, besides their fingerprints.
  kernels::Checksum checksum() const { return checksum_; }

  // Judges the entry of a forward call; verdict() has the answer.
  Status Write(const Entry& entry) override;
  Verdict verdict() const { return verdict_; }
  // "compared with golden/step0/rank0/dump.json: 12 calls equal, 1 different, ..."; "" when no call
  // was judged since Begin.
  Message Report() const;

 private:
  enum class Kind : uint8_t { kNone, kFingerprint, kCrc32, kXor };
  struct Expected {  // one tensor of the reference dump
    uint64_t checksum, shape;
    Slot slot;
    Kind kind;
  };
  struct Range {
    uint32_t first = 0, count = 0;
  };
  struct HashName {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  bool Load(const Dump& dump);
  Verdict Compare(const Entry& entry) const;
  static std::optional<uint64_t> ChecksumOf(const TensorValue& tensor, Kind kind);
  static Expected Describe(const Leaf& leaf, bool casts_bfloat16);
  static std::optional<uint64_t> ChecksumOf(const Leaf& leaf, Kind kind);

  std::string path_, file_;  // file_: the dump in use
  std::optional<std::pair<int64_t, int>> begun_;
  bool found_ = false;
  kernels::Checksum checksum_ = kernels::Checksum::kNone;
  std::unordered_map<std::string, Range, HashName, std::equal_to<>> calls_;
  std::vector<Expected> expected_;
  Verdict verdict_ = Verdict::kUnclear;  // of the last entry
  std::array<int64_t, 5> counts_{};      // by verdict
};

}  // namespace msprobe::dump
