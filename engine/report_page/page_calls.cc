#include "engine/report_page/page_calls.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/dump/read/source_line.h"
#include "engine/model/names.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/source_text.h"

namespace msprobe::report_page {
namespace {

constexpr size_t kMostDepth = 64;  // of the module tree; deeper names stay whole

// How the page makes an entry's name from its parts; the direction is in the bits above.
enum Form : uint8_t { kNumberThenDirection, kDirectionThenNumber, kWholeName };
constexpr int kFormBits = 2;
constexpr std::string_view kDirections[] = {"forward", "backward", "parameters_grad", ""};

template <typename Texts>
std::string JsonList(const Texts& texts) {
  std::string json = "[";
  for (const auto& text : texts) {
    if (json.size() > 1) json += ',';
    AppendJsonString(&json, text);
  }
  return json + "]";
}

}  // namespace

uint32_t TextNumbers::Of(std::string_view text) {
  const auto [at, added] = numbers_.try_emplace(text, static_cast<uint32_t>(texts_.size()));
  if (added) texts_.push_back(text);
  return at->second;
}

uint32_t ModuleTree::Child(uint32_t parent, std::string_view label) {
  std::string key = std::to_string(parent) + '.';
  key += label;
  const auto [at, added] =
      children_.try_emplace(std::move(key), static_cast<uint32_t>(parents_.size()));
  if (added) {
    parents_.push_back(parent);
    labels_.emplace_back(label);
    classes_.emplace_back();
  }
  return at->second;
}

uint32_t ModuleTree::Of(std::string_view entry_name) {
  if (entry_name.empty()) return 0;
  const EntryName parsed = ParseEntryName(entry_name);
  const auto [at, added] = by_api_.try_emplace(parsed.api, 0);
  if (!added) return at->second;
  std::string_view path = parsed.api;
  for (const std::string_view prefix : {"Module.", "Cell."}) {
    if (path.starts_with(prefix)) path.remove_prefix(prefix.size());
  }
  if (path.size() == parsed.api.size()) return 0;  // the name of no module
  const size_t dot = path.rfind('.');
  const std::string_view kind = dot == path.npos ? path : path.substr(dot + 1);
  path = dot == path.npos ? std::string_view() : path.substr(0, dot);
  uint32_t node = 0;
  for (size_t depth = 0; !path.empty(); ++depth) {
    const size_t end = depth < kMostDepth ? path.find('.') : path.npos;
    node = Child(node, path.substr(0, end));
    path = end == path.npos ? std::string_view() : path.substr(end + 1);
  }
  if (classes_[node].empty()) classes_[node] = kind;
  return at->second = node;
}

uint32_t StackTexts::Of(const std::vector<std::string_view>* frames) {
  if (frames == nullptr || frames->empty()) return kNoNumber;
  const auto [at, added] = numbers_.try_emplace(frames, static_cast<uint32_t>(stacks_.size()));
  if (added) stacks_.push_back(frames);
  return at->second;
}

std::string StackTexts::Json() const {
  TextNumbers frames;
  std::string stacks;
  for (const auto* stack : stacks_) {
    stacks += stacks.empty() ? "[" : ",[";
    for (size_t i = 0; i < stack->size(); ++i) {
      if (i > 0) stacks += ',';
      AppendUnsigned(&stacks, frames.Of((*stack)[i]));
    }
    stacks += ']';
  }
  std::string json = "{\"frames\":[";
  SourceTexts sources;
  for (const std::string_view frame : frames.texts()) {
    if (json.back() != '[') json += ',';
    sources.AppendFrame(frame, &json);
  }
  json += "],\"stacks\":[" + stacks + "],\"places\":[";
  for (const auto* stack : stacks_) {
    const dump::SourcePlace place = dump::UserSourcePlace(*stack);
    json += stack == stacks_.front() ? "[" : ",[";
    AppendJsonString(&json, place.line);
    json += ',';
    AppendJsonString(&json, place.caller);
    json += ']';
  }
  return json + "]}";
}

CallColumns::Name CallColumns::Take(const Record& r) {
  const auto direction = static_cast<uint8_t>(r.direction);
  const std::string_view word = kDirections[direction];
  if (r.call >= 0 && r.call < kNoNumber && !word.empty()) {
    spelled_.assign(r.api.view());
    spelled_ += '.';
    ComposeEntryName(spelled_, r.call, word, r.is_module).swap(spelled_);
    if (r.name == spelled_) {
      const Form order = r.is_module ? kDirectionThenNumber : kNumberThenDirection;
      return {names.Of(r.api), static_cast<uint32_t>(r.call),
              static_cast<uint8_t>(order | direction << kFormBits)};
    }
  }
  return {names.Of(r.name), kNoNumber, static_cast<uint8_t>(kWholeName | direction << kFormBits)};
}

void CallColumns::Reserve(size_t calls) {
  for (std::vector<uint8_t>* column : {&call_class, &form, &sides}) column->reserve(calls);
  for (std::vector<uint32_t>* column : {&name, &number, &module, &stack, &dtype, &shape})
    column->reserve(calls);
  size.reserve(calls);
}

void CallColumns::Add(const Call& call) {
  const Name own = Take(*call.record);
  call_class.push_back(call.call_class);
  sides.push_back(static_cast<uint8_t>(call.sides));
  form.push_back(own.form);
  name.push_back(own.text);
  number.push_back(own.number);
  module.push_back(call.module);
  stack.push_back(call.stack);
  size.push_back(call.size);
  dtype.push_back(dtypes.Of(call.shown == nullptr ? "" : call.shown->dtype.view()));
  shape.push_back(shapes.Of(call.shown == nullptr ? "" : call.shown->shape.view()));
  const bool other = call.partner != nullptr && call.partner->name != call.record->name;
  if (!other && partner_name.empty()) return;
  const Name partner = other ? Take(*call.partner) : Name{kNoNumber, kNoNumber, 0};
  partner_form.resize(count() - 1, 0);
  partner_name.resize(count() - 1, kNoNumber);
  partner_number.resize(count() - 1, kNoNumber);
  partner_form.push_back(partner.form);
  partner_name.push_back(partner.text);
  partner_number.push_back(partner.number);
}

void CallColumns::AppendTo(std::string_view part, PageText* html) const {
  const auto id = [&](std::string_view column) {
    return std::string(part) + "-" + std::string(column);
  };
  AppendColumn<uint8_t>(id("class"), "u8", call_class, html);
  AppendColumn<uint8_t>(id("form"), "u8", form, html);
  AppendColumn<uint8_t>(id("sides"), "u8", sides, html);
  AppendColumn<uint32_t>(id("name"), "u32", name, html);
  AppendColumn<uint32_t>(id("number"), "u32", number, html);
  AppendColumn<uint32_t>(id("module"), "u32", module, html);
  AppendColumn<uint32_t>(id("stack"), "u32", stack, html);
  AppendColumn<uint32_t>(id("dtype"), "u32", dtype, html);
  AppendColumn<uint32_t>(id("shape"), "u32", shape, html);
  AppendColumn<float>(id("size"), "f32", size, html);
  if (!rewritten.empty()) AppendColumn<uint8_t>(id("rewritten"), "u8", rewritten, html);
  if (!region.empty()) AppendColumn<uint32_t>(id("region"), "u32", region, html);
  if (!partner_name.empty()) {
    AppendColumn<uint8_t>(id("partner-form"), "u8", partner_form, html);
    AppendColumn<uint32_t>(id("partner-name"), "u32", partner_name, html);
    AppendColumn<uint32_t>(id("partner-number"), "u32", partner_number, html);
  }
  AppendColumn<uint32_t>(id("module-parent"), "u32", modules.parents(), html);
  AppendText(id("texts"),
             "{\"names\":" + JsonList(names.texts()) + ",\"dtypes\":" + JsonList(dtypes.texts()) +
                 ",\"shapes\":" + JsonList(shapes.texts()) +
                 ",\"modules\":" + JsonList(modules.labels()) +
                 ",\"moduleClasses\":" + JsonList(modules.classes()) + "}",
             html);
  AppendText(id("stacks"), stacks.Json(), html);
}

}  // namespace msprobe::report_page
