// Reads any bytes as a user's thresholds file: the result is valid limits, or an error that names
// the file.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/compare/model/thresholds.h"
#include "fuzz/target.h"

FUZZ_TARGET(thresholds) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = msprobe::compare::ThresholdTable::Parse(text, "mine.yaml");
  if (!table.ok()) {
    if (table.status().code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
    if (table.status().message().find("mine.yaml") == std::string::npos) std::abort();
    return 0;
  }
  for (const char* api : {"Functional.softmax", "Torch.mm", ""}) {
    for (const char* dtype : {"torch.float16", "BFloat16", "torch.float32", ""}) {
      msprobe::compare::Thresholds scratch;
      const msprobe::compare::Thresholds& t = table->For(api, dtype, &scratch);
      for (const double limit : {t.rules26.input_thousandth, t.rules26.cosine_drop, t.rules8.cosine,
                                 t.highlight.max_abs_error, t.highlight.input_relative}) {
        if (!(limit >= 0) || std::isinf(limit)) std::abort();
      }
      const double scale = table->RoundingScale(api, msprobe::compare::RoundingOf(dtype));
      if (!(scale >= 0)) std::abort();
    }
  }
  return 0;
}
