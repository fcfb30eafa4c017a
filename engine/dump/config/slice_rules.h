// The part of each tensor that is recorded: "slice" and "request_id".
//
//   Slicer slicer({{.dim = 1, .size = 8192, .begin = -16}});     // the last 16 of dimension 1
//   int64_t shape[kMaxTensorDimensions], strides[kMaxTensorDimensions];
//   slicer.Apply(&view, shape, strides);                         // the view is narrower, no copy
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/config_values.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::dump {

// Elements [begin, end) of dimension `dim`, as in a slice of Python: negative numbers count from
// the end, larger ones are cut. The rule holds for tensors that have the dimension and, if `size`
// is given, whose extent there is `size`.
struct SliceRule {
  int64_t dim = 0;
  std::optional<int64_t> size;
  int64_t begin = 0;
  std::optional<int64_t> end;

  bool operator==(const SliceRule&) const = default;
};

// "slice": a list of {"dim": 0, "size": 128, "begin": 0, "end": 16}; each key may be missing.
Status ReadSlices(const ConfigPlace& place, const formats::JsonValue& value,
                  std::vector<SliceRule>* rules);

class Slicer {
 public:
  Slicer() = default;
  explicit Slicer(std::vector<SliceRule> rules) : rules_(std::move(rules)) {}

  // One more rule, for one step only, which is applied last; nullopt: none.
  void SetRequest(std::optional<SliceRule> rule) { request_ = rule; }
  bool empty() const { return rules_.empty() && !request_; }
  // Narrows `*view`. `shape` and `strides` are memory for view->ndim elements, to which the view
  // points afterwards. Of several rules for one dimension the last one that fits counts.
  void Apply(TensorView* view, int64_t* shape, int64_t* strides) const;

 private:
  const SliceRule* RuleFor(int64_t dim, int64_t extent) const;

  std::vector<SliceRule> rules_;
  std::optional<SliceRule> request_;
};

// The number of tokens of each request in a batch, in the order in which they lie in dimension 0.
using TokenCounts = std::vector<std::pair<std::string, int64_t>>;
// Where the tokens of `request` are, in tensors whose dimension 0 holds all of the batch; nullopt
// when it has none.
std::optional<SliceRule> SliceOfRequest(const TokenCounts& counts, std::string_view request);

}  // namespace msprobe::dump
