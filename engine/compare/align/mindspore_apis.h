// The table of MindSpore's APIs and the APIs of PyTorch that compute the same: mindspore_apis.yaml,
// which is built into the library.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace msprobe::compare {

// The other framework's name of an API: "Torch.abs" for "Functional.abs", "Torch.add" for
// "Mint.add". When the table has several, the first one that is in `present`, the APIs of the other
// dump. The name itself when the table has none.
std::string PyTorchApiOf(std::string_view mindspore, const std::set<std::string_view>& present);
std::string MindSporeApiOf(std::string_view pytorch, const std::set<std::string_view>& present);

}  // namespace msprobe::compare
