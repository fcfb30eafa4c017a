#include "engine/kernels/find_nonfinite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "engine/tensor/float_formats.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

int64_t SlowFirstNonfinite(const RandomTensor& t) {
  const size_t size = DTypeSize(t.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(t.view().numel()) * size);
  CopyContiguous(t.view(), bytes.data());
  if (t.dtype == DType::kFloat4E2M1X2) return -1;
  for (size_t i = 0; i < bytes.size() / size; ++i) {
    const std::complex<double> value = ElementToComplex(t.dtype, bytes.data() + i * size);
    if (!std::isfinite(value.real()) || !std::isfinite(value.imag()))
      return static_cast<int64_t>(i);
  }
  return -1;
}

TEST(FirstNonfinite, AnyDtypeAndLayout) {
  Random random(5);
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    const RandomTensor t = MakeRandomTensor(random, static_cast<DType>(i % kDTypeCount),
                                            i % 3 ? Values::kPlaced : Values::kAnyBits, 20000);
    const int64_t first = FirstNonfinite(t.view());
    ASSERT_EQ(first, SlowFirstNonfinite(t)) << t.Text();
    found += first > 4096;  // not in the first chunk
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace msprobe::kernels
