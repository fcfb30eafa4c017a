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

Message CallLine(const Message& what, const CallCounts& c) {
  std::vector<Message> parts = {"{}: {} recorded"_t(what, c.recorded)};
  if (c.nested > 0) parts.push_back("{} inside those"_t(c.nested));
  if (c.ignored > 0) parts.push_back("{} left out by the configuration"_t(c.ignored));
  if (c.traced > 0) parts.push_back("{} traced by a compiler"_t(c.traced));
  if (c.wrappers > 0) parts.push_back("{} by wrappers of compiled code"_t(c.wrappers));
  return Message::Joined(std::move(parts), ", ");
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
                                         Text(coverage.why_not_counted.English()));
  json += "\"not_observed\": [";
  for (const Coverage::Operation& operation : coverage.not_observed) {
    json += fmt::format("{}\n  {{\"operation\": {}, \"count\": {}, \"reason\": {}}}",
                        &operation == coverage.not_observed.data() ? "" : ",", Text(operation.name),
                        operation.count, Text(operation.reason.English()));
  }
  json += "],\n\"apis_not_observed\": [";
  for (const Coverage::Api& api : coverage.apis_not_observed) {
    json += fmt::format("{}\n  {{\"api\": {}, \"reason\": {}}}",
                        &api == coverage.apis_not_observed.data() ? "" : ",", Text(api.name),
                        Text(api.reason.English()));
  }
  if (!coverage.modules_not_observed.empty()) {
    json += "],\n\"modules_not_observed\": [";
    for (const Coverage::Api& module : coverage.modules_not_observed) {
      json += fmt::format("{}\n  {{\"module\": {}, \"reason\": {}}}",
                          &module == coverage.modules_not_observed.data() ? "" : ",",
                          Text(module.name), Text(module.reason.English()));
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
  coverage.why_not_counted = Message::OfText(TextOf(root, "why_no_operations"));
  if (const formats::JsonValue* list = root.Find("not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items) {
      Coverage::Operation operation{.name = TextOf(item, "operation"),
                                    .reason = Message::OfText(TextOf(item, "reason"))};
      const CountReader read(&item);
      read("count", operation.count);
      coverage.not_observed.push_back(std::move(operation));
    }
  }
  if (const formats::JsonValue* list = root.Find("apis_not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.apis_not_observed.push_back(
          {TextOf(item, "api"), Message::OfText(TextOf(item, "reason"))});
  }
  if (const formats::JsonValue* list = root.Find("modules_not_observed"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.modules_not_observed.push_back(
          {TextOf(item, "module"), Message::OfText(TextOf(item, "reason"))});
  }
  if (const formats::JsonValue* list = root.Find("compiled"); list != nullptr) {
    for (const formats::JsonValue& item : list->items)
      coverage.compiled.push_back({TextOf(item, "module"), TextOf(item, "source_line")});
  }
  return coverage;
}

Message CoverageSentence(const Coverage& coverage) {
  std::vector<Message> counts;
  const auto add = [&](int64_t count, const Message& one, const Message::Format<1>& many) {
    if (count > 0) counts.push_back(count == 1 ? one : many(count));
  };
  add(coverage.apis.recorded, "1 API call"_t, "{} API calls"_t);
  add(coverage.modules.recorded, "1 module call"_t, "{} module calls"_t);
  add(coverage.saves, "1 saved value"_t, "{} saved values"_t);
  add(coverage.gradients, "1 gradient"_t, "{} gradients"_t);
  if (counts.empty()) counts.push_back("no call"_t);
  std::vector<Message> parts = {Message::Joined(std::move(counts), ", ")};
  const int64_t unseen = coverage.not_observed_count();
  if (unseen == 1) parts.push_back("1 operation was not observed, coverage.json names it"_t);
  if (unseen > 1)
    parts.push_back("{} operations were not observed, coverage.json lists them"_t(unseen));
  if (coverage.compiled_regions > 0)
    parts.push_back("values inside the kernels of compiled code are not recorded"_t);
  return Message::Joined(std::move(parts), "; ");
}

std::vector<Message> CoverageLines(const Coverage& coverage, size_t most) {
  std::vector<Message> lines;
  const auto add = [&](std::vector<Message> parts) {
    lines.push_back(Message::Joined(std::move(parts), ", "));
  };
  const auto if_any = [](int64_t count, const Message::Format<1>& text) {
    return count > 0 ? text(count) : Message();
  };
  const CallCounts &a = coverage.apis, &m = coverage.modules;
  if (a.recorded + a.ignored + a.traced + a.wrappers > 0)
    lines.push_back(CallLine("API calls"_t, a));
  if (m.recorded + m.ignored + m.traced > 0) lines.push_back(CallLine("module calls"_t, m));
  const int64_t saves = coverage.saves + coverage.saves_refused;
  if (saves > 0) {
    add({"saved values: {} recorded"_t(coverage.saves),
         if_any(coverage.saves_refused, "{} refused"_t)});
  }
  if (coverage.gradients + coverage.gradients_ignored + coverage.gradients_missing > 0) {
    add({"{}: {} recorded"_t(saves > 0 ? "gradients of saved values"_t : "gradients of calls"_t,
                             coverage.gradients),
         if_any(coverage.gradients_ignored, "{} left out by the configuration"_t),
         if_any(coverage.gradients_missing, "{} never came"_t)});
  }
  if (!coverage.counted) {
    if (!coverage.why_not_counted.empty())
      lines.push_back("operations: not counted, {}"_t(coverage.why_not_counted));
    return lines;
  }
  add({coverage.recorded > 0 ? "operations: {} recorded, {} more inside recorded calls"_t(
                                   coverage.recorded, coverage.nested)
                             : "operations: {} inside recorded calls"_t(coverage.nested),
       "{} of the backward pass"_t(coverage.gradient),
       if_any(coverage.ignored, "{} left out by the configuration"_t),
       "{} not observed"_t(coverage.not_observed_count())});
  for (const Coverage::Operation& operation : coverage.not_observed) {
    if (most-- == 0) {
      lines.push_back("  and others, see coverage.json"_t);
      break;
    }
    lines.push_back("  {} {}: {}"_t(operation.count, operation.name, operation.reason));
  }
  if (coverage.compiled_regions > 0) {
    lines.push_back(
        coverage.compiled_regions == 1
            ? "compiled code was entered 1 time: values inside its kernels are not recorded"_t
            : "compiled code was entered {} times: values inside its kernels are not recorded"_t(
                  coverage.compiled_regions));
  }
  return lines;
}

}  // namespace msprobe::dump
