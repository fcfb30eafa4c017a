// Limits for single APIs, found in the first steps of a run ("if_preheat"): an API whose results
// change with the noise, and agree with those of the CPU, gets a higher limit; one whose results do
// not agree with the CPU's gets a lower one, down to that of its dtype.
//
//   Calibration limits;
//   limits.Note("Functional.softmax", /*consistent=*/false, /*agrees_with_cpu=*/true, 1.004);
//   std::optional<double> limit = limits.Of("Functional.softmax");
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::stability {

class Calibration {
 public:
  // The limit so far; nullopt: no call of the API was noted.
  std::optional<double> Of(std::string_view api) const;
  // `consistent`: by the limit so far, kFirstLimit at the beginning. `least`: the limit of the
  // dtype.
  void Note(std::string_view api, bool consistent, bool agrees_with_cpu, double least);

 private:
  std::map<std::string, double, std::less<>> limits_;
};

}  // namespace msprobe::stability
