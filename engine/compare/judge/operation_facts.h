// What is known of an operation: one row of operations.yaml, which is part of the library.
//
//   FactsOf("Functional.layer_norm").kind;   // OperationClass::kNormalisation
#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe::compare {

enum class OperationClass : uint8_t {
  kUnknown,
  kKeeps,          // moves elements: the result has all of them, each equally often
  kTakes,          // its result consists of elements of the arguments
  kElementwise,    // a function of each element that enlarges no error: relu, tanh
  kScaling,        // products, quotients, casts: a relative error stays as it is
  kSum,            // of the arguments, element by element
  kReduction,      // sums over a dimension
  kContraction,    // sums of products
  kNormalisation,  // subtracts a mean, divides by a size: errors are enlarged where that is small
  kExponential,    // an absolute error becomes a relative one: exp, softmax, log, losses of logits
};

struct OperationFacts {
  OperationClass kind = OperationClass::kUnknown;
  // By the name, also of an operation without a row: it sums products; it enlarges relative errors.
  bool sums_products = false, amplifies = false;
  bool buffers = false;    // changes buffers that its results do not show: running_mean
  bool draws = false;      // random numbers
  bool opaque = false;     // code of the user: a torch.autograd.Function
  bool exchanges = false;  // with other ranks
  bool in_place = false;   // writes its first argument
  bool is_mean = false;    // of a reduction
  bool alone = false;      // of an optimizer: each parameter by its own gradient alone
  bool linear = false;     // of an optimizer: a movement is the gradient times the rate

  bool Moves() const { return kind == OperationClass::kKeeps || kind == OperationClass::kTakes; }
  bool Cancels() const {
    return kind == OperationClass::kNormalisation || kind == OperationClass::kExponential ||
           kind == OperationClass::kSum || kind == OperationClass::kReduction;
  }
};

// Of Record::api. The row with the last part of the name, without underscores around it; an operation
// without a row is kUnknown, and of its name words tell. The result lives as long as the program.
const OperationFacts& FactsOf(std::string_view api);

}  // namespace msprobe::compare
