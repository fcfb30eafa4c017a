#include "engine/kernels/cpu_targets.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace msprobe::kernels {
namespace {

// The wheel must choose the same targets as Highway's own library.
TEST(CpuTargets, AreThoseOfHighway) {
  EXPECT_EQ(CpuTargets() & HWY_TARGETS, hwy::SupportedTargets() & HWY_TARGETS);
}

}  // namespace
}  // namespace msprobe::kernels
