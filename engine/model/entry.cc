#include "engine/model/entry.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe {

void TensorValue::Clear() {
  type = "torch.Tensor";
  dtype.clear();
  element_type = DType::kFloat32;
  shape.clear();
  strides.clear();
  numbers = Numbers::kUnreadable;
  ticket = first_nonfinite = -1;
  rest.reset();
  sketch.reset();
  with_statistics = with_counts = with_fingerprint = true;
  checksum = kernels::Checksum::kNone;
  requires_grad.reset();
  device_mesh.clear();
  placements.clear();
  global_shape.clear();
  vmap.clear();
  unreadable.clear();
  unwritten.clear();
  file.clear();
}

ReusedTensors& ReusedTensors::operator=(const ReusedTensors& other) {
  if (this == &other) return *this;
  if (all_.size() < other.count_) all_.resize(other.count_);
  std::ranges::copy(other.all(), all_.begin());
  count_ = other.count_;
  return *this;
}

TensorValue& ReusedTensors::Add() {
  if (count_ == all_.size()) {
    all_.emplace_back();
  } else {
    all_[count_].Clear();
  }
  return all_[count_++];
}

void Entry::Begin(std::string_view name) {
  name_ = name;
  is_value_ = false;
  slots_.clear();
  values_.clear();
  tensors_.Clear();
  ints_.clear();
  text_.clear();
  frames_.clear();
  key_ = {};
  exception.clear();
  completion.clear();
  changed_in_place.clear();
  group.ranks.clear();
  is_nan.reset();
  training.reset();
  random_state.clear();
  precision.clear();
  module.clear();
  stack = -1;
}

void Entry::BeginValue(std::string_view name) {
  Begin(name);
  is_value_ = true;
  frames_.push_back({});
}

void Entry::BeginSlot(std::string_view key, std::string_view category, Container container) {
  slots_.push_back({Keep(key), Keep(category), static_cast<uint32_t>(values_.size())});
  key_ = {};
  frames_.clear();
  if (container == Container::kNone) {
    frames_.push_back({});
  } else {
    Open(container == Container::kList ? Kind::kList : Kind::kDict);
  }
}

void Entry::EndSlot() {
  if (frames_.back().container == Container::kNone) {
    frames_.pop_back();
  } else {
    Close();
  }
}

Entry::Text Entry::Keep(std::string_view text) {
  const Text kept{static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
  text_ += text;
  return kept;
}

Entry::Value& Entry::Add(Kind kind) {
  if (!frames_.empty()) {
    ++frames_.back().next;
    frames_.back().key = key_;
  }
  Value& value = values_.emplace_back();
  value.kind = kind;
  value.end = static_cast<uint32_t>(values_.size());
  value.key = key_;
  return value;
}

void Entry::Open(Kind kind) {
  Add(kind);
  frames_.push_back({.value = static_cast<uint32_t>(values_.size() - 1),
                     .container = kind == Kind::kList ? Container::kList : Container::kDict});
  key_ = {};
}

void Entry::Close() {
  values_[frames_.back().value].end = static_cast<uint32_t>(values_.size());
  frames_.pop_back();
}

TensorValue& Entry::AddTensor() {
  Add(Kind::kTensor).index = static_cast<uint32_t>(tensors_.all().size());
  return tensors_.Add();
}

void Entry::Bool(std::string_view type, bool value) {
  const Text kept = Keep(type);
  Value& added = Add(Kind::kBool);
  added.type = kept;
  added.integer = value;
}

void Entry::Int(std::string_view type, int64_t value) {
  const Text kept = Keep(type);
  Value& added = Add(Kind::kInt);
  added.type = kept;
  added.integer = value;
}

void Entry::Float(std::string_view type, double value) {
  const Text kept = Keep(type);
  Value& added = Add(Kind::kFloat);
  added.type = kept;
  added.number = value;
}

void Entry::Digits(std::string_view type, std::string_view literal) {
  const Text kept = Keep(type), kept_literal = Keep(literal);
  Value& added = Add(Kind::kDigits);
  added.type = kept;
  added.text = kept_literal;
}

void Entry::Member(std::string_view type, std::string_view key, std::string_view text) {
  const Text kept = Keep(type), kept_key = Keep(key), kept_text = Keep(text);
  Value& added = Add(Kind::kText);
  added.type = kept;
  added.text_key = kept_key;
  added.text = kept_text;
}

void Entry::Ints(std::string_view type, std::span<const std::optional<int64_t>> numbers) {
  const Text kept = Keep(type);
  Value& added = Add(Kind::kInts);
  added.type = kept;
  added.index = static_cast<uint32_t>(ints_.size());
  added.count = static_cast<uint32_t>(numbers.size());
  ints_.insert(ints_.end(), numbers.begin(), numbers.end());
}

void Entry::Group(std::span<const int64_t> ranks, std::string_view id) {
  const Text kept = Keep(id);
  Value& added = Add(Kind::kGroup);
  added.text = kept;
  added.index = static_cast<uint32_t>(ints_.size());
  added.count = static_cast<uint32_t>(ranks.size());
  ints_.insert(ints_.end(), ranks.begin(), ranks.end());
}

void Entry::BareText(std::string_view text) {
  const Text kept = Keep(text);
  Value& added = Add(Kind::kText);
  added.text = kept;
  added.bare = true;
}

void Entry::BareInt(std::optional<int64_t> number) {
  Value& added = Add(number ? Kind::kInt : Kind::kNull);
  added.integer = number.value_or(0);
  added.bare = true;
}

std::string Entry::TensorFileName(std::string_view suffix) const {
  std::string file = name_;
  if (!slots_.empty() && slots_.back().category.size > 0) {
    file += '.';
    file += text(slots_.back().category);
  }
  for (size_t i = 0; i < frames_.size(); ++i) {
    const Frame& frame = frames_[i];
    const bool innermost = i + 1 == frames_.size();
    if (frame.container == Container::kList) {
      file += '.';
      AppendInteger(&file, innermost ? frame.next : frame.next - 1);
    } else if (frame.container == Container::kDict) {
      file += '.';
      file += text(innermost ? key_ : frame.key);
    }
  }
  return SafeFileName(file, suffix);
}

std::string Entry::FileNameOf(size_t index, std::string_view suffix) const {
  const auto is_it = [&](uint32_t i) {
    return values_[i].kind == Kind::kTensor && values_[i].index == index;
  };
  for (const Slot& slot : slots_) {
    uint32_t found = slot.root;
    while (found < values_[slot.root].end && !is_it(found)) ++found;
    if (found == values_[slot.root].end) continue;
    std::string file = name_;
    if (slot.category.size > 0) {
      file += '.';
      file += text(slot.category);
    }
    for (uint32_t at = slot.root; at != found;) {
      const bool in_list = values_[at].kind == Kind::kList;
      int64_t place = 0;
      uint32_t child = at + 1;
      for (; values_[child].end <= found; child = values_[child].end) ++place;
      file += '.';
      if (in_list) {
        AppendInteger(&file, place);
      } else {
        file += text(values_[child].key);
      }
      at = child;
    }
    return SafeFileName(file, suffix);
  }
  return "";
}

void Entry::ForgetFile(std::string_view file) {
  for (TensorValue& tensor : tensors()) {
    if (tensor.file == file) tensor.file = "-1";
  }
}

void TensorValue::Resolve(const DeferredNumbers& arrived) {
  unreadable.clear();
  stats = arrived.stats;
  rest = arrived.rest;
  sketch = arrived.sketch;
  first_nonfinite = arrived.first_nonfinite;
  numbers = arrived.has_fingerprint ? Numbers::kHere : Numbers::kFromDevice;
  with_counts = with_counts && arrived.has_counts;
  if (arrived.file_is_lost) file = "-1";
}

}  // namespace msprobe
