#include "engine/dump/tensors/storage_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <unordered_map>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/pkl/pkl_file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/text/json.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

bool TakeNumber(std::string_view* text, int64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < 0) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

bool TakeWord(std::string_view* text, std::string_view word) {
  if (!text->starts_with(word)) return false;
  text->remove_prefix(word.size());
  return true;
}

// Reads "2,1]", the text after "[".
bool TakeNumbers(std::string_view* text, std::vector<int64_t>* numbers) {
  while (!TakeWord(text, "]")) {
    if (!numbers->empty() && !TakeWord(text, ",")) return false;
    if (numbers->size() == formats::kMaxTensorDimensions ||
        !TakeNumber(text, &numbers->emplace_back()))
      return false;
  }
  return true;
}

struct NamedFile {
  StorageName name;
  std::string file;
  auto Order() const { return std::tie(name.index, name.side, name.place); }
};

using Files = std::vector<NamedFile>::iterator;

// The end of the group that begins at `first`.
Files EndOfGroup(Files first, Files end) {
  return std::find_if(first, end, [&](const NamedFile& one) {
    return one.name.index != first->name.index || one.name.side != first->name.side;
  });
}

// For two neighbouring groups: 1 when they are the output and then the input of one backward call,
// -1 when they are the input and then the output of one, 0 when they belong to two calls.
int OrderOf(const StorageName& first, const StorageName& second) {
  constexpr std::string_view kInput = "_input", kOutput = "_output";
  const bool output = first.side.ends_with(kOutput);
  if (output == second.side.ends_with(kOutput) || second.index != first.index + 1) return 0;
  const auto stem = [&](const StorageName& name, bool is_output) {
    return name.side.substr(0, name.side.size() - (is_output ? kOutput : kInput).size());
  };
  const std::string_view call = stem(first, output);
  if (call != stem(second, !output) || !call.ends_with("_backward")) return 0;
  return output ? 1 : -1;
}

// Puts the "input" group of each backward call before its "output" group, because the reader of
// lines begins a new call where an input follows an output. In folders that were written in the
// order of autograd, the "output" group (the incoming gradients) comes first. The first backward
// call shows whether the folder has this order.
void PutInputsFirst(Files at, Files end) {
  int order = 0;  // of the first backward call that has both groups
  while (at != end) {
    const Files second = EndOfGroup(at, end);
    const int found = second == end ? 0 : OrderOf(at->name, second->name);
    if (order == 0) order = found;
    if (order < 0) return;
    if (found <= 0) {
      at = second;
      continue;
    }
    const Files next = EndOfGroup(second, end);
    std::rotate(at, second, next);
    at = next;
  }
}

}  // namespace

std::optional<StorageName> ParseStorageName(std::string_view file_name) {
  StorageName name;
  std::string_view rest = file_name;
  if (!TakeNumber(&rest, &name.index) || !TakeWord(&rest, "_")) return std::nullopt;
  const size_t shape = rest.find("_shape[");
  if (shape == rest.npos) return std::nullopt;
  std::string_view call = rest.substr(0, shape);
  const size_t digits = call.find_last_not_of("0123456789");
  if (digits == call.npos || digits + 1 == call.size()) return std::nullopt;
  name.side = call.substr(0, digits + 1);
  if (!name.side.ends_with("_input") && !name.side.ends_with("_output")) return std::nullopt;
  call.remove_prefix(digits + 1);
  if (!TakeNumber(&call, &name.place) || !call.empty()) return std::nullopt;
  rest.remove_prefix(shape);
  const bool whole = TakeWord(&rest, "_shape[") && TakeNumbers(&rest, &name.shape) &&
                     TakeWord(&rest, "_stride[") && TakeNumbers(&rest, &name.strides) &&
                     TakeWord(&rest, "_offset[") && TakeNumber(&rest, &name.offset) &&
                     TakeWord(&rest, "]_format[") && TakeNumber(&rest, &name.format) &&
                     rest == "].npy" && name.shape.size() == name.strides.size();
  return whole ? std::optional(std::move(name)) : std::nullopt;
}

bool AreStorages(const std::vector<std::string>& files) {
  return !files.empty() && std::all_of(files.begin(), files.end(), [](const std::string& file) {
    return ParseStorageName(file).has_value();
  });
}

Status ReadStorageFolder(const std::vector<std::string>& files, Dump* dump) {
  std::vector<NamedFile> named;
  for (const std::string& file : files) named.push_back({{}, file});
  for (NamedFile& one : named) one.name = *ParseStorageName(one.file);
  std::sort(named.begin(), named.end(),
            [](const NamedFile& a, const NamedFile& b) { return a.Order() < b.Order(); });
  PutInputsFirst(named.begin(), named.end());
  // The lines that torch_npu.hooks would have written, without elements.
  std::string lines;
  for (const NamedFile& one : named) {
    std::string dtype;
    Result<MappedFile> file = MappedFile::OpenBelow(dump->tensor_folder, one.file);
    if (file.ok()) {
      if (const Result<formats::TensorFile> npy = formats::DescribeNpy(*file); npy.ok())
        dtype = DTypeTorchName(npy->dtype);
    }
    lines += "[";
    AppendJsonString(&lines,
                     fmt::format("{}_{}.{}", one.name.index, one.name.side, one.name.place));
    lines += fmt::format(", [], \"{}\", {}]\n", dtype, ShapeText(one.name.shape));
  }
  const std::string& kept = dump->arena.emplace_back(std::move(lines));
  std::vector<int32_t> segments;
  MSPROBE_RETURN_IF_ERROR(ReadPklLines(dump->path, kept, dump, &segments));
  dump->sampled = false;
  dump->sample_step = 1;
  // The reader changes the order of values in backward calls, so each leaf finds its file by name.
  TextArena arena;
  std::unordered_map<std::string, const NamedFile*> by_line;
  for (const NamedFile& one : named)
    by_line[fmt::format("{}_{}.{}", one.name.index, one.name.side, one.name.place)] = &one;
  for (Leaf& leaf : dump->leaves) {
    const auto found = by_line.find(std::string(leaf.name));
    if (found != by_line.end()) leaf.data_name = arena.Copy(found->second->file);
    leaf.value = {};
    leaf.max = leaf.min = leaf.mean = {};
    leaf.has_stats = false;
  }
  arena.Release(&dump->arena);
  return Status::Ok();
}

Status ViewStorage(const StorageName& name, std::string_view path, formats::TensorFile* tensor) {
  const int64_t elements = tensor->view().numel();
  if (!tensor->view().IsContiguous() ||
      !formats::FitsStorage(tensor->dtype, name.shape, name.strides, name.offset, elements)) {
    return InvalidDump(path)
        .Expected("a storage that holds shape {} with strides {} from {}"_t(
            ShapeText(name.shape), ShapeText(name.strides), name.offset))
        .Found("{} elements"_t(elements));
  }
  tensor->data = static_cast<const char*>(tensor->data) +
                 static_cast<size_t>(name.offset) * DTypeSize(tensor->dtype);
  tensor->shape = name.shape;
  tensor->strides = name.strides;
  return Status::Ok();
}

}  // namespace msprobe::dump
