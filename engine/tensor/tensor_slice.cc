#include "engine/tensor/tensor_slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "engine/base/text.h"
#include "engine/tensor/float_formats.h"

namespace msprobe {
namespace {

Status Wrong(std::string_view text, std::string_view item) {
  return InvalidArgument("slice {}"_t(Excerpt(text)))
      .Expected("an index or start:stop:step for each dimension, such as 0:2,:,-1"_t)
      .Found(Excerpt(item));
}

// false: the text is not a number. For "" `*out` stays unset.
bool ParseNumber(std::string_view text, std::optional<int64_t>* out) {
  text = Trim(text);
  if (text.empty()) return true;
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return false;
  *out = number;
  return true;
}

// A float as short as it reads back in single precision: 0.1, not 0.10000000149011612.
void AppendFloat(std::string* out, float value) {
  if (!std::isfinite(value)) {
    *out += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    return;
  }
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  const std::string_view spelled(text, static_cast<size_t>(end - text));
  *out += spelled;
  if (spelled.find_first_of(".e") == spelled.npos) *out += ".0";
}

void AppendDouble(std::string* out, double value) {
  if (std::isfinite(value)) return AppendPythonFloat(out, value);
  *out += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

class Printer {
 public:
  Printer(const TensorView& view, int64_t most, std::string* out)
      : view_(view), left_(most), out_(out) {}

  void Print() {
    Dimension(0, static_cast<const char*>(view_.data));
    const int64_t all = view_.numel();
    if (printed_ < all) *out_ += fmt::format("\n... and {} more", all - printed_);
  }

 private:
  void Dimension(int d, const char* p) {
    if (d == view_.ndim) {
      AppendElement(out_, view_.dtype, p);
      ++printed_;
      --left_;
      return;
    }
    *out_ += '[';
    const auto stride = view_.strides[d] * static_cast<int64_t>(DTypeSize(view_.dtype));
    for (int64_t i = 0; i < view_.shape[d] && left_ > 0; ++i) {
      if (i > 0) {
        *out_ += ',';
        if (d + 1 < view_.ndim) {
          *out_ += '\n';
          out_->append(static_cast<size_t>(d) + 1, ' ');
        } else {
          *out_ += ' ';
        }
      }
      Dimension(d + 1, p + i * stride);
    }
    *out_ += ']';
  }

  const TensorView& view_;
  int64_t left_, printed_ = 0;
  std::string* out_;
};

}  // namespace

Result<TensorSlice> TensorSlice::Parse(std::string_view text) {
  TensorSlice slice;
  slice.text_ = text;
  std::string_view inside = Trim(text);
  if (inside.starts_with('[') && inside.ends_with(']'))
    inside = inside.substr(1, inside.size() - 2);
  bool ellipsis = false;
  for (const std::string_view part : Split(inside, ',')) {
    const std::string_view item = Trim(part);
    Item parsed;
    if (item == "...") {
      if (ellipsis) return Wrong(text, "... twice");
      parsed.is_ellipsis = ellipsis = true;
    } else if (item.find(':') == item.npos) {
      parsed.is_index = true;
      if (!ParseNumber(item, &parsed.start) || !parsed.start) return Wrong(text, item);
    } else {
      const std::vector<std::string_view> parts = Split(item, ':');
      std::optional<int64_t> step;
      if (parts.size() > 3 || !ParseNumber(parts[0], &parsed.start) ||
          !ParseNumber(parts[1], &parsed.stop) ||
          (parts.size() == 3 && !ParseNumber(parts[2], &step)) || step == 0) {
        return Wrong(text, item);
      }
      parsed.step = step.value_or(1);
    }
    slice.items_.push_back(parsed);
  }
  return slice;
}

TensorSlice::Range TensorSlice::RangeOf(const Item& item, int64_t extent) {
  // As Python: bounds are moved into the range that the direction of the step allows.
  const bool forward = item.step > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? extent : extent - 1;
  const auto bound = [&](const std::optional<int64_t>& given, int64_t otherwise) {
    if (!given) return otherwise;
    return std::clamp(*given < 0 ? *given + extent : *given, low, high);
  };
  const int64_t start = bound(item.start, forward ? low : high);
  const int64_t stop = bound(item.stop, forward ? high : low);
  const int64_t distance = forward ? stop - start : start - stop;
  // A step longer than the extent takes one element; it must not overflow in a stride.
  const int64_t step = std::clamp<int64_t>(item.step, -extent - 1, extent + 1);
  return {start, distance > 0 ? (distance - 1) / std::abs(step) + 1 : 0, step};
}

Result<SlicedView> TensorSlice::Apply(const TensorView& view) const {
  const auto named = static_cast<int>(std::count_if(
      items_.begin(), items_.end(), [](const Item& item) { return !item.is_ellipsis; }));
  if (named > view.ndim) {
    return InvalidArgument("slice {} has {} items, the tensor has {} dimensions: {}"_t(
        Excerpt(text_), named, view.ndim, ShapeText(view.dims())));
  }
  SlicedView out{.data = view.data, .dtype = view.dtype};
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  int64_t offset = 0;  // elements
  int d = 0;
  const auto whole = [&](int count) {
    for (; count > 0; --count, ++d) {
      out.shape.push_back(view.shape[d]);
      out.strides.push_back(view.strides[d]);
    }
  };
  for (const Item& item : items_) {
    if (item.is_ellipsis) {
      whole(view.ndim - named);
      continue;
    }
    const int64_t extent = view.shape[d], stride = view.strides[d];
    if (item.is_index) {
      const int64_t index = *item.start < 0 ? *item.start + extent : *item.start;
      if (index < 0 || index >= extent) {
        return InvalidArgument(
            "slice {}: index {} is out of range in dimension {}, which has {} elements; the shape "
            "is {}"_t(Excerpt(text_), *item.start, d, extent, ShapeText(view.dims())));
      }
      offset += index * stride;
      ++d;
      continue;
    }
    const auto [start, count, step] = RangeOf(item, extent);
    if (count > 0) offset += start * stride;
    out.shape.push_back(count);
    out.strides.push_back(count > 1 ? stride * step : 0);
    ++d;
  }
  whole(view.ndim - d);
  const bool empty = std::find(out.shape.begin(), out.shape.end(), 0) != out.shape.end();
  if (!empty) out.data = static_cast<const char*>(view.data) + offset * size;
  return out;
}

void AppendElement(std::string* out, DType dtype, const void* p) {
  switch (DTypeKindOf(dtype)) {
    case DTypeKind::kBool:
      *out += ElementToDouble(dtype, p) != 0 ? "True" : "False";
      return;
    case DTypeKind::kComplex: {
      const std::complex<double> value = ElementToComplex(dtype, p);
      const auto part = [&](double x) {
        dtype == DType::kComplex128 ? AppendDouble(out, x)
                                    : AppendFloat(out, static_cast<float>(x));
      };
      *out += '(';
      part(value.real());
      if (!std::signbit(value.imag()) || std::isnan(value.imag())) *out += '+';
      part(value.imag());
      *out += "j)";
      return;
    }
    case DTypeKind::kSigned:
    case DTypeKind::kUnsigned:
      if (dtype == DType::kInt64) {
        int64_t value;
        std::memcpy(&value, p, sizeof(value));
        return AppendInteger(out, value);
      }
      if (dtype == DType::kUInt64) {
        uint64_t value;
        std::memcpy(&value, p, sizeof(value));
        return AppendUnsigned(out, value);
      }
      return AppendInteger(out, static_cast<int64_t>(ElementToDouble(dtype, p)));
    case DTypeKind::kFloat:
      break;
  }
  if (dtype == DType::kFloat64) return AppendDouble(out, ElementToDouble(dtype, p));
  if (dtype == DType::kFloat4E2M1X2) {  // two values a byte
    const uint8_t byte = *static_cast<const uint8_t*>(p);
    AppendFloat(out, Float4E2M1ToFloat(byte & 0xf));
    *out += '/';
    return AppendFloat(out, Float4E2M1ToFloat(byte >> 4));
  }
  AppendFloat(out, static_cast<float>(ElementToDouble(dtype, p)));
}

void AppendElements(std::string* out, const TensorView& view, int64_t most) {
  Printer(view, most, out).Print();
}

}  // namespace msprobe
