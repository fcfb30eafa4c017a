// What is recorded of a tensor besides its type, dtype and shape: "summary_mode".
//
//   SummaryMode summary;                                             // statistics, no checksum
//   MSPROBE_RETURN_IF_ERROR(ReadSummaryMode(place, value, &summary, &warnings));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config_values.h"
#include "engine/kernels/digest.h"

namespace msprobe::dump {

struct SummaryMode {
  bool statistics = true;  // Max, Min, Mean, Norm and the counts
  kernels::Checksum checksum = kernels::Checksum::kNone;

  bool operator==(const SummaryMode&) const = default;
};

// A word, or a list of words, of which each adds something. "md5" alone includes statistics, "xor"
// alone does not. A dump can hold only one of the two checksums: if both are listed, the CRC-32 is
// written, with a warning, because it depends on the order of the elements. "" and []: the default.
Status ReadSummaryMode(const ConfigPlace& place, const formats::JsonValue& value,
                       SummaryMode* summary, std::vector<Message>* warnings);

}  // namespace msprobe::dump
