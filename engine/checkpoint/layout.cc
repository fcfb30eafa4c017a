#include "engine/checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/base/file.h"
#include "engine/formats/tensors/safetensors.h"

namespace msprobe::checkpoint {
namespace {

using LayoutKind = CheckpointLayout::Kind;

bool HasAnyEnd(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

// Whether a file in a folder holds a model, by its name. Other files in the folder are ignored.
bool IsModelFile(std::string_view name) {
  const bool named = name.starts_with("model") || name.starts_with("pytorch_model") ||
                     name.starts_with("adapter_model") || name.starts_with("consolidated") ||
                     name.starts_with("diffusion_pytorch_model");
  return named && HasAnyEnd(name, {".safetensors", ".bin", ".pt", ".pth", ".ckpt"});
}

bool IsTensorContent(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return false;
  const std::string_view bytes = file->bytes();
  return bytes.starts_with("PK\x03\x04") || formats::LooksLikeSafetensors(bytes) ||
         (bytes.starts_with("\x80") && HasAnyEnd(path, {".pt", ".bin", ".pth", ".ckpt"}));
}

// The folder of the latest iteration, iter_0000100 or release, which `tracker` names.
Result<std::string> LatestIteration(const std::string& folder, const std::string& tracker) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(tracker));
  std::string_view text = file.bytes();
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  std::string name = "release";
  if (text != name) {
    int64_t iteration = -1;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), iteration);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size() || iteration < 0) {
      return InvalidDump(tracker).Expected("a number of steps, or release"_t).Found(Excerpt(text));
    }
    name = fmt::format("iter_{:07d}", iteration);
  }
  std::string latest = JoinPath(folder, name);
  if (IsDirectory(latest)) return latest;
  return InvalidDump(tracker).Expected("a folder {}"_t(latest)).Found("none of that name"_t);
}

bool HasMegatronRanks(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.starts_with("mp_rank_"); });
}

}  // namespace

Result<CheckpointLayout> FindLayout(const std::string& path) {
  if (!Exists(path)) return NotFound(path).Expected("a checkpoint: a file or a folder"_t);
  CheckpointLayout out{.folder = path};
  if (!IsDirectory(path)) {
    if (HasAnyEnd(path, {".json", ".pkl", ".npy", ".npz", ".zip"})) return out;
    if (IsTensorContent(path)) out = {.kind = LayoutKind::kFiles, .folder = path, .files = {path}};
    return out;
  }
  MSPROBE_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(path));
  if (const std::string tracker = JoinPath(path, "latest_checkpointed_iteration.txt");
      IsRegularFile(tracker)) {
    MSPROBE_ASSIGN_OR_RETURN(out.folder, LatestIteration(path, tracker));
    MSPROBE_ASSIGN_OR_RETURN(names, ListDirectory(out.folder));
  }
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("dump.json") || has("debug.json")) return out;
  if (HasMegatronRanks(names)) {
    out.kind = LayoutKind::kMegatron;
    return out;
  }
  if (has(".metadata")) {
    out.kind = LayoutKind::kDistributed;
    return out;
  }
  // A folder may have the same weights in two formats: the one that other tools prefer is read.
  for (const std::string_view index :
       {"model.safetensors.index.json", "pytorch_model.bin.index.json"}) {
    if (!has(index)) continue;
    out.kind = LayoutKind::kIndexed;
    out.files = {std::string(index)};
    return out;
  }
  const bool safetensors = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return IsModelFile(name) && name.ends_with(".safetensors");
  });
  for (const std::string& name : names) {
    if (!IsModelFile(name) || (safetensors && !name.ends_with(".safetensors"))) continue;
    const std::string file = JoinPath(out.folder, name);
    if (IsTensorContent(file)) out.files.push_back(file);
  }
  if (!out.files.empty()) out.kind = LayoutKind::kFiles;
  return out;
}

}  // namespace msprobe::checkpoint
