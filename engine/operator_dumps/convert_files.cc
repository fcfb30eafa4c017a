#include "engine/operator_dumps/convert_files.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "engine/base/file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "engine/operator_dumps/operator_files.h"

namespace msprobe::operator_dumps {
namespace {

using formats::AscendTensor;
using formats::TensorFile;

TensorFile Owned(DType dtype, const std::vector<int64_t>& shape, size_t bytes, char** data) {
  // Words, so that the elements are aligned.
  auto memory = std::make_shared<std::vector<uint64_t>>((bytes + 7) / 8 + 1);
  *data = reinterpret_cast<char*>(memory->data());
  TensorFile tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = ContiguousStrides(shape);
  tensor.data = *data;
  tensor.owner = std::move(memory);
  return tensor;
}

Result<TensorFile> InLayout(const AscendTensor& tensor, const FileConversion& wanted) {
  const TensorFile& elements = tensor.elements;
  const std::optional<AscendLayout> from = tensor.layout ? tensor.layout : wanted.from;
  if (!from) {
    return InvalidArgument(Message::Joined({"its layout is not known"_t, tensor.layout_name}, ": "))
        .Hint("-l NC1HWC0: the layout of a tensor file"_t);
  }
  if (*from == AscendLayout::kFractalZ && tensor.groups > 1) {
    return Unsupported("FRACTAL_Z of {} groups has an order of its own"_t(tensor.groups));
  }
  const LayoutShape stored{*from, elements.shape};
  LayoutShape original;
  if (!wanted.shape.empty() && !IsPadded(*wanted.to)) {
    original = {*wanted.to, wanted.shape};
  } else if (!tensor.original_shape.empty() && IsPadded(*from)) {
    const bool stated = tensor.original_layout && !IsPadded(*tensor.original_layout) &&
                        *tensor.original_layout != AscendLayout::kND;
    if (stated) {
      original = {*tensor.original_layout, tensor.original_shape};
    } else {
      MSPROBE_ASSIGN_OR_RETURN(original, OriginalOf(stored, tensor.original_shape));
    }
  }
  const size_t size = DTypeSize(elements.dtype);
  MSPROBE_ASSIGN_OR_RETURN(const LayoutPlan plan,
                           PlanLayout(stored, *wanted.to, original, DefaultC0(size)));
  if (!wanted.shape.empty() && plan.shape != wanted.shape) {
    return InvalidArgument()
        .Expected("the shape {}"_t(ShapeText(plan.shape)))
        .Found("-s " + ShapeText(wanted.shape));
  }
  MSPROBE_RETURN_IF_ERROR(CheckedByteSize(elements.dtype, plan.shape).status());
  std::vector<char> copy;
  const void* source = elements.data;
  if (!elements.view().IsContiguous()) {
    copy.resize(static_cast<size_t>(plan.from_elements) * size);
    CopyContiguous(elements.view(), copy.data());
    source = copy.data();
  }
  char* data = nullptr;
  TensorFile result =
      Owned(elements.dtype, plan.shape, static_cast<size_t>(plan.elements) * size, &data);
  ConvertLayout(plan, source, size, data);
  return result;
}

// bfloat16 as float32, which can hold each of its numbers.
TensorFile Widened(const TensorFile& tensor) {
  const auto count = static_cast<size_t>(tensor.view().numel());
  std::vector<uint16_t> halves(count);
  CopyContiguous(tensor.view(), halves.data());
  char* data = nullptr;
  TensorFile wide = Owned(DType::kFloat32, tensor.shape, count * sizeof(float), &data);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(halves[i]) << 16;
    std::memcpy(data + i * sizeof(bits), &bits, sizeof(bits));
  }
  return wide;
}

Status Write(const std::string& path, const TensorFile& tensor, bool pt) {
  if (pt) return formats::WritePt(path, tensor.view());
  if (tensor.dtype == DType::kBFloat16) return formats::WriteNpy(path, Widened(tensor).view());
  return formats::WriteNpy(path, tensor.view());
}

Result<TensorFile> ElementsOf(const AscendTensor& tensor, const FileConversion& wanted) {
  if (!tensor.problem.empty()) return Unsupported(tensor.problem);
  if (wanted.to) return InLayout(tensor, wanted);
  return tensor.elements;
}

std::string WithoutExtension(const std::string& path) {
  std::string name = BaseName(path);
  for (const std::string_view extension : {".npy", ".pt", ".bin", ".safetensors"}) {
    if (name.ends_with(extension)) name.resize(name.size() - extension.size());
  }
  return name;
}

}  // namespace

Result<ConvertedFile> ConvertFile(const std::string& path, const std::string& folder,
                                  const FileConversion& wanted) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<OperatorValue> values, ReadOperatorFile(path));
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  ConvertedFile done;
  for (const OperatorValue& value : values) {
    const std::string name =
        WithoutExtension(path) + (value.suffix.empty() ? "" : "." + value.suffix);
    const std::string out = JoinPath(folder, name + (wanted.pt ? ".pt" : ".npy"));
    const Result<TensorFile> tensor = ElementsOf(value.tensor, wanted);
    const Status status = tensor.ok() ? Write(out, *tensor, wanted.pt) : tensor.status();
    if (status.code() == ErrorCode::kIo) return status;
    if (status.ok()) {
      done.written.push_back(out);
    } else {
      done.problems.push_back(
          Message::Joined({"{}: {}"_t(name, status.AsMessage()), status.HintAsMessage()}, "; "));
    }
  }
  return done;
}

}  // namespace msprobe::operator_dumps
