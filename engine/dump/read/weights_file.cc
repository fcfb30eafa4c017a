#include "engine/dump/read/weights_file.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/base/file.h"
#include "engine/dump/read/step_in_path.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"
#include "engine/model/sketch_text.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

std::string Decoded(formats::JsonText text) {
  TextArena arena;
  return std::string(arena.Decode(text));
}

// A number, "NaN" and "Infinity" included; anything else leaves NaN.
double NumberOf(formats::JsonCursor* json) {
  const char next = json->Peek();
  std::string_view text;
  if (next == '"' || next == '{' || next == '[' || next == 'n' || next == 't' || next == 'f') {
    const double truth = next == 't' ? 1 : next == 'f' ? 0 : NAN;
    json->Skip();
    return truth;
  }
  return json->Number(&text) ? std::strtod(std::string(text).c_str(), nullptr) : NAN;
}

void ReadWeight(formats::JsonCursor* json, StepWeight* weight) {
  formats::JsonText key, text;
  for (json->BeginObject(); json->NextKey(&key);) {
    const char next = json->Peek();
    if (next == '"' && (key == "dtype" || key == "fp")) {
      if (json->String(&text))
        (key == "dtype" ? weight->dtype : weight->fingerprint) = Decoded(text);
    } else if (next == '"' && key == "sk") {
      if (json->String(&text)) weight->sketch = ParseSketch(Decoded(text));
    } else if (next == '[' && key == "shape") {
      weight->shape.emplace();
      for (json->BeginArray(); json->NextItem();) {
        const double extent = NumberOf(json);
        weight->shape->push_back(extent >= 0 && extent < 0x1p53 ? static_cast<int64_t>(extent)
                                                                : -1);
      }
    } else if (key == "requires_grad") {
      weight->trained = next == 't';
      json->Skip();
    } else if (key == "Max") {
      weight->max = NumberOf(json);
    } else if (key == "Min") {
      weight->min = NumberOf(json);
    } else if (key == "Mean") {
      weight->mean = NumberOf(json);
    } else if (key == "Norm") {
      weight->norm = NumberOf(json);
    } else {
      json->Skip();
    }
  }
}

}  // namespace

Status ReadStepWeights(const std::string& folder, std::vector<StepWeight>* weights) {
  Result<MappedFile> opened = MappedFile::OpenBelow(folder, "weights.json");
  if (!opened.ok()) {
    const ErrorCode code = opened.status().code();
    if (code == ErrorCode::kNotFound || code == ErrorCode::kInvalidDump) return Status::Ok();
  }
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, std::move(opened));
  formats::JsonCursor json(file.bytes());
  formats::JsonText key;
  std::string room;
  for (json.BeginObject(); json.NextKey(&key);) {
    StepWeight weight;
    weight.name = WithoutWrappers(Decoded(key), &room);
    if (json.Peek() == '{') {
      ReadWeight(&json, &weight);
    } else {
      json.Skip();
    }
    if (!json.failed()) weights->push_back(std::move(weight));
  }
  if (json.failed() && !json.truncated()) return json.Error(JoinPath(folder, "weights.json"));
  return Status::Ok();
}

std::string FolderOfNextStep(const std::string& folder) {
  const std::filesystem::path rank(folder), run = rank.parent_path().parent_path();
  const int32_t step = StepInPath(rank.parent_path().filename().string());
  if (step < 0) return "";
  return (run / fmt::format("step{}", step + 1) / rank.filename()).string();
}

std::vector<StepWeight> WeightsBefore(const Dump& dump) {
  if (!dump.ranks.empty()) return dump.began_with;
  std::vector<StepWeight> weights;
  if (!ReadStepWeights(dump.folder, &weights).ok()) weights.clear();
  return weights;
}

std::vector<StepWeight> WeightsAfter(const Dump& dump) {
  if (!dump.ranks.empty()) return dump.left_behind;
  std::vector<StepWeight> weights;
  const std::string folder = FolderOfNextStep(dump.folder);
  if (folder.empty() || !ReadStepWeights(folder, &weights).ok()) weights.clear();
  return weights;
}

}  // namespace msprobe::dump
