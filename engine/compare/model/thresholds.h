// The limits that verdicts are made with: those of thresholds.yaml, which is part of the program,
// and those that a user's file changes, for all rows or for the rows of one operation or dtype.
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
#include "engine/compare/model/rounding.h"
#include "engine/model/element_type.h"

namespace msprobe::compare {

// thresholds.yaml says what each limit means.
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
  // The shipped limits, changed by the text. Errors: kNotFound; kInvalidConfig with the line: no
  // YAML, a section or key that does not exist, a value that is no number of 0 or more, an override
  // that names neither operation nor dtype.
  static Result<ThresholdTable> Parse(std::string_view text, std::string_view path);
  static Result<ThresholdTable> Read(const std::string& path);

  // The limits of a row: `api` is Record::api, `dtype` is Leaf::dtype. The result may be *scratch.
  const Thresholds& For(std::string_view api, ElementType dtype, Thresholds* scratch) const {
    return overrides_.empty() ? base_ : Overridden(api, dtype, scratch);
  }
  const Thresholds& base() const { return base_; }
  const std::string& text() const { return text_; }  // that it was parsed from; "": the shipped one

  // How many roundings are explained for values of the API in this dtype, as `rounding` of the file
  // says it; in times of the shipped number. limits.h says what it is applied to.
  double RoundingScale(std::string_view api, const Rounding& r) const {
    return changes_rounding_ ? ChangedRounding(api, r) : 1;
  }

 private:
  friend class ThresholdReader;
  struct Override {
    std::string operation, dtype;                // "": any
    std::vector<std::pair<int, double>> values;  // index of a field, its value
    double rounding = -1;
    bool Fits(std::string_view api, std::string_view name) const;
  };
  const Thresholds& Overridden(std::string_view api, ElementType dtype, Thresholds* scratch) const;
  double ChangedRounding(std::string_view api, const Rounding& r) const;

  std::string text_;
  Thresholds base_;
  std::map<std::string, double, std::less<>> rounding_;
  std::vector<Override> overrides_;
  bool changes_rounding_ = false;
};

}  // namespace msprobe::compare
