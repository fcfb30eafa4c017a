#include "engine/compare/measure/sampled_tensors.h"

#include <gtest/gtest.h>

#include <numeric>

namespace msprobe::compare {
namespace {

// The sample that ptdbg_ascend 0.1 writes of a tensor 0, 1, 2, ..., `elements` - 1.
formats::TensorFile Sample(int64_t elements, int64_t step) {
  auto values = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < elements; ++i) {
    const bool end = i < 256 || i >= elements - 256;
    if (end || (i - 256) % step == 0) values->push_back(static_cast<float>(i));
  }
  formats::TensorFile tensor{.dtype = DType::kFloat32,
                             .shape = {static_cast<int64_t>(values->size())},
                             .strides = {1},
                             .data = values->data()};
  tensor.owner = values;
  return tensor;
}

std::vector<float> ElementsOf(const formats::TensorFile& tensor) {
  const auto* first = static_cast<const float*>(tensor.data);
  return {first, first + tensor.shape[0]};
}

TEST(SampledTensors, TwoStepsHaveTheElementsOfTheLeastCommonMultiple) {
  for (const int64_t elements : {513, 520, 777, 1000}) {
    const auto a = CommonElements(Sample(elements, 2), "a", static_cast<double>(elements), 2, 3);
    const auto b = CommonElements(Sample(elements, 3), "b", static_cast<double>(elements), 3, 2);
    ASSERT_TRUE(a.ok() && b.ok()) << elements;
    EXPECT_EQ(ElementsOf(*a), ElementsOf(Sample(elements, 6))) << elements;
    EXPECT_EQ(ElementsOf(*b), ElementsOf(Sample(elements, 6))) << elements;
  }
}

TEST(SampledTensors, AWholeTensorGivesWhatASampleHolds) {
  const auto whole = CommonElements(Sample(520, 1), "a", 520, 1, 2);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->shape[0], 516);  // of 520 elements with step 2
  EXPECT_EQ(ElementsOf(*whole), ElementsOf(Sample(520, 2)));
}

TEST(SampledTensors, AnyOrderInMemoryIsReadInLogicalOrder) {
  std::vector<float> transposed(600);
  for (int64_t i = 0; i < 600; ++i)
    transposed[static_cast<size_t>(i % 30 * 20 + i / 30)] = static_cast<float>(i);
  const formats::TensorFile tensor{
      .dtype = DType::kFloat32, .shape = {20, 30}, .strides = {1, 20}, .data = transposed.data()};
  const auto taken = CommonElements(tensor, "a", 600, 1, 7);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(ElementsOf(*taken), ElementsOf(Sample(600, 7)));
}

TEST(SampledTensors, SmallTensorsAreWhole) {
  const auto small = CommonElements(Sample(512, 1), "a", 512, 2, 3);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->shape[0], 512);
}

TEST(SampledTensors, AFileWithOtherElementsIsRefused) {
  const auto other = CommonElements(Sample(522, 2), "a.npy", 520, 2, 3);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().message(),
            "a.npy: expected 516 of 520 elements, sampled with dump_step 2, found 517");
}

}  // namespace
}  // namespace msprobe::compare
