// What is known of an operation: one row of operations.yaml, which is part of the library, or of a
// file of the user in the same form.
//
//   FactsOf("Functional.layer_norm").kind;   // OperationClass::kNormalisation
//   MSPROBE_ASSIGN_OR_RETURN(const OperationTable table, OperationTable::Read("operations.yaml"));
//   table.Of("Torch.my_norm").kind;
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/base/status.h"

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
  bool buffers = false;        // changes buffers that its results do not show: running_mean
  bool draws = false;          // random numbers
  bool opaque = false;         // code of the user: a torch.autograd.Function
  bool exchanges = false;      // with other ranks
  bool in_place = false;       // writes its first argument
  bool is_mean = false;        // of a reduction
  bool accumulates = false;    // of a sum: any number of elements, cumsum
  bool alone = false;          // of an optimizer: each parameter by its own gradient alone
  bool exponentiates = false;  // an argument of size x is rounded as if it were x roundings
  bool softmax = false;        // its parts are of one sum: the gradient of what they share cancels
  bool lipschitz = false;      // neither it nor its derivative is steeper than 1
  bool kinks = false;          // its derivative jumps, as that of relu does at 0
  bool other_kernels = false;  // which kernel computes is chosen outside of its arguments
  // Shape, dtype and device alone count, of its first argument or of the others: zeros_like.
  bool looks_at_first = false, looks_at_others = false;
  bool linear = false;  // of an optimizer: a movement is the gradient times the rate

  bool Moves() const { return kind == OperationClass::kKeeps || kind == OperationClass::kTakes; }
  // Each element of the result is one operation of elements of the arguments, or two.
  bool RoundsOnce() const {
    return kind == OperationClass::kScaling || (kind == OperationClass::kSum && !accumulates);
  }
  bool Cancels() const {
    return kind == OperationClass::kNormalisation || kind == OperationClass::kExponential ||
           kind == OperationClass::kSum || kind == OperationClass::kReduction;
  }
};

// Whether an API computes on lists of tensors, each element by itself: Torch._foreach_mul_.
bool IsOfLists(std::string_view api);

class OperationTable {
 public:
  static const OperationTable& Shipped();
  // The shipped rows, and those of the text: a row of the text replaces the shipped one of its
  // name. Errors: kNotFound; kInvalidConfig with the line: no YAML, a section or class that does
  // not exist, what is no list of names, a name in two classes.
  static Result<OperationTable> Parse(std::string_view text, std::string_view path);
  static Result<OperationTable> Read(const std::string& path);

  // Of Record::api. The row with the last part of the name, without underscores around it; an
  // operation without a row is kUnknown, and of its name words tell. It lives as long as the table.
  const OperationFacts& Of(std::string_view api) const;

  // Whether a state of an optimizer that is not linear holds movements: "momentum_buffer".
  bool HoldsMovements(std::string_view state) const {
    return movements_.count(std::string(state)) > 0;
  }

 private:
  friend class OperationReader;
  OperationTable();
  void Finish();

  std::unordered_map<std::string, OperationFacts> rows_, in_place_, optimizers_;
  std::unordered_set<std::string> writes_, movements_;
  std::vector<std::string> sums_products_, amplifies_;  // words in names, in lower case
  std::array<OperationFacts, 16> unknown_;              // by what their names tell
  OperationFacts function_, exchange_;
};

// Of the shipped table.
inline const OperationFacts& FactsOf(std::string_view api) {
  return OperationTable::Shipped().Of(api);
}

}  // namespace msprobe::compare
