// An entry as a line of dump.json. Keys, their order and the spelling of values are those of
// msprobe 26 (docs/reference/dump-format.md); our own keys come after them.
//
//   std::string line;
//   AppendEntryJson(&line, entry);   // "Functional.relu.0.forward": {"input_args":[{"type": ...}]}
#pragma once

#include <optional>
#include <string>

#include "engine/model/entry.h"

namespace msprobe::dump {

// Without separator and newline.
void AppendEntryJson(std::string* out, const Entry& entry);

// The JSON object of one tensor.
void AppendTensorJson(std::string* out, const TensorValue& tensor);

// Only the statistics of that object. They must be known: TensorValue::measured().
enum class Statistic : uint8_t { kMax, kMin, kMean, kNorm };
void AppendStatistic(std::string* out, const TensorValue& tensor, Statistic which);
// The number that a reader of that text has, where the text is a finite float; nullopt: it is null,
// an integer, a truth value, NaN or infinite.
std::optional<double> StatisticNumber(const TensorValue& tensor, Statistic which);
// A number or truth value, as an entry spells it: kBool, kInt, kFloat, kDigits.
void AppendNumber(std::string* out, const Entry& entry, const Entry::Value& value);
// "[2, 3]", as Python prints a list: readers take the text as it stands.
void AppendShape(std::string* out, std::span<const int64_t> shape);
// The checksum as text, the value of the member "md5"; appends nothing for Checksum::kNone.
void AppendChecksum(std::string* out, const TensorValue& tensor);

}  // namespace msprobe::dump
