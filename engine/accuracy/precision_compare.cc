#include "engine/accuracy/precision_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "engine/base/atomic_file.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/threads.h"

namespace msprobe::accuracy {
namespace {

constexpr std::string_view kUnsupported = "This data type does not support benchmark compare.";
constexpr std::array<std::string_view, kOlderResultColumns> kComparedResultTitles = {
    "API Name", "Forward Test Success", "Backward Test Success", "Message"};

// The verdicts of one direction of a call.
class Direction {
 public:
  void Add(Verdict v) {
    any_ = true;
    all_skipped_ = all_skipped_ && v == Verdict::kSkip;
    if (v != Verdict::kSkip) worst_ = std::max(worst_, v);
  }
  // A direction without outputs has no verdict.
  Verdict verdict() const {
    return !any_ ? Verdict::kBlank : all_skipped_ ? Verdict::kSkip : worst_;
  }

 private:
  bool any_ = false, all_skipped_ = true;
  Verdict worst_ = Verdict::kPass;
};

// Collects outputs into rows of the result file. The older tools make a row of the outputs of a
// call that stand one after the other; we make one of all outputs of a call.
class CallCollector {
 public:
  CallCollector(Rules rules, size_t outputs, PrecisionComparison* out) : rules_(rules), out_(out) {
    places_.reserve(old() ? 1 : outputs);
  }

  void Add(const OutputName& name, std::string_view dtype, Verdict verdict,
           std::string_view npu_message, std::string_view message) {
    Call& call = CallOf(name);
    call.unsupported = old() && IsLargeFloat(dtype);
    if (call.unsupported) return;
    if (name.direction == "forward") {
      call.forward.Add(verdict);
      call.skip_message = verdict == Verdict::kSkip ? npu_message : std::string_view();
    } else if (name.direction == "backward") {
      call.backward.Add(verdict);
    }
    if (verdict == Verdict::kSkip && call.message.empty()) call.message = message;
  }
  // A row that the older tools could not judge: a result row with the name of the output.
  void AddFailed(std::string_view name, std::string_view message) {
    Call call{.name = name, .message = std::string(message)};
    call.forward.Add(Verdict::kSkip);
    call.backward.Add(Verdict::kSkip);
    if (old()) {
      AddRow({std::string(name), Verdict::kSkip, Verdict::kSkip, std::string(message)});
    } else {
      calls_.push_back(std::move(call));
    }
  }
  void Finish() {
    for (const Call& call : calls_) {
      ComparedCall row{std::string(call.name), call.forward.verdict(), call.backward.verdict(), ""};
      const bool skips = row.forward == Verdict::kSkip || row.backward == Verdict::kSkip;
      if (call.unsupported) {
        row.forward = row.backward = Verdict::kSkip;
        row.message = kUnsupported;
      } else {
        if (row.forward == Verdict::kError && call.api == "topk" && rules_ != Rules::k1)
          row.message = kTopkHint;
        if (old() && rules_ != Rules::k1 && row.forward == Verdict::kSkip)
          row.message += call.skip_message;
        if (!old() && skips) row.message = call.message;
      }
      AddRow(std::move(row));
    }
    calls_.clear();
    places_.clear();
  }

 private:
  struct Call {
    std::string_view name, api;
    bool unsupported = false;
    Direction forward, backward;
    std::string skip_message, message;
  };
  bool old() const { return rules_ != Rules::kOurs; }
  Call& CallOf(const OutputName& name) {
    if (!calls_.empty() && calls_.back().name == name.call) return calls_.back();
    if (old()) Finish();
    const auto [place, is_new] = places_.emplace(name.call, calls_.size());
    if (is_new) calls_.push_back({.name = name.call, .api = name.api});
    return calls_[place->second];
  }
  void AddRow(ComparedCall call) {
    out_->result.AddRow(std::array<std::string_view, kOlderResultColumns>{
        call.name, SpelledVerdict(call.forward, rules_), SpelledVerdict(call.backward, rules_),
        call.message});
    const auto is = [&](Verdict v) { return call.forward == v || call.backward == v; };
    ++(is(Verdict::kError)     ? out_->errors
       : is(Verdict::kWarning) ? out_->warnings
       : is(Verdict::kPass)    ? out_->passes
                               : out_->skips);
    out_->calls.push_back(std::move(call));
  }

  Rules rules_;
  PrecisionComparison* out_;
  std::vector<Call> calls_;
  std::unordered_map<std::string_view, size_t> places_;  // of names in calls_
};

// Some rows of the details file.
class Part {
 public:
  explicit Part(const PrecisionOptions& options)
      : judge_(options.standards ? *options.standards : Standards::Shipped(), options.rules,
               options.decimals) {}

  void AddJudged(const DetailsTable& npu, size_t n, const DetailsTable& gpu, size_t g) {
    RowVerdict verdict = judge_.Judge(npu, n, gpu, g, &row_);
    AddRow(npu.cell(n, kApiName), std::move(verdict));
  }
  void AddUnjudged(std::string_view name, std::string_view message) {
    row_.fill(" ");
    row_[kComparedVerdict] = VerdictName(Verdict::kSkip);
    row_[kComparedMessage] = message;
    AddRow(name, {});
  }

  CheckCsv csv{/*with_mark=*/false};
  std::vector<ComparedOutput> outputs;

 private:
  void AddRow(std::string_view name, RowVerdict verdict) {
    row_[kComparedName] = name;
    csv.AddRow(row_);
    outputs.push_back({row_[kComparedName], std::move(verdict), row_[kComparedMessage]});
  }

  RowJudge judge_;
  ComparedRow row_;
};

class Joiner {
 public:
  Joiner(const DetailsTable& npu, const DetailsTable& gpu, const PrecisionOptions& options)
      : npu_(npu),
        gpu_(gpu),
        options_(options),
        rows_of_gpu_(npu.rows()),
        calls_(options.rules, npu.rows(), &out_) {}

  Result<PrecisionComparison> Run() {
    out_.details.AddRow(kComparedTitles);
    out_.result.AddRow(kComparedResultTitles);
    std::vector<bool> found(gpu_.rows());
    for (size_t n = 0; n < npu_.rows(); ++n) {
      const int64_t g = rows_of_gpu_[n] = gpu_.Find(npu_.cell(n, kApiName));
      if (g >= 0) found[static_cast<size_t>(g)] = true;
    }
    const auto common = std::count(found.begin(), found.end(), true);
    out_.only_npu = static_cast<int64_t>(npu_.rows()) - common;
    out_.only_gpu = static_cast<int64_t>(gpu_.rows()) - common;
    if (common == 0 && npu_.rows() + gpu_.rows() > 0) {
      return InvalidArgument("the two details files have no API Name in common"_t)
          .Hint(
              "both must come from one dump: msprobe run_ut -api_info dump.json on each device"_t);
    }
    JudgeRows();
    for (size_t g = 0; g < gpu_.rows(); ++g) {
      if (found[g]) continue;
      Part alone(options_);
      alone.AddUnjudged(gpu_.cell(g, kApiName), "not in the device's file (-npu)");
      Take(&alone, gpu_, g, /*alone=*/true);
    }
    calls_.Finish();
    return std::move(out_);
  }

 private:
  static constexpr size_t kRowsOfPart = 4096;

  // The rows of the device's file, in parallel; what they say of a call is put together in order.
  void JudgeRows() {
    std::vector<Part> parts((npu_.rows() + kRowsOfPart - 1) / kRowsOfPart, Part(options_));
    ThreadPool::Default().ParallelFor(parts.size(), [&](size_t p) {
      const size_t end = std::min((p + 1) * kRowsOfPart, npu_.rows());
      for (size_t n = p * kRowsOfPart; n < end; ++n) JudgeRow(n, &parts[p]);
    });
    out_.outputs.reserve(npu_.rows() + static_cast<size_t>(out_.only_gpu));
    for (size_t p = 0; p < parts.size(); ++p) Take(&parts[p], npu_, p * kRowsOfPart, false);
  }

  void JudgeRow(size_t n, Part* part) const {
    const int64_t g = rows_of_gpu_[n];
    const std::string_view name = npu_.cell(n, kApiName);
    if (ParseOutputName(name).call.empty()) {
      part->AddUnjudged(name, fmt::format("The API name {} is invalid.", name));
    } else if (g < 0) {
      part->AddUnjudged(name, "not in the reference's file (-gpu)");
    } else {
      part->AddJudged(npu_, n, gpu_, static_cast<size_t>(g));
    }
  }

  // The outputs of `part` are the rows of `table` from `row` on. `alone`: the device has none of
  // them.
  void Take(Part* part, const DetailsTable& table, size_t row, bool alone) {
    out_.details.AddRows(part->csv);
    for (ComparedOutput& output : part->outputs) {
      AddToCall(output, table, row, alone || rows_of_gpu_[row] < 0);
      ++row;
      out_.outputs.push_back(std::move(output));
    }
    part->outputs.clear();
  }

  void AddToCall(const ComparedOutput& output, const DetailsTable& table, size_t row, bool alone) {
    const std::string_view name = table.cell(row, kApiName);
    const OutputName parts = ParseOutputName(name);
    const bool old = options_.rules != Rules::kOurs;
    if (parts.call.empty() || output.verdict.failed || (alone && old)) {
      calls_.AddFailed(name, output.message);
    } else if (alone) {
      calls_.Add(parts, "", Verdict::kSkip, output.message, output.message);
    } else {
      calls_.Add(parts, table.cell(row, kDeviceDtype), output.verdict.verdict,
                 table.cell(row, kMessage), output.message);
    }
  }

  const DetailsTable& npu_;
  const DetailsTable& gpu_;
  const PrecisionOptions& options_;
  std::vector<int64_t> rows_of_gpu_;  // of each row of the device's file; -1: none
  PrecisionComparison out_;
  CallCollector calls_;
};

}  // namespace

Result<PrecisionComparison> ComparePrecision(const DetailsTable& npu, const DetailsTable& gpu,
                                             const PrecisionOptions& options) {
  return Joiner(npu, gpu, options).Run();
}

Status PrecisionComparison::Write(const std::string& folder, std::string_view time) const {
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const auto create = [&](std::string_view kind, const CheckCsv& csv) -> Result<AtomicFile> {
    MSPROBE_ASSIGN_OR_RETURN(
        AtomicFile file, AtomicFile::Create(JoinPath(
                             folder, fmt::format("api_precision_compare_{}_{}.csv", kind, time))));
    MSPROBE_RETURN_IF_ERROR(file.Write({csv.text()}));
    return file;
  };
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile details_file, create("details", details));
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile result_file, create("result", result));
  MSPROBE_RETURN_IF_ERROR(details_file.Commit());
  return result_file.Commit();
}

std::vector<const ComparedOutput*> PrecisionComparison::Worst(size_t most) const {
  std::vector<const ComparedOutput*> worst;
  for (const ComparedOutput& output : outputs) {
    const Verdict v = output.verdict.verdict;
    if (v == Verdict::kError || v == Verdict::kWarning) worst.push_back(&output);
  }
  std::stable_sort(worst.begin(), worst.end(), [](const auto* a, const auto* b) {
    const RowVerdict &x = a->verdict, &y = b->verdict;
    return x.verdict != y.verdict ? x.verdict > y.verdict : x.worst_ratio > y.worst_ratio;
  });
  if (worst.size() > most) worst.resize(most);
  return worst;
}

}  // namespace msprobe::accuracy
