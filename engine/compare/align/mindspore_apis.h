// What of MindSpore computes the same as what of PyTorch: APIs, classes of modules, parameters. The
// data are mindspore_apis.yaml, which is built into the library.
//
//   PyTorchApiOf("Functional.abs", apis_of_the_other_dump);              // "Torch.abs"
//   RelationOf("Primitive.matmul.MatMul", "Functional.linear");          // kSame
//   RelationOf("Primitive.bias_add.BiasAdd", "Functional.linear");       // kEndsGolden
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/table.h"

namespace msprobe::compare {

// The other framework's name of an API: "Torch.abs" for "Functional.abs", "Torch.add" for
// "Mint.add". When the table has several, the first one that is in `present`, the APIs of the other
// dump. The name itself when the table has none.
std::string PyTorchApiOf(std::string_view mindspore, const std::set<std::string_view>& present);
std::string MindSporeApiOf(std::string_view pytorch, const std::set<std::string_view>& present);

// The other framework's name of a class of modules, "Linear" for "Dense"; the name itself when the
// table has none.
std::string_view PyTorchClassOf(std::string_view cell);
std::string_view MindSporeClassOf(std::string_view module);

// A name of a Cell's parameter and the Module's name of the same.
struct ParameterNames {
  std::string mindspore, pytorch;
};
std::span<const ParameterNames> OtherParameterNames();
// The name of a weight of MindSpore in PyTorch's program: "norm.weight" for "norm.gamma", if that
// program has it and no "norm.gamma"; else the name itself. `has`: whether it has a weight of that
// name.
std::string PyTorchWeightOf(std::string_view mindspore,
                            const std::function<bool(std::string_view)>& has);
// The same for all weights of two dumps of two frameworks; nothing for others.
void NameWeightsAlike(Dump* target, Dump* golden);

// How an API of one framework and one of the other are related, whatever their prefixes.
enum class Relation : uint8_t {
  kNone,
  kSame,        // they compute the same
  kEndsGolden,  // the target's may be the last of several calls that the golden makes as one
  kEndsTarget,  // the other way round
};
Relation RelationOf(std::string_view target, std::string_view golden);

// "conv2d" for "Primitive.conv2d.Conv2D" and "Functional.conv2d": one name for all calls of an
// operation. Where the table has several for one name, the first.
std::string_view OperationOf(std::string_view api);

// For each tensor that a Primitive of MindSpore takes its place in PyTorch's call; empty: the same.
std::span<const int> ArgumentOrderOf(std::string_view mindspore);

// The name in PyTorch of what a Primitive was constructed with: "training" for "is_training"; "":
// it has none.
std::string_view ArgumentOfConstructor(std::string_view mindspore);

}  // namespace msprobe::compare
