// The verdict on one output of a call: its metrics on the device beside those on the reference
// device.
//
//   RowJudge judge(standards, Rules::kOurs, 14);
//   ComparedRow row;                                     // reused from row to row
//   const RowVerdict v = judge.Judge(npu, 3, gpu, 7, &row);   // row[kRmseRatio], ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/accuracy/columns.h"
#include "engine/accuracy/details_table.h"
#include "engine/accuracy/standards.h"
#include "engine/base/messages/message.h"

namespace msprobe::accuracy {

// "Torch.fft.rfft.0.backward.output.1": api "fft.rfft", call "Torch.fft.rfft.0", direction
// "backward". Six parts, or seven where the API's name has two. Empty when the name has another
// form.
struct OutputName {
  std::string_view call, direction;
  std::string_view api;
};
OutputName ParseOutputName(std::string_view name);

// As the files of these rules spell it: msprobe 1.0 and 8 write "Warning".
std::string_view SpelledVerdict(Verdict verdict, Rules rules);

// Why topk may differ without an error: NPUs ignore sorted=False.
inline constexpr std::string_view kTopkHint =
    "在npu上，topk的入参sorted=False时不生效，会返回有序tensor，而cpu上会返回无序tensor。 "
    "如果topk精度不达标，请检查是否是该原因导致的。";

struct RowVerdict {
  Verdict verdict = Verdict::kSkip;
  Standard standard = Standard::kNone;
  double worst_ratio = 0;  // of the benchmark metrics that are judged; 0: none
  Message reason;          // of errors and warnings; empty: see the message
  bool failed = false;     // the older tools could not judge the row: a metric is missing
};

class RowJudge {
 public:
  RowJudge(const Standards& standards, Rules rules, int decimals)
      : standards_(standards), rules_(rules), decimals_(decimals) {}

  // Fills `row`, without the name. `row_of_gpu` is the row of the same name.
  RowVerdict Judge(const DetailsTable& npu, size_t row_of_npu, const DetailsTable& gpu,
                   size_t row_of_gpu, ComparedRow* row);

 private:
  struct Sides {
    const DetailsTable& npu;
    size_t n;
    const DetailsTable& gpu;
    size_t g;
  };
  struct Ratio {
    double value = 0;
    bool consistent = true;
  };
  std::string Spell(double value) const;
  bool old() const { return rules_ != Rules::kOurs; }
  std::string_view NameOf(Verdict verdict) const;
  Standard ChosenFor(const Sides& sides, std::string_view api) const;
  // The first metric of the standard that is blank on a side; kDetailsColumns: none.
  DetailsColumn Missing(const Sides& sides, Standard standard, bool* on_npu) const;
  Ratio RatioOf(const Sides& sides, DetailsColumn column, double floor, std::string* message) const;
  double Metric(const DetailsTable& table, size_t row, DetailsColumn column) const;

  RowVerdict JudgeBy(const Sides& sides, Standard standard, std::string_view api, ComparedRow* row);
  void Benchmark(const Sides& sides, std::string_view api, ComparedRow* row, RowVerdict* result);
  void Failures(const Sides& sides, bool balanced, ComparedRow* row, RowVerdict* result);
  void Ulp(const Sides& sides, ComparedRow* row, RowVerdict* result);
  double RmseFloor(const Sides& sides, double floor) const;

  const Standards& standards_;
  Rules rules_;
  int decimals_;
};

}  // namespace msprobe::accuracy
