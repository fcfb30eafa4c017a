#include "engine/dump/write/coverage.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {
namespace {

constexpr char kSchema[] = "msprobe.coverage/1";

// The numbers of a Coverage with their names in the file, used for writing and for reading.
template <typename C, typename Visit>
void ForEachOperationCount(C& c, Visit&& visit) {
  visit("recorded", c.recorded);
  visit("nested", c.nested);
  visit("gradient", c.gradient);
  visit("ignored", c.ignored);
  visit("compiled_regions", c.compiled_regions);
}
template <typename C, typename Visit>
void ForEachCallCount(C& c, Visit&& visit) {
  visit("recorded", c.recorded);
  visit("nested", c.nested);
  visit("ignored", c.ignored);
  visit("traced", c.traced);
  visit("wrappers", c.wrappers);
}
template <typename C, typename Visit>
void ForEachGradientCount(C& c, Visit&& visit) {
  visit("recorded", c.gradients);
  visit("ignored", c.gradients_ignored);
  visit("missing", c.gradients_missing);
}
template <typename C, typename Visit>
void ForEachSavedRead(C& c, Visit&& visit) {
  visit("tensors", c.reads_saved);
  visit("bytes", c.bytes_saved);
}
template <typename C, typename Visit>
void ForEachWait(C& c, Visit&& visit) {
  visit("memory", c.waits_for_memory);
  visit("copies", c.waits_for_copies);
}
template <typename C, typename Visit>
void ForEachSaveCount(C& c, Visit&& visit) {
  visit("recorded", c.saves);
  visit("refused", c.saves_refused);
}

// {"recorded": 3, ...}
class Counts {
 public:
  void operator()(std::string_view name, int64_t count) {
    text_ += fmt::format("{}\"{}\": {}", text_.empty() ? "" : ", ", name, count);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string Text(std::string_view value) {
  std::string json;
  AppendJsonString(&json, value);
  return json;
}

class CountReader {
 public:
  explicit CountReader(const formats::JsonValue* object) : object_(object) {}
  void operator()(std::string_view name, int64_t& count) const {
    const formats::JsonValue* value = object_ != nullptr ? object_->Find(name) : nullptr;
    if (value != nullptr && value->kind == formats::JsonValue::Kind::kNumber)
      count = std::strtoll(value->text.c_str(), nullptr, 10);
  }

 private:
  const formats::JsonValue* object_;
};

std::string TextOf(const formats::JsonValue& object, std::string_view name) {
  const formats::JsonValue* value = object.Find(name);
  return value != nullptr && value->kind == formats::JsonValue::Kind::kString ? value->text
                                                                              : std::string();
}

std::string CallLine(std::string_view what, const CallCounts& c) {
  std::string line = fmt::format("{}: {} recorded", what, c.recorded);
  if (c.nested > 0) line += fmt::format(", {} inside those", c.nested);
  if (c.ignored > 0) line += fmt::format(", {} left out by the configuration", c.ignored);
  if (c.traced > 0) line += fmt::format(", {} traced by a compiler", c.traced);
  if (c.wrappers > 0) line += fmt::format(", {} by wrappers of compiled code", c.wrappers);
  return line;
}

}  // namespace

int64_t Coverage::not_observed_count() const {
  int64_t sum = 0;
  for (const Operation& operation : not_observed) sum += operation.count;
  return sum;
}

std::string CoverageJson(const Coverage& coverage) {
  Counts apis, modules, gradients, reads, waits, saves, operations;
  ForEachCallCount(coverage.apis, apis);
  ForEachCallCount(coverage.modules, modules);
  ForEachGradientCount(coverage, gradients);
  ForEachSavedRead(coverage, reads);
  ForEachWait(coverage, waits);
  ForEachSaveCount(coverage, saves);
  ForEachOperationCount(coverage, operations);
  std::string json = fmt::format(
      "{{\n\"schema\": \"{}\",\n\"apis\": {{{}}},\n\"modules\": {{{}}},\n\"gradients\": {{{}}},\n",
      kSchema, apis.text(), modules.text(), gradients.text());
  if (coverage.reads_saved > 0) json += fmt::format("\"reads_saved\": {{{}}},\n", reads.text());
  if (coverage.waits_for_memory + coverage.waits_for_copies > 0)
    json += fmt::format("\"device_waits\": {{{}}},\n", waits.text());
  if (coverage.saves + coverage.saves_refused > 0)
    json += fmt::format("\"saves\": {{{}}},\n", saves.text());
  json += coverage.counted ? fmt::format("\"operations\": {{{}, \"not_observed\": {}}},\n",
                                         operations.text(), coverage.not_observed_count())
                           : fmt::format("\"operations\": null,\n\"why_no_operations\": {},\n",
                                         Text(coverage.why_not_counted));
  json += "\"not_observed\": [";
  for (const Coverage::Operation& operation : coverage.not_observed) {
    json += fmt::format("{}\n  {{\"operation\": {}, \"count\": {}, \"reason\": {}}}",
                        &operation == coverage.not_observed.data() ? "" : ",", Text(operation.name),
                        operation.count, Text(operation.reason));
  }
  json += "],\n\"apis_not_observed\": [";
  for (const Coverage::Api& api : coverage.apis_not_observed) {
    json += fmt::format("{}\n  {{\"api\": {}, \"reason\": {}}}",
                        &api == coverage.apis_not_observed.data() ? "" : ",", Text(api.name),
                        Text(api.reason));
  }
  if (!coverage.modules_not_observed.empty()) {
    json += "],\n\"modules_not_observed\": [";
    for (const Coverage::Api& module : coverage.modules_not_observed) {
      json += fmt::format("{}\n  {{\"module\": {}, \"reason\": {}}}",
                          &module == coverage.modules_not_observed.data() ? "" : ",",
                          Text(module.name), Text(module.reason));
    }
  }
  if (!coverage.compiled.empty()) {
    json += "],\n\"compiled\": [";
    for (const Coverage::Compiled& code : coverage.compiled) {
      json += fmt::format("{}\n  {{\"module\": {}, \"source_line\": {}}}",
                          &code == coverage.compiled.data() ? "" : ",", Text(code.module),
                          Text(code.line));
    }
  }
  return json + "]\n}\n";
}

Result<Coverage> ReadCoverage(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue root, formats::ParseJson(file.bytes(), path));
  Coverage coverage;
  ForEachCallCount(coverage.apis, CountReader(root.Find("apis")));
  ForEachCallCount(coverage.modules, CountReader(root.Find("modules")));
  ForEachGradientCount(coverage, CountReader(root.Find("gradients")));
  ForEachSavedRead(coverage, CountReader(root.Find("reads_saved")));
  ForEachWait(coverage, CountReader(root.Find("device_waits")));
  ForEachSaveCount(coverage, CountReader(root.Find("saves")));
  const formats::JsonValue* operations = root.Find("operations");
  coverage.counted = operations != nullptr && operations->kind == formats::JsonValue::Kind::kObject;
  ForEachOperationCount(coverage, CountReader(operations));
  coverage.why_not_counted = TextOf(root, "why_no_operations");
  if (const formats::JsonValue* list = root.Find("not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items) {
      Coverage::Operation operation{.name = TextOf(item, "operation"),
                                    .reason = TextOf(item, "reason")};
      const CountReader read(&item);
      read("count", operation.count);
      coverage.not_observed.push_back(std::move(operation));
    }
  }
  if (const formats::JsonValue* list = root.Find("apis_not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.apis_not_observed.push_back({TextOf(item, "api"), TextOf(item, "reason")});
  }
  if (const formats::JsonValue* list = root.Find("modules_not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.modules_not_observed.push_back({TextOf(item, "module"), TextOf(item, "reason")});
  }
  if (const formats::JsonValue* list = root.Find("compiled"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.compiled.push_back({TextOf(item, "module"), TextOf(item, "source_line")});
  }
  return coverage;
}

std::string CoverageSentence(const Coverage& coverage) {
  std::string text;
  const auto add = [&](int64_t count, std::string_view one, std::string_view many) {
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? one : many);
  };
  add(coverage.apis.recorded, "API call", "API calls");
  add(coverage.modules.recorded, "module call", "module calls");
  add(coverage.saves, "saved value", "saved values");
  add(coverage.gradients, "gradient", "gradients");
  if (text.empty()) text = "no call";
  if (const int64_t unseen = coverage.not_observed_count(); unseen > 0) {
    text += unseen == 1 ? "; 1 operation was not observed, coverage.json names it"
                        : fmt::format("; {} operations were not observed, coverage.json lists them",
                                      unseen);
  }
  if (coverage.compiled_regions > 0)
    text += "; values inside the kernels of compiled code are not recorded";
  return text;
}

std::vector<std::string> CoverageLines(const Coverage& coverage, size_t most) {
  std::vector<std::string> lines;
  const CallCounts &a = coverage.apis, &m = coverage.modules;
  if (a.recorded + a.ignored + a.traced + a.wrappers > 0) lines.push_back(CallLine("API calls", a));
  if (m.recorded + m.ignored + m.traced > 0) lines.push_back(CallLine("module calls", m));
  const int64_t saves = coverage.saves + coverage.saves_refused;
  if (saves > 0) {
    lines.push_back(fmt::format("saved values: {} recorded", coverage.saves));
    if (coverage.saves_refused > 0)
      lines.back() += fmt::format(", {} refused", coverage.saves_refused);
  }
  if (coverage.gradients + coverage.gradients_ignored + coverage.gradients_missing > 0) {
    lines.push_back(fmt::format("{}: {} recorded",
                                saves > 0 ? "gradients of saved values" : "gradients of calls",
                                coverage.gradients));
    if (coverage.gradients_ignored > 0)
      lines.back() += fmt::format(", {} left out by the configuration", coverage.gradients_ignored);
    if (coverage.gradients_missing > 0)
      lines.back() += fmt::format(", {} never came", coverage.gradients_missing);
  }
  if (!coverage.counted) {
    if (!coverage.why_not_counted.empty())
      lines.push_back("operations: not counted, " + coverage.why_not_counted);
    return lines;
  }
  const int64_t unseen = coverage.not_observed_count();
  lines.push_back(fmt::format(
      "operations: {} inside recorded calls, {} of the backward pass{}, {} not observed",
      coverage.recorded > 0
          ? fmt::format("{} recorded, {} more", coverage.recorded, coverage.nested)
          : fmt::format("{}", coverage.nested),
      coverage.gradient,
      coverage.ignored > 0 ? fmt::format(", {} left out by the configuration", coverage.ignored)
                           : "",
      unseen));
  for (const Coverage::Operation& operation : coverage.not_observed) {
    if (most-- == 0) {
      lines.push_back("  and others, see coverage.json");
      break;
    }
    lines.push_back(fmt::format("  {} {}: {}", operation.count, operation.name, operation.reason));
  }
  if (coverage.compiled_regions > 0) {
    lines.push_back(fmt::format(
        "compiled code was entered {} time{}: values inside its kernels are not recorded",
        coverage.compiled_regions, coverage.compiled_regions == 1 ? "" : "s"));
  }
  return lines;
}

}  // namespace msprobe::dump
