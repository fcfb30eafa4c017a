// An entry as a line of dump.json. Keys, their order and the spelling of values are those of the
// earlier msprobe (docs/dump_format.md); ours come after them.
//
//   std::string line;
//   AppendEntryJson(&line, entry);   // "Functional.relu.0.forward": {"input_args":[{"type": ...}]}
#pragma once

#include <string>

#include "engine/model/entry.h"

namespace msprobe::dump {

// Without separator and newline.
void AppendEntryJson(std::string* out, const Entry& entry);

// A tensor's object, as it stands among the values of an entry.
void AppendTensorJson(std::string* out, const TensorValue& tensor);

// The numbers alone, as an entry spells them. They must be known: TensorValue::measured().
enum class Statistic : uint8_t { kMax, kMin, kMean, kNorm };
void AppendStatistic(std::string* out, const TensorValue& tensor, Statistic which);
// A number or truth value, as an entry spells it: kBool, kInt, kFloat, kDigits.
void AppendNumber(std::string* out, const Entry& entry, const Entry::Value& value);
// "[2, 3]", as Python prints a list: readers take the text as it stands.
void AppendShape(std::string* out, std::span<const int64_t> shape);
// What stands under "md5"; nothing when none was asked for.
void AppendChecksum(std::string* out, const TensorValue& tensor);

}  // namespace msprobe::dump
