#include "capture/found_calls.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace msprobe::capture {

void FoundCalls::Count(std::string_view what, int64_t limit, std::string_view kind, int64_t site) {
  ++found_;
  Log(LogLevel::kWarning,
      fmt::format("{} ({}{}){}", what, found_, limit > 0 ? fmt::format(" of {}", limit) : "",
                  recording_->WhereIs(site)));
  if (found_ != limit) return;
  complete_();
  recording_->session->Conclude(fmt::format("{} calls that {} are recorded", found_, kind));
}

}  // namespace msprobe::capture
