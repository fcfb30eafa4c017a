#include "engine/tensor/ascend_layout.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "engine/tensor/tensor_view.h"

namespace msprobe {
namespace {

using Shape = std::vector<int64_t>;
using enum AscendLayout;

constexpr std::string_view kNames[] = {"ND",        "NCHW",       "NHWC",  "HWCN",    "NC1HWC0",
                                       "FRACTAL_Z", "FRACTAL_NZ", "NCDHW", "NDC1HWC0"};
static_assert(std::size(kNames) == kAscendLayoutCount);

// What the axes of a tensor mean. Two layouts convert into each other when they have a kind in
// common.
enum class Kind : uint8_t { kMatrix, kImage, kVolume };

// One dimension in memory: a whole axis, or the part of an axis that is cut into blocks.
struct Dimension {
  int axis = 0;
  enum Part : uint8_t { kWhole, kOuter, kInner } part = kWhole;
  int64_t block = 1;
};

constexpr int64_t kFractalRows = 16;

int64_t Blocks(int64_t extent, int64_t block) { return extent / block + (extent % block != 0); }

// Axes of a matrix: batch, rows, columns; of an image: N, C, H, W; of a volume: N, C, D, H, W.
std::vector<Dimension> DimensionsOf(AscendLayout layout, int64_t c0) {
  const auto outer = [](int axis, int64_t block) {
    return Dimension{axis, Dimension::kOuter, block};
  };
  const auto inner = [](int axis, int64_t block) {
    return Dimension{axis, Dimension::kInner, block};
  };
  switch (layout) {
    case kND:
      return {{0}, {1}, {2}};
    case kNCHW:
      return {{0}, {1}, {2}, {3}};
    case kNHWC:
      return {{0}, {2}, {3}, {1}};
    case kHWCN:
      return {{2}, {3}, {1}, {0}};
    case kNC1HWC0:
      return {{0}, outer(1, c0), {2}, {3}, inner(1, c0)};
    case kFractalZ:
      return {outer(1, c0), {2}, {3}, outer(0, kFractalRows), inner(0, kFractalRows), inner(1, c0)};
    case kFractalNZ:
      return {{0}, outer(2, c0), outer(1, kFractalRows), inner(1, kFractalRows), inner(2, c0)};
    case kNCDHW:
      return {{0}, {1}, {2}, {3}, {4}};
    case kNDC1HWC0:
      return {{0}, {2}, outer(1, c0), {3}, {4}, inner(1, c0)};
  }
  return {};
}

Kind KindOf(AscendLayout layout) {
  if (layout == kND || layout == kFractalNZ) return Kind::kMatrix;
  return layout == kNCDHW || layout == kNDC1HWC0 ? Kind::kVolume : Kind::kImage;
}

size_t RankOf(AscendLayout layout) {  // 0: any
  if (layout == kND || layout == kFractalNZ) return 0;
  if (layout == kFractalZ) return 4;
  return DimensionsOf(layout, 1).size();
}

std::string Text(const LayoutShape& tensor) {
  return std::string(AscendLayoutName(tensor.layout)) + " " + ShapeText(tensor.shape);
}

// Product of extents, which are not negative; the error: it is not below 2^62.
Result<int64_t> Product(std::span<const int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product) || product >> 62 != 0)
      return InvalidArgument(
          "a shape of fewer than 2^62 elements is expected, found {}"_t(ShapeText(extents)));
  }
  return product;
}

// Extents by axis, of a tensor in a layout without padding.
Result<Shape> ExtentsOf(const LayoutShape& tensor, Kind kind) {
  const size_t rank = RankOf(tensor.layout);
  const Shape& shape = tensor.shape;
  if (rank != 0 && shape.size() != rank) {
    return InvalidArgument()
        .Expected("{} extents for {}"_t(rank, AscendLayoutName(tensor.layout)))
        .Found(ShapeText(shape));
  }
  MSPROBE_RETURN_IF_ERROR(Product(shape).status());
  if (kind == Kind::kMatrix) {
    const size_t n = shape.size();
    int64_t batch = 1;
    for (size_t i = 0; i + 2 < n; ++i) batch *= shape[i];
    return Shape{batch, n > 1 ? shape[n - 2] : 1, n > 0 ? shape[n - 1] : 1};
  }
  const AscendLayout layout = tensor.layout == kND ? kNCDHW : tensor.layout;
  const std::vector<Dimension> dimensions = DimensionsOf(layout, 1);
  if (shape.size() != dimensions.size())
    return InvalidArgument().Expected("five extents for NCDHW"_t).Found(ShapeText(shape));
  Shape extents(dimensions.size());
  for (size_t i = 0; i < dimensions.size(); ++i)
    extents[static_cast<size_t>(dimensions[i].axis)] = shape[i];
  return extents;
}

Shape ExtentsInMemory(const std::vector<Dimension>& dimensions, const Shape& extents) {
  Shape shape;
  for (const Dimension& d : dimensions) {
    const int64_t extent = extents[static_cast<size_t>(d.axis)];
    shape.push_back(d.part == Dimension::kWhole   ? extent
                    : d.part == Dimension::kOuter ? Blocks(extent, d.block)
                                                  : d.block);
  }
  return shape;
}

// The shape as CANN writes it. `original`: of a matrix, in ND.
Shape ShapeOf(AscendLayout layout, Shape memory, const Shape& original) {
  if (layout == kFractalZ) {
    memory[2] *= memory[0] * memory[1];
    memory.erase(memory.begin(), memory.begin() + 2);
  } else if (layout == kFractalNZ) {
    memory.erase(memory.begin());
    const size_t batch = original.size() > 2 ? original.size() - 2 : 0;
    memory.insert(memory.begin(), original.begin(), original.begin() + static_cast<long>(batch));
  }
  return memory;
}

// For each axis, the address of each of its indices.
std::vector<std::vector<int64_t>> Addresses(const std::vector<Dimension>& dimensions,
                                            const Shape& memory, const Shape& extents) {
  std::vector<std::vector<int64_t>> addresses;
  for (const int64_t extent : extents) addresses.emplace_back(static_cast<size_t>(extent));
  int64_t stride = 1;
  for (size_t i = dimensions.size(); i-- > 0;) {
    const Dimension& d = dimensions[i];
    std::vector<int64_t>& axis = addresses[static_cast<size_t>(d.axis)];
    for (size_t index = 0; index < axis.size(); ++index) {
      const auto n = static_cast<int64_t>(index);
      axis[index] += stride * (d.part == Dimension::kWhole   ? n
                               : d.part == Dimension::kOuter ? n / d.block
                                                             : n % d.block);
    }
    stride *= memory[i];
  }
  return addresses;
}

// ND of a volume is NCDHW; every layout without padding can be a matrix.
std::optional<Kind> CommonKind(AscendLayout from, AscendLayout to) {
  if (from == to || KindOf(from) == KindOf(to)) return KindOf(from);
  const bool volume =
      (from == kND && KindOf(to) == Kind::kVolume) || (to == kND && KindOf(from) == Kind::kVolume);
  if (volume) return Kind::kVolume;
  const bool plain = KindOf(from) == Kind::kMatrix ? !IsPadded(to) : !IsPadded(from);
  const bool matrix = KindOf(from) == Kind::kMatrix || KindOf(to) == Kind::kMatrix;
  if (matrix && plain) return Kind::kMatrix;
  return std::nullopt;
}

Status NotConvertible(AscendLayout from, AscendLayout to) {
  return InvalidArgument(
             "{} does not convert to {}"_t(AscendLayoutName(from), AscendLayoutName(to)))
      .Hint(
          "NCHW, NHWC, HWCN, NC1HWC0 and FRACTAL_Z convert into each other; NCDHW and NDC1HWC0; "
          "FRACTAL_NZ and any layout without padding"_t);
}

std::vector<Dimension> DimensionsAs(AscendLayout layout, Kind kind, int64_t c0) {
  const bool matrix = kind == Kind::kMatrix && layout != kFractalNZ;
  const bool volume = kind == Kind::kVolume && layout == kND;
  return DimensionsOf(matrix ? kND : volume ? kNCDHW : layout, c0);
}

template <typename T>
void Copy(const LayoutPlan& plan, const char* from, char* to) {
  const auto& [a, b, c, d, e] = plan.axes;
  for (size_t i = 0; i < a.to.size(); ++i) {
    for (size_t j = 0; j < b.to.size(); ++j) {
      for (size_t k = 0; k < c.to.size(); ++k) {
        for (size_t l = 0; l < d.to.size(); ++l) {
          const int64_t at = a.from[i] + b.from[j] + c.from[k] + d.from[l];
          const int64_t out = a.to[i] + b.to[j] + c.to[k] + d.to[l];
          for (size_t m = 0; m < e.to.size(); ++m) {
            std::memcpy(to + static_cast<size_t>(out + e.to[m]) * sizeof(T),
                        from + static_cast<size_t>(at + e.from[m]) * sizeof(T), sizeof(T));
          }
        }
      }
    }
  }
}

}  // namespace

std::string_view AscendLayoutName(AscendLayout layout) {
  return kNames[static_cast<size_t>(layout)];
}

std::optional<AscendLayout> AscendLayoutFromName(std::string_view name) {
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<AscendLayout>(found - std::begin(kNames));
}

bool IsPadded(AscendLayout layout) {
  return layout == kNC1HWC0 || layout == kFractalZ || layout == kFractalNZ || layout == kNDC1HWC0;
}

int64_t DefaultC0(size_t element_size) { return element_size == 1 ? 32 : 16; }

Result<LayoutPlan> PlanLayout(const LayoutShape& from, AscendLayout to, const LayoutShape& original,
                              int64_t c0) {
  const std::optional<Kind> kind = CommonKind(from.layout, to);
  if (!kind) return NotConvertible(from.layout, to);
  const bool given = !original.shape.empty();
  if (IsPadded(from.layout) && !given) {
    return InvalidArgument("{} is padded: the shape without padding is needed"_t(Text(from)))
        .Hint("-s 2,3,4,5: the shape of the result"_t);
  }
  const LayoutShape& plain = IsPadded(from.layout) ? original : from;
  if (IsPadded(plain.layout) || !CommonKind(plain.layout, from.layout))
    return NotConvertible(plain.layout, from.layout);
  MSPROBE_ASSIGN_OR_RETURN(const Shape extents, ExtentsOf(plain, *kind));
  if (given && !IsPadded(from.layout)) {
    MSPROBE_ASSIGN_OR_RETURN(const Shape wanted, ExtentsOf(original, *kind));
    if (wanted != extents)
      return InvalidArgument().Expected("a shape that fits {}"_t(Text(from))).Found(Text(original));
  }
  const int64_t from_c0 = IsPadded(from.layout) && !from.shape.empty() ? from.shape.back() : 1;
  if (from_c0 < 1 || c0 < 1) return InvalidArgument("C0 is 1 or more"_t);
  const std::vector<Dimension> before = DimensionsAs(from.layout, *kind, from_c0);
  const std::vector<Dimension> after = DimensionsAs(to, *kind, c0);
  const Shape source = ExtentsInMemory(before, extents), target = ExtentsInMemory(after, extents);
  LayoutPlan plan;
  MSPROBE_ASSIGN_OR_RETURN(plan.from_elements, Product(source));
  MSPROBE_ASSIGN_OR_RETURN(plan.elements, Product(target));
  if (IsPadded(from.layout) && ShapeOf(from.layout, source, plain.shape) != from.shape)
    return InvalidArgument().Expected("a shape that fits {}"_t(Text(from))).Found(Text(original));
  // Elements of a plain layout keep the order of their dimensions: NZ becomes what the shape says.
  const bool same_order = *kind == Kind::kMatrix && to != kFractalNZ;
  plan.shape = same_order ? plain.shape : ShapeOf(to, target, plain.shape);
  MSPROBE_ASSIGN_OR_RETURN(const int64_t count, Product(extents));
  plan.padded = plan.elements != count;
  if (count == 0) {
    for (LayoutPlan::Axis& axis : plan.axes) axis = {};
    return plan;
  }
  auto addresses = Addresses(before, source, extents), places = Addresses(after, target, extents);
  // The last axes are the innermost loops.
  for (size_t i = 0, unused = plan.axes.size() - extents.size(); i < plan.axes.size(); ++i) {
    if (i < unused)
      plan.axes[i] = {.from = {0}, .to = {0}};
    else
      plan.axes[i] = {std::move(addresses[i - unused]), std::move(places[i - unused])};
  }
  return plan;
}

Result<LayoutShape> OriginalOf(const LayoutShape& from, const Shape& shape) {
  if (KindOf(from.layout) == Kind::kMatrix) return LayoutShape{kND, shape};
  if (KindOf(from.layout) == Kind::kVolume) return LayoutShape{kNCDHW, shape};
  std::optional<LayoutShape> found;
  Shape extents;
  for (const AscendLayout layout : {kNCHW, kNHWC, kHWCN}) {
    const LayoutShape candidate{layout, shape};
    if (!PlanLayout(from, kNCHW, candidate, 1).ok()) continue;
    MSPROBE_ASSIGN_OR_RETURN(const Shape these, ExtentsOf(candidate, Kind::kImage));
    if (found && these != extents) {
      return InvalidArgument("{} with the original shape {} can be {} and {}"_t(
                                 Text(from), ShapeText(shape), Text(*found), Text(candidate)))
          .Hint("-s: the shape of the result"_t);
    }
    if (!found) found = candidate, extents = these;
  }
  if (!found) {
    return InvalidArgument("{} does not fit the original shape {}"_t(Text(from), ShapeText(shape)))
        .Hint("-s: the shape of the result"_t);
  }
  return *found;
}

void ConvertLayout(const LayoutPlan& plan, const void* from, size_t element_size, void* to) {
  struct Sixteen {
    std::byte bytes[16];
  };
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  if (plan.padded) std::memset(to, 0, static_cast<size_t>(plan.elements) * element_size);
  switch (element_size) {
    case 1:
      return Copy<uint8_t>(plan, source, target);
    case 2:
      return Copy<uint16_t>(plan, source, target);
    case 4:
      return Copy<uint32_t>(plan, source, target);
    case 8:
      return Copy<uint64_t>(plan, source, target);
    case 16:
      return Copy<Sixteen>(plan, source, target);
    default:
      return;
  }
}

}  // namespace msprobe
