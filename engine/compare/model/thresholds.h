// The numbers that verdicts are made with: thresholds.yaml, which is shipped, and what a user's
// file changes in it, for all rows or for those of an operation or a dtype.
//
//   MSPROBE_ASSIGN_OR_RETURN(ThresholdTable table, ThresholdTable::Read("mine.yaml"));
//   Thresholds scratch;
//   const Thresholds& t = table.For("Functional.softmax", "torch.float16", &scratch);
//   if (cosine < t.rules8.cosine) ...
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::compare {

// thresholds.yaml says what each of them is.
struct Thresholds {
  struct Rules26 {
    double input_thousandth, output_thousandth, input_norm, output_norm;
    double norm_factor, norm_from_zero, input_cosine, cosine_drop;
  } rules26{};
  struct Rules8 {
    double cosine, max_abs_error, worst_cosine, worst_max_abs_error, statistics;
  } rules8{};
  struct Highlight {
    double max_abs_error, input_thousandth, output_thousandth, output_relative;
    double order_from, order_of_magnitude, thousandth_drop, cosine_drop;
    double output_relative_yellow, input_relative;
  } highlight{};
};

class ThresholdTable {
 public:
  static const ThresholdTable& Shipped();
  // The shipped ones, changed by what the text says. Errors: kNotFound; kInvalidConfig with the
  // line: no YAML, a section or key there is none of, a value that is no number of 0 or more, an
  // override for nothing.
  static Result<ThresholdTable> Parse(std::string_view text, std::string_view path);
  static Result<ThresholdTable> Read(const std::string& path);

  // Of a row: `api` as Record::api, `dtype` as dumps spell it. The result may be *scratch.
  const Thresholds& For(std::string_view api, std::string_view dtype, Thresholds* scratch) const {
    return overrides_.empty() ? base_ : Overridden(api, dtype, scratch);
  }
  const Thresholds& base() const { return base_; }

  // Roundings that are explained for that dtype, where the user's file says so; else -1, and
  // rounding.h's table holds (the shipped file says the same).
  double Explained(std::string_view api, std::string_view dtype) const {
    return changes_rounding_ ? ChangedRounding(api, dtype) : -1;
  }

 private:
  friend class ThresholdReader;
  struct Override {
    std::string operation, dtype;                // "": any
    std::vector<std::pair<int, double>> values;  // index of a field, its value
    double rounding = -1;
    bool Fits(std::string_view api, std::string_view name) const;
  };
  const Thresholds& Overridden(std::string_view api, std::string_view dtype,
                               Thresholds* scratch) const;
  double ChangedRounding(std::string_view api, std::string_view dtype) const;

  Thresholds base_;
  std::map<std::string, double, std::less<>> rounding_;
  std::vector<Override> overrides_;
  bool changes_rounding_ = false;
};

}  // namespace msprobe::compare
