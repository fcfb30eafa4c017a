#include "engine/compare/measure/sampled_tensors.h"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/dump/pkl/pkl_elements.h"

namespace msprobe::compare {
namespace {

// How many elements a sample has between the first 256 and the last 256.
int64_t Between(int64_t elements, int64_t step) {
  return (elements - 2 * dump::kSampleEnd + step - 1) / step;
}

}  // namespace

bool HaveCommonElements(const Dump& target, const Dump& golden) {
  if (target.sampled == golden.sampled && target.sample_step == golden.sample_step) return true;
  return target.sample_step > 0 && golden.sample_step > 0;
}

Message WhatIsSampled(const Dump& target, const Dump& golden) {
  if (target.sampled && golden.sampled)
    return "target and golden hold samples of other elements (another dump_step)"_t;
  return "the {} holds samples of its tensors, not all elements"_t(target.sampled ? "target"_t
                                                                                  : "golden"_t);
}

Result<formats::TensorFile> CommonElements(formats::TensorFile tensor, std::string_view name,
                                           int64_t elements, int64_t step, int64_t other_step) {
  constexpr auto kMost = static_cast<int64_t>(1e15);
  if (!(elements > 2 * dump::kSampleEnd && elements < kMost)) return tensor;
  const int64_t expected = 2 * dump::kSampleEnd + Between(elements, step);
  int64_t found = 1;
  for (const int64_t extent : tensor.shape) found *= extent;
  if (found != expected) {
    return InvalidDump(name)
        .Expected("{} of {} elements, sampled with dump_step {}"_t(expected, elements, step))
        .Found(std::to_string(found));
  }
  const int64_t together = std::lcm(step, other_step);
  const int64_t between = Between(elements, together), stride = together / step;
  const size_t size = DTypeSize(tensor.dtype);
  auto bytes = std::make_shared<std::vector<char>>(
      static_cast<size_t>(2 * dump::kSampleEnd + between) * size);
  std::vector<char> in_order;
  if (!tensor.view().IsContiguous()) {
    in_order.resize(static_cast<size_t>(found) * size);
    CopyContiguous(tensor.view(), in_order.data());
  }
  const auto* from = in_order.empty() ? static_cast<const char*>(tensor.data) : in_order.data();
  char* to = bytes->data();
  const auto take = [&](int64_t index) {
    std::memcpy(to, from + static_cast<size_t>(index) * size, size);
    to += size;
  };
  for (int64_t i = 0; i < dump::kSampleEnd; ++i) take(i);
  for (int64_t i = 0; i < between; ++i) take(dump::kSampleEnd + i * stride);
  for (int64_t i = 0; i < dump::kSampleEnd; ++i) take(found - dump::kSampleEnd + i);
  formats::TensorFile sample{.dtype = tensor.dtype,
                             .shape = {2 * dump::kSampleEnd + between},
                             .strides = {1},
                             .data = bytes->data()};
  sample.owner = std::move(bytes);
  return sample;
}

}  // namespace msprobe::compare
