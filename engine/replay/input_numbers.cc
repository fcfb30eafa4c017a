#include "engine/replay/input_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/tensor/float_formats.h"

namespace msprobe::replay {
namespace {

// The same numbers on every machine: the libraries' distributions differ. Source: Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators" (SplitMix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // in [0, 1)
  // Four uniform numbers added: near a normal distribution, of mean 0, variance 1, within 3.47.
  double Bell() {
    const uint64_t bits = Bits();
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(bits >> (16 * i) & 0xffff);
    return (sum / 0x1p16 - 2) * std::sqrt(3.0);
  }

 private:
  uint64_t state_;
};

// What the ordinary elements shall be, when zeros, non-finite numbers and extremes are taken away.
struct Ordinary {
  int64_t count = 0;
  double min = 0, max = 0;
  bool has_mean = false, has_variance = false;
  double mean = 0, variance = 0;  // of all `count`, minimum and maximum among them
};

Ordinary OrdinaryOf(const InputNumbers& w) {
  Ordinary o;
  o.count = w.count - w.zeros - w.nans - w.pos_infs - w.neg_infs - w.extremes;
  o.min = w.min, o.max = w.max;
  if (o.count <= 0) return o;
  const auto n = static_cast<double>(o.count);
  const auto finite = n + static_cast<double>(w.zeros);
  if (std::isfinite(w.mean)) {
    o.mean = std::clamp(w.mean * finite / n, o.min, o.max);
    o.has_mean = true;
  }
  if (std::isfinite(w.norm) && o.has_mean) {
    o.variance = std::max(0.0, w.norm * w.norm / n - o.mean * o.mean);
    o.has_variance = true;
  } else if (std::isfinite(w.norm)) {
    // Without a mean: around the middle of what the norm allows.
    o.mean = o.min + o.max == 0 ? 0 : std::clamp(0.0, o.min, o.max);
    o.variance = std::max(0.0, w.norm * w.norm / n - o.mean * o.mean);
    o.has_mean = o.has_variance = true;
  }
  if (w.dtype == DType::kBool && o.has_mean) {
    o.variance = o.mean * (1 - o.mean);  // of zeros and ones
    o.has_variance = true;
  }
  return o;
}

// Numbers in [min, max] with the given mean and variance. The mean divides the range in two parts;
// a number is uniform in one of them, chosen so that the mean is met. That has the variance
// (mean - min)(max - mean) / 3. A smaller variance pulls all numbers towards the mean; a larger one
// puts some of them at the ends.
class Distribution {
 public:
  explicit Distribution(const Ordinary& o) : o_(o) {
    if (!o.has_mean) {
      o_.mean = (o.min + o.max) / 2;
      low_ = 0.5;
      return;
    }
    const double below = o.mean - o.min, above = o.max - o.mean, range = o.max - o.min;
    low_ = range > 0 ? above / range : 0.5;
    const double wide = below * above / 3;
    if (!o.has_variance || wide <= 0) return;
    const double sigma = std::sqrt(o.variance);
    bell_ = kBell * sigma <= std::min(below, above);
    if (o.variance <= wide) {
      pull_ = std::sqrt(o.variance / wide);
    } else {
      ends_ = std::min(1.0, (o.variance / wide - 1) / 2);
    }
    sigma_ = sigma;
  }

  double Next(Random& random) const {
    if (bell_) return o_.mean + sigma_ * random.Bell();
    const bool low = random.Uniform() < low_;
    const double end = low ? o_.min : o_.max;
    if (ends_ > 0 && random.Uniform() < ends_) return end;
    return o_.mean + pull_ * random.Uniform() * (end - o_.mean);
  }

 private:
  static constexpr double kBell = 3.5;  // the largest number of Bell(), rounded up
  Ordinary o_;
  double low_ = 0.5, pull_ = 1, ends_ = 0, sigma_ = 0;
  bool bell_ = false;
};

// Moves the numbers so that their mean and variance are the wanted ones, as far as the range
// allows.
void Correct(const Ordinary& o, std::vector<double>* numbers) {
  constexpr int kRounds = 3;
  const auto n = static_cast<double>(numbers->size());
  for (int round = 0; round < kRounds && o.has_mean && n > 2; ++round) {
    double sum = 0, squares = 0;
    for (const double x : *numbers) sum += x;
    const double mean = sum / n;
    for (const double x : *numbers) squares += (x - mean) * (x - mean);
    const double scale = o.has_variance && squares > 0 ? std::sqrt(o.variance / (squares / n)) : 1;
    for (double& x : *numbers) x = std::clamp(o.mean + (x - mean) * scale, o.min, o.max);
  }
}

// Writes one number as an element of a dtype.
class NumberWriter {
 public:
  explicit NumberWriter(DType dtype) : dtype_(dtype), size_(DTypeSize(dtype)) {
    if (size_ != 1 || DTypeKindOf(dtype) != DTypeKind::kFloat) return;
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      const double value = ElementToDouble(dtype, &byte);
      if (std::isfinite(value)) codes_.push_back({value, byte});
    }
    std::sort(codes_.begin(), codes_.end());
  }

  void Write(double x, std::byte* p) const {
    switch (dtype_) {
      case DType::kFloat64:
        return Store(x, p);
      case DType::kFloat32:
        return Store(static_cast<float>(x), p);
      case DType::kFloat16:
        return Store(FloatToHalf(static_cast<float>(x)), p);
      case DType::kBFloat16:
        return Store(FloatToBFloat16(static_cast<float>(x)), p);
      case DType::kComplex64:
        return Store(std::array{static_cast<float>(x), 0.0f}, p);
      case DType::kComplex128:
        return Store(std::array{x, 0.0}, p);
      case DType::kComplex32:
        return Store(std::array{FloatToHalf(static_cast<float>(x)), uint16_t{0}}, p);
      case DType::kUInt8:
      case DType::kBool:
        return Store(Integer<uint8_t>(x), p);
      case DType::kUInt16:
        return Store(Integer<uint16_t>(x), p);
      case DType::kUInt32:
        return Store(Integer<uint32_t>(x), p);
      case DType::kUInt64:
        return Store(Integer<uint64_t>(x), p);
      case DType::kInt8:
        return Store(Integer<int8_t>(x), p);
      case DType::kInt16:
        return Store(Integer<int16_t>(x), p);
      case DType::kInt32:
        return Store(Integer<int32_t>(x), p);
      case DType::kInt64:
        return Store(Integer<int64_t>(x), p);
      default:
        return Store(Nearest(x), p);
    }
  }

 private:
  template <typename T>
  static void Store(const T& value, std::byte* p) {
    std::memcpy(p, &value, sizeof(value));
  }
  template <typename T>
  static T Integer(double x) {
    // A double has no largest int64: 2^63 itself would overflow.
    constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
    constexpr double kHigh = static_cast<double>(std::numeric_limits<T>::max());
    if (std::isnan(x)) return 0;
    if (x >= kHigh) return std::numeric_limits<T>::max();
    return x <= kLow ? std::numeric_limits<T>::min() : static_cast<T>(std::nearbyint(x));
  }
  uint8_t Nearest(double x) const {
    if (codes_.empty()) return 0;
    const auto at =
        std::lower_bound(codes_.begin(), codes_.end(), std::pair<double, uint8_t>{x, 0});
    if (at == codes_.end()) return codes_.back().second;
    if (at == codes_.begin()) return at->second;
    const auto below = at - 1;
    return x - below->first < at->first - x ? below->second : at->second;
  }

  DType dtype_;
  size_t size_;
  std::vector<std::pair<double, uint8_t>> codes_;  // of an 8-bit float format, ascending
};

bool IsWhole(DType dtype) {
  const DTypeKind kind = DTypeKindOf(dtype);
  return kind == DTypeKind::kUnsigned || kind == DTypeKind::kSigned || kind == DTypeKind::kBool;
}

// The ordinary elements; the first is the maximum, the second the minimum.
std::vector<double> OrdinaryNumbers(const InputNumbers& wanted, Random& random) {
  const Ordinary o = OrdinaryOf(wanted);
  std::vector<double> numbers(static_cast<size_t>(std::max<int64_t>(o.count, 0)));
  if (numbers.empty()) return numbers;
  Ordinary inner = o;  // without the two
  inner.count -= 2;
  const auto n = static_cast<double>(o.count), left = static_cast<double>(inner.count);
  if (inner.count > 0 && o.has_mean) {
    inner.mean = std::clamp((o.mean * n - o.max - o.min) / left, o.min, o.max);
    const double squares = (o.variance + o.mean * o.mean) * n - o.max * o.max - o.min * o.min;
    inner.variance = std::max(0.0, squares / left - inner.mean * inner.mean);
  }
  const Distribution distribution(inner);
  for (double& x : numbers) x = std::clamp(distribution.Next(random), o.min, o.max);
  // A zero would be counted: those that were asked for are placed elsewhere.
  const double tiny = (o.max != 0 ? o.max : o.min) * 1e-3;
  Correct(inner, &numbers);
  if (IsWhole(wanted.dtype)) {
    for (double& x : numbers) x = std::nearbyint(x);
  }
  if (wanted.zeros >= 0 && !IsWhole(wanted.dtype)) {
    for (double& x : numbers) x = x == 0 ? tiny : x;
  }
  if (numbers.size() == 1) {
    numbers[0] = std::isfinite(wanted.mean) && wanted.count == 1 ? wanted.mean : wanted.max;
    return numbers;
  }
  numbers[0] = o.max;
  numbers[1] = o.min;
  return numbers;
}

}  // namespace

Result<InputNumbers> InputNumbersOf(const Dump& dump, int32_t index, const Domain& domain) {
  const Leaf& leaf = dump.leaves[index];
  const std::optional<DType> dtype = leaf.dtype.dtype();
  if (leaf.kind != LeafKind::kTensor || !dtype || *dtype == DType::kFloat4E2M1X2) {
    return InvalidArgument()
        .At(leaf.name.view())
        .Expected("a tensor of a dtype whose elements can be made"_t)
        .Found(std::string(leaf.dtype.view()));
  }
  InputNumbers w;
  w.dtype = *dtype;
  w.count = leaf.shape.elements();
  if (w.count < 0 || w.count > (int64_t{1} << 40)) {
    return InvalidArgument()
        .At(leaf.name.view())
        .Expected("a shape of at most 2^40 elements"_t)
        .Found(std::string(leaf.shape.view()));
  }
  const auto counted = [&](int64_t n, int64_t fewest) {
    return std::clamp<int64_t>(n < 0 ? fewest : n, 0, w.count);
  };
  w.nans = counted(leaf.counts->nan, std::isnan(leaf.max_value) && leaf.has_stats ? 1 : 0);
  w.pos_infs = counted(leaf.counts->pos_inf, std::isinf(leaf.max_value) ? 1 : 0);
  w.neg_infs = counted(leaf.counts->neg_inf, std::isinf(leaf.min_value) ? 1 : 0);
  if (!IsWhole(w.dtype)) w.zeros = counted(leaf.counts->zero, 0);
  w.max = leaf.max_value, w.min = leaf.min_value;
  w.mean = leaf.mean_value, w.norm = leaf.norm_value;
  if (w.dtype == DType::kBool && leaf.counts->zero >= 0 && w.count > 0)
    w.mean = 1 - static_cast<double>(leaf.counts->zero) / static_cast<double>(w.count);
  // -100 among class indices: elements that a loss ignores. How many tells the mean.
  constexpr double kIgnored = -100;
  if (IsWhole(w.dtype) && w.min == kIgnored && w.max >= 0) {
    const double ignored = (w.max / 2 - w.mean) / (w.max / 2 - kIgnored);
    const double part = std::isfinite(ignored) ? std::clamp(ignored, 0.0, 1.0) : 0;
    w.extremes = std::max<int64_t>(1, std::llround(part * static_cast<double>(w.count)));
    w.extreme = kIgnored;
    w.min = 0, w.mean = w.norm = InputNumbers::kNaN;
  } else if (const LeafRest* rest = dump.RestOf(index)) {
    const double largest = std::abs(w.max) > std::abs(w.min) ? w.max : w.min;
    w.extremes = std::isfinite(largest) ? counted(rest->extremes, 0) : 0;
    w.extreme = largest;
    w.max = rest->max, w.min = rest->min, w.norm = rest->norm, w.mean = InputNumbers::kNaN;
  }
  if (!std::isfinite(w.max))
    w.max = std::isfinite(w.min) ? std::max(domain.max, w.min) : domain.max;
  if (!std::isfinite(w.min)) w.min = std::min(domain.min, w.max);
  return w;
}

uint64_t SeedOf(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

void MakeNumbers(const InputNumbers& wanted, uint64_t seed, std::span<std::byte> out) {
  Random random(seed);
  const std::vector<double> ordinary = OrdinaryNumbers(wanted, random);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Kind {
    double value;
    int64_t left;
  };
  std::array<Kind, 5> kinds = {{{0, wanted.zeros},
                                {InputNumbers::kNaN, wanted.nans},
                                {kInf, wanted.pos_infs},
                                {-kInf, wanted.neg_infs},
                                {wanted.extreme, wanted.extremes}}};
  const NumberWriter writer(wanted.dtype);
  const size_t size = DTypeSize(wanted.dtype);
  // Each place is given to a kind with the probability that is right for what is left of each.
  size_t next = 0;
  for (int64_t i = 0; i < wanted.count; ++i) {
    auto place = static_cast<int64_t>(random.Uniform() * static_cast<double>(wanted.count - i));
    const Kind* special = nullptr;
    for (Kind& kind : kinds) {
      if (special == nullptr && place < kind.left) {
        --kind.left;
        special = &kind;
      } else {
        place -= kind.left;
      }
    }
    double value = special != nullptr ? special->value : 0;
    if (special == nullptr && next < ordinary.size()) {
      // Where maximum and minimum lie shall not be the same for each tensor.
      value = ordinary[(next + static_cast<size_t>(seed % ordinary.size())) % ordinary.size()];
      ++next;
    }
    writer.Write(value, out.data() + static_cast<size_t>(i) * size);
  }
}

}  // namespace msprobe::replay
