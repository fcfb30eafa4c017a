#include "engine/key_data/key_data_writer.h"

#include <fmt/format.h>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/tensors/npy.h"
#include "engine/kernels/stats.h"

namespace msprobe::key_data {
namespace {

constexpr size_t kIndent = 4;  // as json.dump(indent=4) of msprobe 26

// `text` as one line at this depth.
void AppendLine(std::string* json, size_t depth, std::string_view text) {
  json->append("\n").append(depth * kIndent, ' ').append(text);
}

void AppendStats(std::string* json, size_t depth, const TensorView& view) {
  const kernels::Stats stats = kernels::ComputeStats(view);
  json->append("{");
  for (const auto& [name, value] : {std::pair("max", stats.max), std::pair("min", stats.min),
                                    std::pair("mean", stats.mean), std::pair("norm", stats.norm)}) {
    AppendLine(json, depth + 1, fmt::format("\"{}\": ", name));
    AppendPythonFloat(json, value);
    json->append(",");
  }
  AppendLine(json, depth + 1, "\"shape\": [");
  for (int d = 0; d < view.ndim; ++d)
    AppendLine(json, depth + 2, fmt::format("{}{}", view.shape[d], d + 1 < view.ndim ? "," : ""));
  if (view.ndim > 0) AppendLine(json, depth + 1, "");
  json->append("]");
  AppendLine(json, depth, "}");
}

std::string StatsJson(KeyForm form, const std::vector<KeyTensor>& tensors) {
  std::string json = "{";
  AppendLine(&json, 1, "\"data\": ");
  if (form == KeyForm::kTensor) {
    AppendStats(&json, 1, tensors.front().view);
  } else {
    json += form == KeyForm::kList ? '[' : '{';
    for (const KeyTensor& tensor : tensors) {
      AppendLine(&json, 2, "");
      if (form == KeyForm::kDict) {
        AppendJsonString(&json, tensor.name);
        json += ": ";
      }
      AppendStats(&json, 2, tensor.view);
      if (&tensor != &tensors.back()) json += ',';
    }
    if (!tensors.empty()) AppendLine(&json, 1, "");
    json += form == KeyForm::kList ? ']' : '}';
  }
  AppendLine(&json, 0, "}");
  return json;
}

// A key as part of a path: it names no other folder.
std::string FileName(std::string_view text) {
  std::string name(text);
  for (char& c : name) c = c == '/' || static_cast<unsigned char>(c) < ' ' ? '_' : c;
  return name.empty() || name == "." || name == ".." ? "_" + name : name;
}

}  // namespace

Status KeyDataWriter::Save(const std::string& key, KeyForm form,
                           const std::vector<KeyTensor>& tensors, int rank,
                           std::optional<int64_t> micro_step) const {
  const std::string name = FileName(key);
  std::string folder = JoinPath(JoinPath(dump_path_, "data"), name);
  folder = JoinPath(folder, fmt::format("step{}/rank{}", step_, rank));
  if (micro_step) folder = JoinPath(folder, fmt::format("micro_step{}", *micro_step));
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const KeyTensor& tensor : tensors) {
    const std::string file =
        form == KeyForm::kTensor ? name : fmt::format("{}.{}", name, FileName(tensor.name));
    MSPROBE_RETURN_IF_ERROR(formats::WriteNpy(JoinPath(folder, file + ".npy"), tensor.view));
  }
  return WriteFileAtomically(JoinPath(folder, name + ".json"), StatsJson(form, tensors));
}

void KeyDataWriter::Step() {
  ++step_;
  saves_.clear();
}

}  // namespace msprobe::key_data
