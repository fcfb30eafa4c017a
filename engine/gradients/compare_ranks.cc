#include "engine/gradients/compare_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <mutex>
#include <set>
#include <string_view>

#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/gradients/recorded_step.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::gradients {
namespace {

constexpr size_t kMostErrors = 5;  // that are said of a rank, one by one

// What a work item found: some or all parameters of a step.
struct Found {
  std::vector<std::pair<std::string, Similarity>> cells;
  std::array<std::vector<std::string>, 2> only_in, nan_in;  // parameters, for each side
  std::vector<Status> errors;
};

// What is said once of a side, however often it happens.
struct Repeated {
  std::string parameter;  // the first one
  int64_t step = 0, times = 0;
  std::set<std::string> parameters;

  void Add(const std::vector<std::string>& names, int64_t in_step) {
    for (const std::string& name : names) {
      if (times++ == 0) parameter = name, step = in_step;
      parameters.insert(name);
    }
  }
};

// Whether the parameter is the bias of queries, keys and values together, in thirds: that of
// torch.nn.MultiheadAttention, and of layers named as timm's, GPT-2's and others.
bool IsJoinedBias(const GradientRow& row) {
  if (!row.parameter.ends_with("bias") || row.shape.size() != 1 || row.shape[0] % 3 != 0)
    return false;
  const std::string name = Lower(row.parameter);
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"in_proj", "qkv", "c_attn"},
      [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// The elements with another direction in the thirds of keys and values of a joined bias; 0 of any
// other parameter. Directions of chance leave some of the values' as they are.
int64_t ChangedParts(const GradientRow& row, const Directions& target, const Directions& golden) {
  if (!IsJoinedBias(row)) return 0;
  const int64_t third = row.shape[0] / 3;
  const int64_t values = CountDifferent(target, golden, 2 * third, 3 * third);
  constexpr double kByChance = 0.8;
  const bool chance = static_cast<double>(values) < kByChance * static_cast<double>(third);
  return CountDifferent(target, golden, third, 2 * third) + (chance ? values : 0);
}

// Of the dtype in which the pass computed, of the coarser side.
double EpsilonOf(const GradientRow& a, const GradientRow& b) {
  double epsilon = Similarity().epsilon;
  for (const GradientRow* row : {&a, &b}) {
    const bool half = row->dtype == DType::kFloat16 || row->dtype == DType::kBFloat16;
    if (half) epsilon = std::max(epsilon, DTypeEpsilon(*row->dtype));
  }
  return epsilon;
}

// The part-th of `parts` equal parts of a step's parameters, in the order of the table.
Found CompareStep(const RankFolders& folders, int64_t step, size_t part, size_t parts) {
  Found found;
  const Result<RecordedStep> target = RecordedStep::Open(folders.target, step);
  const Result<RecordedStep> golden = RecordedStep::Open(folders.golden, step);
  for (const Result<RecordedStep>* side : {&target, &golden})
    if (!side->ok() && part == 0) found.errors.push_back(side->status());
  if (!target.ok() || !golden.ok()) return found;
  const auto begin = [&](size_t rows) { return rows * part / parts; };
  const auto end = [&](size_t rows) { return rows * (part + 1) / parts; };
  for (size_t i = begin(golden->rows().size()); i < end(golden->rows().size()); ++i) {
    const GradientRow& row = golden->rows()[i];
    if (row.has_nan) found.nan_in[1].push_back(row.parameter);
    if (target->FindPartner(row, *golden) == nullptr) found.only_in[1].push_back(row.parameter);
  }
  for (size_t i = begin(target->rows().size()); i < end(target->rows().size()); ++i) {
    const GradientRow& row = target->rows()[i];
    if (row.has_nan) found.nan_in[0].push_back(row.parameter);
    const GradientRow* partner = golden->FindPartner(row, *target);
    if (partner == nullptr) {
      found.only_in[0].push_back(row.parameter);
      continue;
    }
    if (!SameShape(row.shape, partner->shape)) {
      found.errors.push_back(InvalidDump(folders.target)
                                 .Expected("shape {} of {} in step {}, as in the golden"_t(
                                     ShapeText(partner->shape), Excerpt(row.parameter, 200), step))
                                 .Found(ShapeText(row.shape)));
      continue;
    }
    const Result<Directions> a = target->Read(row), b = golden->Read(*partner);
    for (const Result<Directions>* side : {&a, &b})
      if (!side->ok()) found.errors.push_back(side->status());
    if (!a.ok() || !b.ok()) continue;
    found.cells.emplace_back(row.parameter, Similarity{.same = CountSame(*a, *b),
                                                       .count = a->count(),
                                                       .target_norm = row.norm,
                                                       .golden_norm = partner->norm,
                                                       .changed_parts = ChangedParts(row, *a, *b),
                                                       .epsilon = EpsilonOf(row, *partner)});
  }
  return found;
}

Message OnlyText(const Message& side, const Repeated& only) {
  const size_t others = only.parameters.size() - 1;
  if (others == 0)
    return "only the {} has a gradient of {} (in step {}); not compared"_t(side, only.parameter,
                                                                           only.step);
  if (others == 1)
    return "only the {} has a gradient of {} (in step {}) and of 1 other parameter; not compared"_t(
        side, only.parameter, only.step);
  return "only the {} has a gradient of {} (in step {}) and of {} other parameters; not compared"_t(
      side, only.parameter, only.step, others);
}

Message NanText(const Message& side, const Repeated& nan) {
  if (nan.times == 1)
    return "NaN in 1 gradient of the {}, first of {} in step {}; NaN counts as not positive"_t(
        side, nan.parameter, nan.step);
  return "NaN in {} gradients of the {}, first of {} in step {}; NaN counts as not positive"_t(
      nan.times, side, nan.parameter, nan.step);
}

// The sentences about a rank, of what its steps found one after another.
class Findings {
 public:
  void Add(const Found& found, int64_t step) {
    for (size_t side = 0; side < 2; ++side) {
      only_[side].Add(found.only_in[side], step);
      nan_[side].Add(found.nan_in[side], step);
    }
    for (const Status& error : found.errors)
      if (++errors_ <= kMostErrors) said_.errors.push_back(error.AsMessage());
  }
  RankFindings Finish(const RankFolders& folders) {
    const auto note = [&](std::vector<Message>* to, Message text) {
      to->push_back(Message::Joined({folders.label, std::move(text)}, ": "));
    };
    const Message sides[] = {"target"_t, "golden"_t};
    for (size_t side = 0; side < 2; ++side) {
      if (only_[side].times > 0) note(&said_.notes, OnlyText(sides[side], only_[side]));
      if (nan_[side].times > 0) note(&said_.notes, NanText(sides[side], nan_[side]));
    }
    if (errors_ > kMostErrors) note(&said_.errors, "{} more errors"_t(errors_ - kMostErrors));
    return std::move(said_);
  }

 private:
  RankFindings said_;
  Repeated only_[2], nan_[2];
  size_t errors_ = 0;
};

}  // namespace

RankFindings CompareRank(const RankFolders& folders, SimilarityTable* table,
                         const std::function<void()>& step_done) {
  ThreadPool& pool = ThreadPool::Default();
  const size_t steps = table->steps().size(), threads = pool.threads();
  // With few steps, several threads share the parameters of one.
  const size_t parts = steps == 0 || steps >= threads ? 1 : (2 * threads + steps - 1) / steps;
  const size_t at_once = std::max<size_t>(1, 4 * threads / parts);  // steps whose results wait
  Findings findings;
  std::mutex mutex;
  for (size_t first = 0; first < steps; first += at_once) {
    const size_t n = std::min(at_once, steps - first);
    std::vector<Found> found(n * parts);
    pool.ParallelFor(found.size(), [&](size_t i) {
      found[i] = CompareStep(folders, table->steps()[first + i / parts], i % parts, parts);
      if (i % parts != 0) return;
      const std::lock_guard<std::mutex> lock(mutex);
      step_done();
    });
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t step = first + i / parts;
      for (const auto& [parameter, cell] : found[i].cells)
        table->At(table->Row(parameter), step) = cell;
      findings.Add(found[i], table->steps()[step]);
    }
  }
  return findings.Finish(folders);
}

}  // namespace msprobe::gradients
