#include "engine/compare/report/terminal_words.h"

namespace msprobe::compare {

std::string_view ColorOf(RowVerdict verdict) {
  switch (verdict) {
    case RowVerdict::kEqual:
    case RowVerdict::kNoise:
      return kGreen;
    case RowVerdict::kDiffers:
      return kRed;
    case RowVerdict::kUnknown:
      return kYellow;
  }
  return "";
}

std::string_view Headline(RowVerdict verdict) {
  switch (verdict) {
    case RowVerdict::kEqual:
      return "EQUAL";
    case RowVerdict::kNoise:
      return "WITHIN ROUNDING";
    case RowVerdict::kDiffers:
      return "DIFFERS";
    case RowVerdict::kUnknown:
      return "UNKNOWN";
  }
  return "";
}

int Badness(RowVerdict verdict) {
  switch (verdict) {
    case RowVerdict::kEqual:
      return 0;
    case RowVerdict::kNoise:
      return 1;
    case RowVerdict::kUnknown:
      return 2;
    case RowVerdict::kDiffers:
      return 3;
  }
  return 0;
}

}  // namespace msprobe::compare
