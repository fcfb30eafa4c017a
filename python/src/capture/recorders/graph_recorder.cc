#include "capture/recorders/graph_recorder.h"

#include <algorithm>
#include <utility>

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "engine/base/messages/message.h"
#include "engine/dump/write/compiled_programs.h"

namespace msprobe::capture {

void GraphRecorder::Forward(const std::string& cell, const std::string& around, Tensors* tensors) {
  if (!recording_->sees_calls || !recording_->session->collecting()) return;
  dump::CallNames& names = recording_->session->calls();
  Call call;
  Call outer;  // its output comes after those of the Cells inside
  std::string forward, parent;
  names.Name(cell + ".", names.Next(Counter(cell)), /*is_module=*/true, &forward, &call.backward);
  if (!around.empty()) {
    const auto it = cells_.find(around);
    names.Name(around + ".", it == cells_.end() ? 0 : it->second.calls, /*is_module=*/true, &parent,
               &call.parent_backward);
  }
  dump::Filter& filter = recording_->session->filter();
  const bool listed = filter.EnterModule(forward);
  filter.LeaveModule(forward);
  Cell& seen = cells_[cell];
  ++seen.calls;
  seen.open.push_back(std::move(call));
  if (!filter.data_mode.forward() || !listed) {
    ++recording_->coverage.modules.ignored;
    return;
  }
  ++recording_->coverage.modules.recorded;
  Write(forward, parent, filter.data_mode.forward_output ? "output" : nullptr, tensors);
}

void GraphRecorder::Backward(const std::string& cell, Tensors* tensors) {
  if (!recording_->session->collecting()) return;
  const auto it = cells_.find(cell);
  if (it == cells_.end() || it->second.open.empty()) return;
  const Call call = std::move(it->second.open.back());
  it->second.open.pop_back();
  dump::Filter& filter = recording_->session->filter();
  if (!filter.data_mode.backward() || !filter.WantsEntry(call.backward)) {
    ++recording_->coverage.ignored_gradients;
    return;
  }
  ++recording_->coverage.gradients;
  ++recording_->coverage.expected_gradients;
  // As for a module: the gradients of its outputs are the input of its backward pass.
  Write(call.backward, call.parent_backward, filter.data_mode.backward_input ? "input" : nullptr,
        tensors);
}

void GraphRecorder::Write(const std::string& name, const std::string& parent, const char* slot,
                          Tensors* tensors) {
  Entry entry;  // another tap may speak while a large tensor is measured without the GIL
  entry.Begin(name);
  if (slot != nullptr && recording_->records_values()) {
    const KeepError keep;
    const Interposer::Pause pause;
    const EntryStyle style = recording_->StyleOf(name, std::string_view(slot) == "output");
    entry.BeginSlot(slot, slot, Entry::Container::kList);
    for (FrameworkTensor& tensor : *tensors) {
      const std::string file =
          style.store ? entry.TensorFileName(Framework::Get().tensor_suffix) : "";
      entry.AddTensor(RecordTensor(&tensor, recording_->options, style, file));
    }
    entry.EndSlot();
  }
  recording_->session->Record({.entry = recording_->records_values() ? &entry : nullptr,
                               .name = name,
                               .parent = parent,
                               .construct = true});
}

std::vector<std::string> GraphRecorder::NotCalled(const std::vector<std::string>& cells) {
  std::vector<std::string> missing;
  std::vector<dump::Coverage::Api>& unseen = recording_->coverage.unseen_modules;
  unseen.clear();
  for (const std::string& cell : cells) {
    if (recording_->session->calls().Called(Counter(cell))) continue;
    missing.push_back(cell);
    unseen.push_back({cell, "not called, or in a graph in which it has no tap"_t});
  }
  return missing;
}

void GraphRecorder::RanCompiled(const std::string& program) {
  std::vector<dump::Coverage::Api>& unseen = recording_->coverage.unseen_modules;
  const bool known = std::any_of(unseen.begin(), unseen.end(),
                                 [&](const auto& one) { return one.name == program; });
  if (!known) unseen.push_back({program, dump::RanCompiled()});
}

}  // namespace msprobe::capture
