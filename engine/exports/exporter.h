// A comparison as the file of another tool's viewer.
//
//   const std::unique_ptr<Exporter> exporter = MakeExporter(ExportFormat::kPerfetto);
//   ExportPart part = exporter->Part(comparison, {.index = 0, .step = 3, .rank = 0});
//   parts.push_back(std::move(part).In(compare::StepState::kInherited));  // compare::StateOf tells
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("run.perfetto-trace", exporter->File(parts)));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::exports {

enum class ExportFormat : uint8_t { kPerfetto, kModelExplorer };

struct PairPlace {
  size_t index = 0;              // of the pair in its file
  int32_t step = -1, rank = -1;  // -1: without a number
};

// Text of a pair that was compared before it was known what its step is to the other steps. What
// depends on that is there for each state.
class ExportPart {
 public:
  static constexpr size_t kStates = std::size(compare::kStepStates);

  void Append(std::string_view text) { text_ += text; }
  // One of the texts, by the state; texts that are the same are kept once.
  void Append(const std::array<std::string, kStates>& by_state);
  // The text in one state. The part is used up.
  std::string In(compare::StepState state) &&;

 private:
  struct Choice {
    size_t at = 0;  // of the first text
    std::array<size_t, kStates> sizes{};
  };
  std::string text_;
  std::vector<Choice> choices_;
};

class Exporter {
 public:
  virtual ~Exporter() = default;
  // What the file holds of one pair of dumps. It stays when the comparison is freed. Thread-safe.
  virtual ExportPart Part(const compare::Comparison& comparison, const PairPlace& place) const = 0;
  // The whole file. A pair that could not be compared has an empty part. The parts are used up.
  virtual std::string File(std::span<std::string> parts) const = 0;
};

std::unique_ptr<Exporter> MakeExporter(ExportFormat format);

// "step 3, rank 0"; "" without numbers.
std::string PlaceText(const PairPlace& place);

}  // namespace msprobe::exports
