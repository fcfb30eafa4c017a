#include "engine/compare/judge/operations.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/model/optimizer_groups.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

bool GoesIn(const Leaf& leaf) {
  return leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
}

// -1: not known.
double Elements(const Leaf& leaf) { return static_cast<double>(leaf.shape.elements()); }

}  // namespace

const OperationTable& OperationsOf(const Comparison& c) {
  return c.operations != nullptr ? *c.operations : OperationTable::Shipped();
}

bool DrawsRandomNumbers(std::string_view api) { return msprobe::DrawsRandomNumbers(BaseApi(api)); }

bool ReturnsUninitialised(std::string_view api) { return ReturnsUnwrittenMemory(BaseApi(api)); }

bool IsContraction(const OperationTable& operations, std::string_view api) {
  return operations.Of(api).sums_products;
}

bool AmplifiesRounding(const OperationTable& operations, std::string_view api) {
  const OperationFacts& facts = operations.Of(api);
  return facts.amplifies || facts.kind == OperationClass::kSum ||
         facts.kind == OperationClass::kReduction || IsOptimizerCall(api);
}

bool UpdatesBuffers(const OperationTable& operations, std::string_view api) {
  return operations.Of(api).buffers;
}

bool WritesFirstArgument(const OperationTable& operations, std::string_view api) {
  // What an optimizer's call changes has a name of its own, and is no argument.
  return !IsOptimizerCall(api) && operations.Of(api).in_place;
}

bool HasOperations(const Dump& dump) {
  return std::any_of(dump.records.begin(), dump.records.end(), [](const Record& r) {
    return !r.is_module && r.direction != Direction::kParameterGrad && !IsOptimizerCall(r.api);
  });
}

double SummedTerms(const OperationTable& operations, const Dump& dump, const Record& record) {
  // |X| is the number of elements of X. For a contraction with inputs A and B and output C,
  // |A| |B| / |C| is the square of the inner dimension; for a reduction |A| / |C| is the number of
  // terms. Example: A [8, 64], B [64, 16], C [8, 16]: 512 * 1024 / 128 = 4096 = 64^2, so 64 terms.
  // Backward and module records have the shapes of the same products.
  double largest = 0, second = 0, out = 0;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor) continue;
    const double n = Elements(leaf);
    if (!GoesIn(leaf)) {
      out = std::max(out, n);
    } else if (n > largest) {
      second = largest;
      largest = n;
    } else {
      second = std::max(second, n);
    }
  }
  if (largest <= 0) return 0;
  out = std::max(out, 1.0);
  double terms = largest / out;
  if (second > 0 && IsContraction(operations, record.api))
    terms = std::max(terms, std::sqrt(largest * second / out));
  return terms > 1 ? terms : 0;
}

namespace {

// The call by which a module got its gradients, near their entry; null: not recorded.
const Record* BackwardOf(const Dump& dump, const Record& gradients) {
  constexpr ptrdiff_t kNear = 256;  // records; bounds the time
  const ptrdiff_t at = &gradients - dump.records.data(),
                  size = static_cast<ptrdiff_t>(dump.records.size());
  for (ptrdiff_t away = 1; away < kNear && (away <= at || at + away < size); ++away) {
    for (const ptrdiff_t i : {at - away, at + away}) {
      if (i < 0 || i >= size) continue;
      const Record& r = dump.records[i];
      if (r.direction == Direction::kBackward && r.is_module && r.api == gradients.api) return &r;
    }
  }
  return nullptr;
}

// The root of the mean square of a tensor, without its extremes.
double RootMeanSquare(const Dump& dump, const Leaf& leaf) {
  const LeafRest* rest = dump.RestOf(static_cast<int32_t>(&leaf - dump.leaves.data()));
  const double n = Elements(leaf), norm = rest != nullptr ? rest->norm : leaf.norm_value;
  return n > 0 && std::isfinite(norm) ? norm / std::sqrt(n) : 0;
}

// The size of the gradient of another weight of the same module that stands beside `vector`, the
// gradient of a bias or of the scale of a normalisation: both are sums over the same rows. The same
// of an optimizer's state, which is made of gradients ("state.fc.bias.exp_avg"). 0: there is none.
double SizeOfGradientBeside(const Dump& dump, const Record& record, const Leaf& vector) {
  constexpr ptrdiff_t kNear = 8;  // leaves: a module has few parameters
  const std::string_view name = vector.name.view();
  const bool of_state = name.find(".state.") != std::string_view::npos;
  const size_t last = name.rfind('.');
  const std::string_view state = of_state ? name.substr(last) : std::string_view();
  const std::string_view module =
      name.substr(0, (of_state && last > 0 ? name.rfind('.', last - 1) : last) + 1);
  if (vector.shape.extents().size() > 1 || module.empty()) return 0;
  const ptrdiff_t at = &vector - dump.leaves.data(), first = record.first_leaf,
                  end = first + record.leaf_count;
  double size = 0;
  for (ptrdiff_t i = std::max(first, at - kNear); i < std::min(end, at + kNear + 1); ++i) {
    const Leaf& leaf = dump.leaves[i];
    const bool beside =
        leaf.kind == LeafKind::kTensor && leaf.slot == vector.slot && leaf.has_stats &&
        &leaf != &vector && !leaf.shape.extents().empty() && leaf.name.view().starts_with(module) &&
        leaf.name.view().ends_with(state) &&
        leaf.name.view().find('.', module.size()) >= leaf.name.view().size() - state.size();
    if (beside) size = std::max(size, RootMeanSquare(dump, leaf));
  }
  return size;
}

}  // namespace

namespace {

bool NamesOptimizerTensor(const Record& record, const Leaf& leaf, std::string_view kind) {
  return IsOptimizerCall(record.api) && leaf.kind == LeafKind::kTensor &&
         leaf.name.view().find(kind) != std::string_view::npos;
}

// The tensors that go into a call.
struct InputsOfCall {
  double largest = 0;  // absolute value
  const Leaf *first = nullptr, *second = nullptr;
};

// nullopt: they have an element that is not finite.
std::optional<InputsOfCall> InputsOf(const Dump& dump, const Record& record) {
  InputsOfCall inputs;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor || !GoesIn(leaf) || !leaf.has_stats) continue;
    const LeafRest* rest = dump.RestOf(static_cast<int32_t>(&leaf - dump.leaves.data()));
    const double max = rest != nullptr ? rest->max : leaf.max_value,
                 min = rest != nullptr ? rest->min : leaf.min_value;
    if (!std::isfinite(max) || !std::isfinite(min)) return std::nullopt;
    inputs.largest = std::max({inputs.largest, std::abs(max), std::abs(min)});
    if (inputs.first == nullptr) {
      inputs.first = &leaf;
    } else if (inputs.second == nullptr) {
      inputs.second = &leaf;
    }
  }
  return inputs;
}

}  // namespace

bool IsGradientOfOptimizer(const Record& record, const Leaf& leaf) {
  return GoesIn(leaf) && NamesOptimizerTensor(record, leaf, ".gradients.");
}

bool IsStateOfOptimizer(const Record& record, const Leaf& leaf) {
  return GoesIn(leaf) && NamesOptimizerTensor(record, leaf, ".state.");
}

bool IsImplementation(const Record& record, const Leaf& leaf) {
  return IsOptimizerCall(record.api) && leaf.kind == LeafKind::kScalar && GoesIn(leaf) &&
         (leaf.name.view().ends_with(".implementation") ||
          GroupSettingOf(LeafPlace(leaf, record)).name == "params");
}

double SummedMagnitude(const OperationTable& operations, const Dump& dump, const Record& call,
                       const Leaf& output) {
  const bool gradients = call.direction == Direction::kParameterGrad;
  const Record* backward = gradients ? BackwardOf(dump, call) : nullptr;
  if (NamesOptimizerTensor(call, output, ".gradients.") ||
      NamesOptimizerTensor(call, output, ".state.") || (gradients && backward == nullptr))
    return SizeOfGradientBeside(dump, call, output);
  const Record& record = gradients ? *backward : call;
  const OperationFacts& facts = operations.Of(record.api);
  const double out = Elements(output);
  if (out <= 0) return 0;
  // Of an optimizer's entry, which has leaves for each parameter of the model, nothing is known.
  if (IsOptimizerCall(record.api) && !IsChangedInPlace(output, record)) return 0;
  const std::optional<InputsOfCall> inputs = InputsOf(dump, record);
  if (!inputs || inputs->first == nullptr) return 0;
  const double largest = inputs->largest;
  const Leaf *a = inputs->first, *b = inputs->second;
  if (IsChangedInPlace(output, record)) return largest;
  const auto rms = [&dump](const Leaf& leaf) { return RootMeanSquare(dump, leaf); };
  const double terms = std::max(1.0, Elements(*a) / out);
  if (record.direction == Direction::kForward) {
    if (facts.kind == OperationClass::kSum) return largest;
    if (facts.kind == OperationClass::kReduction)
      return facts.is_mean ? rms(*a) / std::sqrt(terms) : rms(*a) * std::sqrt(terms);
    if (b != nullptr && facts.sums_products)
      return rms(*a) * rms(*b) * std::sqrt(SummedTerms(operations, dump, record));
  } else if (record.direction == Direction::kBackward && output.shape.extents().size() <= 1 &&
             (facts.sums_products ||
              Lower(BaseApi(record.api)).find("norm") != std::string::npos)) {
    return rms(*a) * std::sqrt(terms);  // a bias' gradient is the sum of the incoming gradient
  }
  return 0;
}

}  // namespace msprobe::compare
