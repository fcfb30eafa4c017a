// The numbers that verdicts are made with.
#pragma once

namespace msprobe {

struct Thresholds {
  // msprobe 26: Result and Err_message.
  struct Rules26 {
    double input_thousandth = 0.9, output_thousandth = 0.6;  // error: above, and then below
    double input_norm = 0.1, output_norm = 0.5;              // error: below, and then above
    double norm_factor = 10, norm_from_zero = 0.1;           // warning
    double input_cosine = 0.9, cosine_drop = 0.1;            // warning
  } rules26;
  // msprobe 1.0 and 8: Accuracy Reached or Not, Result.
  struct Rules8 {
    double cosine = 0.99, max_abs_error = 0.001;         // No: both are worse
    double worst_cosine = 0.9, worst_max_abs_error = 1;  // No: one of them is worse
    double statistics = 0.5;                             // Warning: a relative difference above
  } rules8;
  // msprobe 1.0 and 8: colors of rows.
  struct Highlight {
    double max_abs_error = 1e10;                                 // red
    double input_thousandth = 0.9, output_thousandth = 0.6;      // red: above, and then below
    double output_relative = 0.5;                                // red
    double order_of_magnitude = 10, order_from = 1;              // yellow
    double thousandth_drop = 0.1, cosine_drop = 0.1;             // yellow
    double output_relative_yellow = 0.1, input_relative = 0.01;  // yellow: above, and below
  } highlight;
};

}  // namespace msprobe
