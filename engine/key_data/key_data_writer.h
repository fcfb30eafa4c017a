// Writes values that a program saves by name, step by step, in the layout of msprobe 26: below
// data/<key>/step<N>/rank<R>/micro_step<M>/ a file <key>.npy with the elements and a file
// <key>.json, {"data": statistics}. A list or dictionary of tensors has a file for each,
// <key>.<index or name>.npy, and a list or dictionary of statistics.
//
//   KeyDataWriter writer("runs/a");
//   MSPROBE_RETURN_IF_ERROR(writer.Save("log_prob", KeyForm::kTensor, {{"", view}}, 0, 0));
//   writer.Step();
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::key_data {

struct KeyTensor {
  std::string name;  // its index in a list, or key in a dictionary; not used of a single tensor
  TensorView view;
};
enum class KeyForm : uint8_t { kTensor, kList, kDict };

class KeyDataWriter {
 public:
  explicit KeyDataWriter(std::string dump_path) : dump_path_(std::move(dump_path)) {}

  // Saves one value. `micro_step`: nullopt: without a folder micro_step<M>. Tensors of a dtype that
  // NumPy lacks are kUnsupported. Errors: kIo.
  Status Save(const std::string& key, KeyForm form, const std::vector<KeyTensor>& tensors, int rank,
              std::optional<int64_t> micro_step) const;
  // The number of this save of `key` in the step, from 0; counts it.
  int64_t NextMicroStep(const std::string& key) { return saves_[key]++; }
  void Step();  // the next step: its saves count from 0
  int64_t step() const { return step_; }
  const std::string& dump_path() const { return dump_path_; }

 private:
  std::string dump_path_;
  int64_t step_ = 0;
  std::map<std::string, int64_t> saves_;
};

}  // namespace msprobe::key_data
