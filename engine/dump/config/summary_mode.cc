#include "engine/dump/config/summary_mode.h"

#include <fmt/format.h>

#include <iterator>

namespace msprobe::dump {
namespace {

// The words from "max" on are MindSpore's. The name of a single statistic asks for all statistics;
// "hash" is the same as "md5".
constexpr std::string_view kWords[] = {"statistics",
                                       "md5",
                                       "xor",
                                       "max",
                                       "min",
                                       "mean",
                                       "l2norm",
                                       "count",
                                       "negative zero count",
                                       "positive zero count",
                                       "zero count",
                                       "nan count",
                                       "negative inf count",
                                       "positive inf count",
                                       "hash"};
constexpr Names kChecksums = {std::begin(kWords) + 1, 2};

}  // namespace

Status ReadSummaryMode(const ConfigPlace& place, const formats::JsonValue& value,
                       SummaryMode* summary, std::vector<Message>* warnings) {
  const Names one_word = {std::begin(kWords), 3};
  if (value.kind != formats::JsonValue::Kind::kArray) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(place, value, one_word, &word));
    if (word == "md5") summary->checksum = kernels::Checksum::kCrc32;
    if (word == "xor") *summary = {.statistics = false, .checksum = kernels::Checksum::kXor};
    return Status::Ok();
  }
  std::vector<std::string> words;
  MSPROBE_RETURN_IF_ERROR(ReadStrings(place, value, &words));
  bool crc32 = false, exclusive_or = false, others = words.empty();
  for (const std::string& word : words) {
    MSPROBE_RETURN_IF_ERROR(Choose(place, word, kWords));
    if (word == "xor") {
      exclusive_or = true;
    } else if (word == "md5" || word == "hash") {
      crc32 = true;
    } else {
      others = true;
    }
  }
  if (crc32 && exclusive_or) {
    warnings->push_back(
        "{}{} asks for {}: only md5 is written, because it depends on the order of elements"_t(
            place.Prefix(), Quoted(place.key), OneOf(kChecksums)));
  }
  summary->statistics = others || crc32;
  summary->checksum = crc32          ? kernels::Checksum::kCrc32
                      : exclusive_or ? kernels::Checksum::kXor
                                     : kernels::Checksum::kNone;
  return Status::Ok();
}

}  // namespace msprobe::dump
