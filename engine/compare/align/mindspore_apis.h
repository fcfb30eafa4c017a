// Which API of PyTorch does what one of MindSpore does: mindspore_apis.yaml, built into the
// library.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace msprobe::compare {

// The other framework's spelling of an API: "Torch.abs" of "Functional.abs", "Torch.add" of
// "Mint.add". Of several, the first that is `present` in the other dump. The name itself when
// nothing is known.
std::string PyTorchApiOf(std::string_view mindspore, const std::set<std::string_view>& present);
std::string MindSporeApiOf(std::string_view pytorch, const std::set<std::string_view>& present);

}  // namespace msprobe::compare
