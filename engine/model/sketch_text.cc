#include "engine/model/sketch_text.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/base/text.h"

namespace msprobe {
namespace {

constexpr size_t kDigits = 11;  // of a double

}  // namespace

void AppendSketch(std::string* out, const kernels::Sketch& sketch) {
  const auto append = [&](double number) { AppendBase64(out, std::bit_cast<uint64_t>(number)); };
  append(sketch.rows.real());
  append(sketch.rows.imag());
  append(sketch.squares);
  append(sketch.wave.real());
  append(sketch.wave.imag());
  if (!sketch.grid) return;
  append(sketch.grid->real());
  append(sketch.grid->imag());
}

std::optional<kernels::Sketch> ParseSketch(std::string_view text) {
  if (text.size() != 5 * kDigits && text.size() != 7 * kDigits) return std::nullopt;
  std::array<double, 7> numbers{};
  for (size_t i = 0; i * kDigits < text.size(); ++i) {
    const std::optional<uint64_t> bits = ParseBase64(text.substr(i * kDigits, kDigits));
    if (!bits) return std::nullopt;
    numbers[i] = std::bit_cast<double>(*bits);
    if (!std::isfinite(numbers[i])) return std::nullopt;
  }
  kernels::Sketch sketch{
      .rows = {numbers[0], numbers[1]}, .wave = {numbers[3], numbers[4]}, .squares = numbers[2]};
  if (text.size() == 7 * kDigits) sketch.grid.emplace(numbers[5], numbers[6]);
  return sketch;
}

}  // namespace msprobe
