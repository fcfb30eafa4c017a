// The positional parameters of a function that calls of an API run, as signatures.json (ours) says.
//
//   Signature max{"Torch.max", {{"input", "other: Tensor"}, {"input", "dim: int",
//       "keepdim: bool"}}};
//   Signature view{"Tensor.view", {{"self", "size..."}}};
//   // "dim" of torch.max(x, 1); parameter_names.h
//   std::string name = ParameterName(dump, record, 1);
#pragma once

#include <string_view>
#include <vector>

namespace msprobe {

struct Parameter {
  Parameter(std::string_view text) {  // NOLINT: as it is written, "dim: int/str" or "size..."
    const size_t colon = text.find(": ");
    name = text.substr(0, colon);
    if (colon != text.npos) types = text.substr(colon + 2);
    takes_rest = name.ends_with("...");
    if (takes_rest) name.remove_suffix(3);
  }
  Parameter(const char* text) : Parameter(std::string_view(text)) {}  // NOLINT

  std::string_view name;    // "": not known
  std::string_view types;   // of values that it takes, with "/" between them; "": any
  bool takes_rest = false;  // all arguments from this one on
};

struct Signature {
  std::string_view api;  // as Record::api: "Functional.dropout"
  // More than one where the function is called with other parameters by the types of its arguments.
  std::vector<std::vector<Parameter>> overloads;
};

}  // namespace msprobe
