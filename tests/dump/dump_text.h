// Texts of dumps in our dialect, for tests, and the table rows for the records read from them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/model/table.h"

namespace msprobe::dump {

inline constexpr std::string_view kHeader =
    "{\"task\": \"statistics\", \"level\": \"mix\", \"framework\": \"pytorch\", \"dump_data_dir\": "
    "null, "
    "\"tool\": \"msprobe 27.0.0\", \"data\": {\n";
inline constexpr std::string_view kTensor =
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, 3], \"Max\": 1.5, "
    "\"Min\": -0.5, \"Mean\": 0.25, "
    "\"Norm\": 2.0, \"requires_grad\": true, \"fingerprint\": \"0123456789abcdef\", \"nan\": 2, "
    "\"zero\": 1}";

// One call: inputs are a tensor and an integer, the output is a tensor. `more`: further members.
inline std::string EntryMember(std::string_view name, std::string_view more = "") {
  return "\"" + std::string(name) + "\": {\"input_args\": [" + std::string(kTensor) +
         ", {\"type\": \"int\", \"value\": 3}], \"input_kwargs\": {}, \"output\": [" +
         std::string(kTensor) + "]" + std::string(more) + "}";
}

inline std::string Ours(std::initializer_list<std::string> entries, bool closed = true) {
  std::string text(kHeader);
  bool first = true;
  for (const std::string& entry : entries) {
    if (!first) text += ",\n";
    first = false;
    text += entry;
  }
  if (closed) text += "\n}}\n";
  return text;
}

// One table row in the spelling of msprobe 26.
inline std::string Row(const Leaf& leaf) {
  const auto cell = [](std::string_view text) {
    return std::string(text == "null" ? "None" : text);
  };
  std::string row;
  for (const std::string_view text : {leaf.name.view(), leaf.dtype.view(), leaf.shape.view()})
    row += std::string(text) + "|";
  row += leaf.requires_grad.empty() ? "N/A" : std::string(leaf.requires_grad);
  for (const std::string_view text : {leaf.max, leaf.min, leaf.mean, leaf.norm})
    row += "|" + cell(text);
  return row;
}

}  // namespace msprobe::dump
