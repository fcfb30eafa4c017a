// The content of a checkpoint, in a form that a test can compare.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace msprobe::checkpoint::test {

inline const std::string kCheckpoints = MSPROBE_TEST_DATA "/checkpoints";

// Opens the checkpoint. If this fails, the test fails and gets an empty checkpoint.
inline Checkpoint MustOpen(const std::string& path) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  return checkpoint.ok() ? *std::move(checkpoint) : Checkpoint();
}

inline std::vector<std::string> NamesOf(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  return names;
}

// The tensor of that name. If there is none, the test fails and gets an empty tensor.
inline const CheckpointTensor& Find(const Checkpoint& checkpoint, const std::string& name) {
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.name == name) return tensor;
  }
  static const CheckpointTensor none;
  ADD_FAILURE() << "no tensor is called " << name;
  return none;
}

// The elements of a float32 tensor, row by row.
inline std::vector<float> Floats(const Checkpoint& checkpoint, const std::string& name) {
  const Result<formats::TensorFile> data = checkpoint.Read(Find(checkpoint, name));
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  if (!data.ok()) return {};
  EXPECT_EQ(data->dtype, DType::kFloat32);
  const TensorView view = data->view();
  std::vector<float> values(static_cast<size_t>(view.numel()));
  CopyContiguous(view, values.data());
  return values;
}

}  // namespace msprobe::checkpoint::test
