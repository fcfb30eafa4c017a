#include "engine/formats/tensors/pt_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include "engine/base/pages.h"
#include "engine/formats/tensors/pickle_globals.h"
#include "engine/formats/tensors/pt_storage.h"

namespace msprobe::formats {
namespace {

constexpr int kMaxDepth = 256;
// A small tree can name a node very many times; beyond this limit the file is refused.
constexpr uint64_t kMaxVisits = 4 << 20;
constexpr uint64_t kMaxInflatedStorage = uint64_t{64} << 30;

size_t ScalarSize(DType dtype) {
  return DTypeKindOf(dtype) == DTypeKind::kComplex ? DTypeSize(dtype) / 2 : DTypeSize(dtype);
}

Result<std::shared_ptr<char[]>> Allocate(uint64_t size, const std::string& path) {
  std::shared_ptr<char[]> buffer(new (std::nothrow) char[std::max<uint64_t>(size, 1)]);
  if (buffer == nullptr) return Unsupported("{}: not enough memory for {} bytes"_t(path, size));
  return buffer;
}

}  // namespace

Status PtTensorBuilder::Fail(const PickleNode& at, Message expected, Message found,
                             Message hint) const {
  return InvalidDump(path_, at.offset)
      .Expected(std::move(expected))
      .Found(name_.empty() ? std::move(found) : "{} (in {})"_t(std::move(found), name_))
      .Hint(std::move(hint));
}

Result<std::vector<PtTensor>> PtTensorBuilder::Build() {
  MSPROBE_RETURN_IF_ERROR(Walk(tree_.root_index(), 0));
  return std::move(tensors_);
}

Status PtTensorBuilder::Walk(uint32_t index, int depth) {
  const PickleNode& node = tree_[index];
  if (depth > kMaxDepth) return Fail(node, "nesting of at most {}"_t(kMaxDepth), "more"_t);
  if (++visits_ > kMaxVisits) return Fail(node, "at most {} values"_t(kMaxVisits), "more"_t);
  switch (node.kind) {
    case PickleKind::kDict:
      return WalkDict(node, depth);
    case PickleKind::kTuple:
    case PickleKind::kList:
    case PickleKind::kSet: {
      const size_t length = name_.size();
      for (size_t i = 0; i < node.items.size(); ++i) {
        name_ += fmt::format("[{}]", i);
        MSPROBE_RETURN_IF_ERROR(Walk(node.items[i], depth + 1));
        name_.resize(length);
      }
      return Status::Ok();
    }
    case PickleKind::kCall: {
      const PickleNode &callee = tree_[node.items[0]], &arguments = tree_[node.items[1]];
      if (options_.keep_objects && !IsAllowedGlobal(callee.module, callee.text))
        return Status::Ok();
      if (callee.module == "torch._utils" || callee.module == "torch._tensor") {
        auto built = built_.find(index);
        if (built == built_.end()) {
          MSPROBE_ASSIGN_OR_RETURN(PtTensor tensor, BuildCall(callee, arguments, depth));
          tensor.node = index;
          built = built_.emplace(index, std::move(tensor)).first;
        }
        tensors_.push_back(built->second);
        tensors_.back().name = name_;
        return Status::Ok();
      }
      if (callee.text == "set" || callee.text == "frozenset") return Walk(node.items[1], depth + 1);
      if (callee.text == "Size" || callee.text == "device" || callee.module != "torch") {
        if (callee.module.substr(0, 6) != "torch.") return Status::Ok();
      }
      return Fail(node, "a call that rebuilds a tensor"_t,
                  "a call of {}"_t(tree_.DottedName(callee)));
    }
    case PickleKind::kPersistent:
      return Fail(node, "tensors"_t, "a bare storage"_t,
                  "save the tensor instead of its storage"_t);
    default:
      return Status::Ok();
  }
}

Status PtTensorBuilder::WalkDict(const PickleNode& node, int depth) {
  const size_t length = name_.size();
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const PickleNode& key = tree_[node.items[i]];
    if (key.kind == PickleKind::kString) {
      if (!seen.insert(key.text).second)
        return Fail(key, "each key once"_t, "{} again"_t(Excerpt(key.text, 80)));
      name_ += fmt::format("['{}']", key.text);
    } else if (key.kind == PickleKind::kInt || key.kind == PickleKind::kBool) {
      name_ += fmt::format("[{}]", key.integer);
    } else {
      name_ += fmt::format("[key {}]", i / 2);
    }
    MSPROBE_RETURN_IF_ERROR(Walk(node.items[i + 1], depth + 1));
    name_.resize(length);
  }
  return Status::Ok();
}

Result<PtTensor> PtTensorBuilder::BuildCall(const PickleNode& callee, const PickleNode& arguments,
                                            int depth) {
  if (callee.text == "_rebuild_parameter" || callee.text == "_rebuild_parameter_with_state") {
    return BuildParameter(arguments, depth);
  }
  if (callee.text == "_rebuild_from_type_v2" || callee.text == "_rebuild_from_type") {
    return BuildFromType(arguments, depth);
  }
  return BuildTensor(callee, arguments);
}

// (tensor, requires_grad, hooks[, state])
Result<PtTensor> PtTensorBuilder::BuildParameter(const PickleNode& arguments, int depth) {
  if (depth > kMaxDepth) return Fail(arguments, "nesting of at most {}"_t(kMaxDepth), "more"_t);
  const std::vector<uint32_t>& items = arguments.items;
  if (items.size() < 3 || tree_[items[0]].kind != PickleKind::kCall ||
      tree_[items[1]].kind != PickleKind::kBool) {
    return Fail(arguments, "a parameter's tensor, requires_grad and hooks"_t, "other arguments"_t);
  }
  const PickleNode& call = tree_[items[0]];
  const PickleNode& callee = tree_[call.items[0]];
  if (callee.module != "torch._utils" && callee.module != "torch._tensor") {
    return Fail(call, "a parameter's tensor"_t, "a call of {}"_t(tree_.DottedName(callee)));
  }
  MSPROBE_ASSIGN_OR_RETURN(PtTensor tensor, BuildCall(callee, tree_[call.items[1]], depth + 1));
  tensor.is_parameter = true;
  tensor.requires_grad = tree_[items[1]].integer != 0;
  return tensor;
}

// (rebuilder, class, its arguments, state): a tensor with attributes, or of a class that adds
// nothing to the data.
Result<PtTensor> PtTensorBuilder::BuildFromType(const PickleNode& arguments, int depth) {
  if (depth > kMaxDepth) return Fail(arguments, "nesting of at most {}"_t(kMaxDepth), "more"_t);
  const std::vector<uint32_t>& items = arguments.items;
  if (items.size() < 3 || tree_[items[0]].kind != PickleKind::kGlobal ||
      tree_[items[1]].kind != PickleKind::kGlobal || tree_[items[2]].kind != PickleKind::kTuple) {
    return Fail(arguments, "a rebuilder, a tensor class and arguments"_t, "other arguments"_t);
  }
  const PickleNode &callee = tree_[items[0]], &type = tree_[items[1]];
  if (callee.module != "torch._utils" && callee.module != "torch._tensor") {
    return Fail(callee, "a function that rebuilds a tensor"_t, tree_.DottedName(callee));
  }
  if (type.text != "Tensor" && type.text != "Parameter" && type.text != "Buffer") {
    return Fail(type, "a plain tensor class"_t, tree_.DottedName(type));
  }
  MSPROBE_ASSIGN_OR_RETURN(PtTensor tensor, BuildCall(callee, tree_[items[2]], depth + 1));
  tensor.is_parameter = tensor.is_parameter || type.text == "Parameter";
  return tensor;
}

// v1: (storage, offset, size, stride); v2: + requires_grad, hooks[, metadata]; v3: + requires_grad,
// hooks, dtype[, metadata].
Result<PtTensor> PtTensorBuilder::BuildTensor(const PickleNode& callee,
                                              const PickleNode& arguments) {
  const std::vector<uint32_t>& items = arguments.items;
  const bool v1 = callee.text == "_rebuild_tensor", v3 = callee.text == "_rebuild_tensor_v3";
  const size_t required = v1 ? 4 : v3 ? 7 : 6;
  if (items.size() < required || tree_[items[0]].kind != PickleKind::kPersistent ||
      tree_[items[1]].kind != PickleKind::kInt) {
    return Fail(arguments, "the {} arguments of {}"_t(required, callee.text), "other arguments"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(const Storage storage, FindStorage(tree_[items[0]]));
  PtTensor out;
  TensorFile& tensor = out.tensor;
  if (v3) {
    const PickleNode& dtype = tree_[items[6]];
    const std::optional<DType> known = dtype.kind == PickleKind::kGlobal && dtype.module == "torch"
                                           ? DTypeFromTorchName(dtype.text)
                                           : std::nullopt;
    if (!known) return Fail(dtype, "a dtype"_t, "another value"_t);
    tensor.dtype = *known;
  } else if (storage.dtype) {
    tensor.dtype = *storage.dtype;
  } else {
    return Fail(arguments, "a storage with a dtype"_t, "an untyped one"_t);
  }
  if (!v1) {
    if (tree_[items[4]].kind != PickleKind::kBool)
      return Fail(arguments, "requires_grad as a bool"_t, "another value"_t);
    out.requires_grad = tree_[items[4]].integer != 0;
  }
  MSPROBE_ASSIGN_OR_RETURN(tensor.shape, Integers(tree_[items[2]], "a shape"_t));
  MSPROBE_ASSIGN_OR_RETURN(tensor.strides, Integers(tree_[items[3]], "strides"_t));
  const int64_t offset = tree_[items[1]].integer;
  const size_t size = DTypeSize(tensor.dtype);
  const auto limit = static_cast<int64_t>(storage.bytes.size() / size);
  const Result<int64_t> bytes = CheckedByteSize(tensor.dtype, tensor.shape);
  if (tensor.shape.size() != tensor.strides.size() || !bytes.ok() || *bytes > kMaxTensorBytes) {
    return Fail(arguments, "a shape with as many strides, of at most 1 TiB"_t,
                "shape {}, strides {}"_t(ShapeText(tensor.shape), ShapeText(tensor.strides)));
  }
  if (!FitsStorage(tensor.dtype, tensor.shape, tensor.strides, offset, limit)) {
    return Fail(arguments, "a tensor inside its storage of {} elements"_t(limit),
                "offset {}, shape {}, strides {}"_t(offset, ShapeText(tensor.shape),
                                                    ShapeText(tensor.strides)));
  }
  tensor.data = storage.bytes.data() + static_cast<size_t>(offset) * size;
  tensor.owner = storage.owner;
  out.storage = storage.stored;
  out.checksum = storage.checksum;
  const size_t metadata = v3 ? 7 : 6;
  if (!v1 && items.size() > metadata)
    MSPROBE_RETURN_IF_ERROR(ResolveMathBits(tree_[items[metadata]], &tensor));
  return out;
}

Result<std::vector<int64_t>> PtTensorBuilder::Integers(const PickleNode& tuple,
                                                       const Message& what) const {
  const PickleNode* node = &tuple;
  if (node->kind == PickleKind::kCall && tree_.DottedName(*node) == "torch.Size" &&
      tree_[node->items[1]].items.size() == 1) {
    node = &tree_[tree_[node->items[1]].items[0]];
  }
  if (node->kind != PickleKind::kTuple && node->kind != PickleKind::kList) {
    return Fail(*node, "{}: a tuple of integers"_t(what), "another value"_t);
  }
  if (node->items.size() > static_cast<size_t>(kMaxTensorDimensions)) {
    return Fail(*node, "{} of at most {} dimensions"_t(what, kMaxTensorDimensions),
                fmt::format("{}", node->items.size()));
  }
  std::vector<int64_t> values;
  for (const uint32_t item : node->items) {
    const PickleNode& value = tree_[item];
    if (value.kind != PickleKind::kInt || value.integer < 0) {
      return Fail(
          *node, "{}: integers that are not negative"_t(what),
          value.kind == PickleKind::kInt ? fmt::format("{}", value.integer) : "another value"_t);
    }
    values.push_back(value.integer);
  }
  return values;
}

// ('storage', class, key, location, number of elements)
Result<PtTensorBuilder::Storage> PtTensorBuilder::FindStorage(const PickleNode& persistent) {
  const PickleNode& id = tree_[persistent.items[0]];
  const auto is = [&](size_t i, PickleKind kind) { return tree_[id.items[i]].kind == kind; };
  if (id.kind != PickleKind::kTuple || id.items.size() != 5 || !is(0, PickleKind::kString) ||
      !is(1, PickleKind::kGlobal) || !is(2, PickleKind::kString) || !is(3, PickleKind::kString) ||
      !is(4, PickleKind::kInt) || tree_[id.items[0]].text != "storage" ||
      !tree_[id.items[1]].text.ends_with("Storage")) {
    return Fail(id, "a storage's class, key, location and size"_t, "another value"_t);
  }
  const std::string_view key = tree_[id.items[2]].text;
  const int64_t count = tree_[id.items[4]].integer;
  const std::optional<DType> dtype = DTypeOfStorage(tree_[id.items[1]].text);
  const size_t size = dtype ? DTypeSize(*dtype) : 1;
  auto found = storages_.find(key);
  if (found == storages_.end()) {
    const std::string entry_name = fmt::format("{}data/{}", folder_, key);
    const ZipEntry* entry = zip_.Find(entry_name);
    if (entry == nullptr)
      return Fail(id, "an entry {} in the archive"_t(Excerpt(entry_name, 100)), "none"_t);
    MSPROBE_ASSIGN_OR_RETURN(
        const ZipContent content,
        zip_.Read(*entry, kMaxInflatedStorage,
                  options_.verify_checksums && (options_.verify_storages || entry->deflated)));
    Storage storage{.bytes = content.bytes, .owner = content.owner ? content.owner : file_};
    if (!entry->deflated) {
      storage.stored = content.bytes;
      if (zip_.has_checksums()) storage.checksum = entry->crc32;
    }
    // Archives of other writers may put data anywhere; elements must be aligned. 16 covers every
    // dtype.
    if (reinterpret_cast<uintptr_t>(storage.bytes.data()) % 16 != 0) {
      if (options_.verify_checksums && !options_.verify_storages)
        MSPROBE_RETURN_IF_ERROR(zip_.Read(*entry, kMaxInflatedStorage, true).status());
      MSPROBE_ASSIGN_OR_RETURN(const std::shared_ptr<char[]> copy,
                               Allocate(storage.bytes.size(), path_));
      CopyAndForget(storage.bytes, copy.get());
      storage = {.bytes = {copy.get(), storage.bytes.size()}, .owner = copy};
    }
    found = storages_.emplace(key, std::move(storage)).first;
  }
  int64_t bytes;
  if (count < 0 || __builtin_mul_overflow(count, static_cast<int64_t>(size), &bytes) ||
      static_cast<uint64_t>(bytes) != found->second.bytes.size()) {
    return Fail(id, "a storage of {} bytes, as the archive has it"_t(found->second.bytes.size()),
                "{} elements of {} bytes"_t(count, size));
  }
  Storage storage = found->second;
  storage.dtype = dtype;
  return storage;
}

// torch saves x.conj(), and the imaginary part of it, as a view with a flag. Here the flag is
// applied to the values.
Status PtTensorBuilder::ResolveMathBits(const PickleNode& metadata, TensorFile* tensor) const {
  bool conjugate = false, negative = false;
  for (size_t i = 0; metadata.kind == PickleKind::kDict && i + 1 < metadata.items.size(); i += 2) {
    const PickleNode &key = tree_[metadata.items[i]], &value = tree_[metadata.items[i + 1]];
    if (key.text == "conj") conjugate = value.integer != 0;
    if (key.text == "neg") negative = value.integer != 0;
  }
  const DTypeKind kind = DTypeKindOf(tensor->dtype);
  conjugate = conjugate && kind == DTypeKind::kComplex;
  if (!conjugate && !negative) return Status::Ok();
  if (kind != DTypeKind::kComplex && kind != DTypeKind::kFloat) {
    return Fail(metadata, "a negative bit on a floating-point tensor"_t,
                std::string(DTypeShortName(tensor->dtype)));
  }
  const TensorView view = tensor->view();
  const auto bytes = static_cast<uint64_t>(view.numel()) * DTypeSize(tensor->dtype);
  MSPROBE_ASSIGN_OR_RETURN(const std::shared_ptr<char[]> copy, Allocate(bytes, path_));
  CopyContiguous(view, copy.get());
  const size_t scalar = ScalarSize(tensor->dtype);
  const bool complex = kind == DTypeKind::kComplex;
  // "neg" changes the sign of every scalar, "conj" that of every second one (the imaginary parts).
  // Both together leave the imaginary parts as they are.
  for (uint64_t at = 0, i = 0; at < bytes; at += scalar, ++i) {
    const bool imaginary = complex && i % 2 == 1;
    if (negative != (conjugate && imaginary)) copy[at + scalar - 1] ^= static_cast<char>(0x80);
  }
  tensor->data = copy.get();
  tensor->owner = copy;
  tensor->strides = ContiguousStrides(tensor->shape);
  return Status::Ok();
}

}  // namespace msprobe::formats
