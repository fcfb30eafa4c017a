#include "engine/dump/write/gradient_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/distribution.h"
#include "engine/kernels/stats.h"

namespace msprobe::dump {
namespace {

constexpr int64_t kParallelBytes = 1 << 20;

}  // namespace

std::optional<DType> NarrowDTypeOf(const TensorView& gradient) {
  constexpr int64_t kSampled = 4096, kFewest = 64;
  constexpr double kNearlyAll = 0.9;
  if (gradient.dtype != DType::kFloat32 || !gradient.IsContiguous()) return std::nullopt;
  const uint32_t* elements = static_cast<const uint32_t*>(gradient.data);
  const int64_t numel = gradient.numel(), stride = std::max<int64_t>(1, numel / kSampled);
  int64_t all = 0, bfloat16 = 0, float16 = 0;
  for (int64_t i = 0; i < numel; i += stride) {
    if ((elements[i] << 1) == 0) continue;  // zero is a number of each dtype
    ++all;
    bfloat16 += (elements[i] & 0xFFFF) == 0;
    float16 += (elements[i] & 0x1FFF) == 0;
  }
  const double most = kNearlyAll * static_cast<double>(all);
  if (all < kFewest) return std::nullopt;
  if (static_cast<double>(bfloat16) >= most) return DType::kBFloat16;
  if (static_cast<double>(float16) >= most) return DType::kFloat16;
  return std::nullopt;
}

GradientSummary::GradientSummary(const GradientRules& rules, std::string folder, int64_t step,
                                 std::optional<DType> autocast)
    : rules_(rules), folder_(std::move(folder)), step_(step), autocast_(autocast) {
  rows_.TextCell("param_name");
  if (rules_.level == GradLevel::kL0) rows_.TextCell("MD5");
  if (rules_.level == GradLevel::kL2) {
    const std::vector<std::string>& bounds = rules_.bound_texts;
    for (size_t i = 0; i < bounds.size(); ++i) {
      rows_.TextCell(i == 0 ? fmt::format("(-inf, {}]", bounds[0])
                            : fmt::format("({}, {}]", bounds[i - 1], bounds[i]));
    }
    if (!bounds.empty()) rows_.TextCell(fmt::format("({}, inf)", bounds.back()));
    rows_.NumberCell("=0");
  }
  for (const char* name : {"max", "min", "norm", "shape", "dtype"}) rows_.TextCell(name);
  rows_.EndRow();
}

bool GradientSummary::Takes(const TensorView& gradient) const {
  return rules_.level == GradLevel::kL0 || kernels::HasOrder(gradient.dtype);
}

Status GradientSummary::Add(std::string_view parameter, const TensorView& gradient) {
  const int64_t numel = gradient.numel();
  ThreadPool* pool = numel * static_cast<int64_t>(DTypeSize(gradient.dtype)) >= kParallelBytes
                         ? &ThreadPool::Default()
                         : nullptr;
  const bool checksum = rules_.level == GradLevel::kL0;
  const kernels::Stats stats = kernels::ComputeStats(
      gradient, pool, checksum ? kernels::Checksum::kCrc32 : kernels::Checksum::kNone);
  rows_.TextCell(parameter);
  if (checksum) {
    std::string text;
    AppendHex(&text, stats.checksum, 8);
    rows_.NumberCell(text);
  } else {
    std::vector<uint8_t> positive(static_cast<size_t>(numel));
    const bool spread = rules_.level == GradLevel::kL2;
    const std::vector<int64_t> counts = kernels::CountIntervals(
        gradient, spread ? std::span<const double>(rules_.bounds) : std::span<const double>(),
        positive.data(), pool);
    const auto share = [&](int64_t count) {
      return numel == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(numel);
    };
    if (spread && !rules_.bounds.empty()) {
      for (const int64_t count : counts) rows_.NumberCell(share(count));
    }
    if (spread) rows_.NumberCell(share(stats.zero));
    if (!directions_) {
      MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
      MSPROBE_ASSIGN_OR_RETURN(
          directions_, formats::SignWriter::Create(
                           JoinPath(folder_, fmt::format("grad_directions_{}.npz", step_))));
    }
    MSPROBE_RETURN_IF_ERROR(directions_->Add(parameter, positive));
  }
  rows_.NumberCell(stats.max);
  rows_.NumberCell(stats.min);
  rows_.NumberCell(stats.norm);
  rows_.NumberCell(ShapeText(gradient.dims()));
  const DType dtype = DTypeSize(gradient.dtype) < DTypeSize(DType::kFloat32) ? gradient.dtype
                      : autocast_                                            ? *autocast_
                                  : NarrowDTypeOf(gradient).value_or(gradient.dtype);
  rows_.NumberCell(DTypeShortName(dtype));
  rows_.EndRow();
  return Status::Ok();
}

std::string GradientSummary::path() const {
  return JoinPath(folder_, fmt::format("grad_summary_{}.csv", step_));
}

Status GradientSummary::Finish() {
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
  if (directions_) MSPROBE_RETURN_IF_ERROR(directions_->Finish());
  return formats::WriteCsv(path(), {&rows_, 1});
}

}  // namespace msprobe::dump
