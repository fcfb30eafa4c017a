#include "engine/live/first_rank.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <tuple>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::live {
namespace {

constexpr std::string_view kStem = "first_divergence.rank", kSuffix = ".json";
constexpr uint64_t kLargest = 1 << 20;

std::string FileOf(const std::string& dump_path, std::optional<int> rank) {
  return JoinPath(dump_path,
                  fmt::format("{}{}{}", kStem, rank ? std::to_string(*rank) : "", kSuffix));
}

// What another rank has told.
struct Told {
  std::string rank, step, call, name;
};

std::optional<Told> ReadTold(const std::string& file) {
  const Result<MappedFile> mapped = MappedFile::Open(file);
  if (!mapped.ok() || mapped->bytes().size() > kLargest) return std::nullopt;
  const Result<formats::JsonValue> root = formats::ParseJson(mapped->bytes(), file);
  if (!root.ok() || root->kind != formats::JsonValue::Kind::kObject) return std::nullopt;
  Told told;
  for (const auto& [key, text] : {std::pair{"rank", &told.rank}, std::pair{"step", &told.step},
                                  std::pair{"call", &told.call}, std::pair{"name", &told.name}}) {
    const formats::JsonValue* value = root->Find(key);
    if (value == nullptr) return std::nullopt;
    *text = value->text;
  }
  return told;
}

}  // namespace

void ForgetDivergence(const std::string& dump_path, std::optional<int> rank) {
  std::error_code error;  // the file need not exist
  std::filesystem::remove(FileOf(dump_path, rank), error);
}

Status TellOthers(const std::string& dump_path, std::optional<int> rank, const Answer& answer) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::string text =
      fmt::format(R"({{"rank": "{}", "step": "{}", "call": "{}", "time": "{:%FT%TZ}")",
                  rank ? std::to_string(*rank) : "", answer.step, answer.call, now);
  const std::pair<std::string_view, std::string> members[] = {{"name", answer.name},
                                                              {"module", answer.module},
                                                              {"source", answer.source_line},
                                                              {"golden", answer.golden_line},
                                                              {"why", answer.why.English()}};
  for (const auto& [key, value] : members) {
    text += fmt::format(", \"{}\": ", key);
    AppendJsonString(&text, value);
  }
  return WriteFileAtomically(FileOf(dump_path, rank), text + "}\n");
}

Message WhoWasFirst(const std::string& dump_path, std::optional<int> rank, const Answer& answer) {
  if (!rank) return {};
  const std::string own = BaseName(FileOf(dump_path, rank));
  std::optional<Told> first;
  const auto place = [](const Told& told) {
    return std::tuple(std::strtoll(told.step.c_str(), nullptr, 10),
                      std::strtoll(told.call.c_str(), nullptr, 10));
  };
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(dump_path, error)) {
    const std::string name = item.path().filename().string();
    if (!name.starts_with(kStem) || !name.ends_with(kSuffix) || name == own) continue;
    std::optional<Told> told = ReadTold(item.path().string());
    if (told && (!first || place(*told) < place(*first))) first = std::move(told);
  }
  if (!first) return {};
  const std::tuple<long long, long long> here{answer.step, answer.call};
  if (place(*first) > here)
    return "rank {} is the first so far: rank {} differs later, at step {}, {}"_t(
        *rank, first->rank, first->step, first->name);
  if (place(*first) < here)
    return "rank {} differs earlier: step {}, {}"_t(first->rank, first->step, first->name);
  return "rank {} differs at the same call: step {}, {}"_t(first->rank, first->step, first->name);
}

}  // namespace msprobe::live
