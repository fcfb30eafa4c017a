// Parses entries for tests and fuzz targets from the text of a dump: `"name": {...}`.
#pragma once

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/formats/text/json.h"
#include "engine/model/entry.h"

namespace msprobe::test {

class EntryFromJson {
 public:
  // nullopt if `text` is not one member of a JSON object.
  static std::optional<Entry> Parse(std::string_view text) {
    const Result<formats::JsonValue> tree =
        formats::ParseJson("{" + std::string(text) + "}", "test");
    if (!tree.ok() || tree->members.size() != 1) return std::nullopt;
    EntryFromJson parser;
    parser.Members(tree->members.front().key, tree->members.front().value);
    return std::move(parser.entry_);
  }

 private:
  using Json = formats::JsonValue;

  void Members(std::string_view name, const Json& object) {
    entry_.Begin(name);
    for (const formats::JsonMember& member : object.members) {
      if (member.key == "stack") {
        entry_.stack = std::atoll(member.value.text.c_str());
      } else if (member.key == "exception") {
        entry_.exception = member.value.text;
      } else {
        Slot(member.key, member.value);
      }
    }
  }

  void Slot(std::string_view key, const Json& value) {
    const std::string_view category = key == "input_args"     ? "input"
                                      : key == "input_kwargs" ? "kwargs"
                                                              : key;
    using Container = Entry::Container;
    const bool is_object = value.kind == Json::Kind::kObject && value.Find("type") == nullptr;
    entry_.BeginSlot(key, category,
                     value.kind == Json::Kind::kArray ? Container::kList
                     : is_object                      ? Container::kDict
                                                      : Container::kNone);
    if (value.kind != Json::Kind::kArray && !is_object) Value(value);
    Elements(value, is_object);
    entry_.EndSlot();
  }

  void Elements(const Json& value, bool is_object) {
    for (const Json& item : value.items) Value(item);
    if (!is_object) return;
    for (const formats::JsonMember& member : value.members) {
      entry_.Key(member.key);
      Value(member.value);
    }
  }

  void Value(const Json& value) {
    const Json* type = value.Find("type");
    const Json* content = value.Find("value");
    if (value.kind == Json::Kind::kArray) {
      entry_.BeginList();
      Elements(value, false);
      entry_.EndContainer();
    } else if (value.kind != Json::Kind::kObject) {
      entry_.Null();
    } else if (type == nullptr || type->kind != Json::Kind::kString) {
      entry_.BeginDict();
      Elements(value, true);
      entry_.EndContainer();
    } else if (value.Find("dtype") != nullptr) {
      Tensor(value, &entry_.AddTensor());
    } else if (content == nullptr) {
      entry_.Null();
    } else {
      Plain(type->text, *content);
    }
  }

  void Plain(const std::string& type, const Json& content) {
    if (content.kind == Json::Kind::kBool) {
      entry_.Bool(type, content.boolean);
    } else if (content.kind == Json::Kind::kNumber) {
      entry_.Digits(type, content.text);
    } else if (content.kind == Json::Kind::kArray) {
      std::vector<std::optional<int64_t>> numbers;
      for (const Json& item : content.items) {
        numbers.push_back(item.kind == Json::Kind::kNumber
                              ? std::optional<int64_t>(std::atoll(item.text.c_str()))
                              : std::nullopt);
      }
      entry_.Ints(type, numbers);
    } else {
      entry_.String(type, content.text);
    }
  }

  static double Number(const Json* value) {
    return value == nullptr || value->kind != Json::Kind::kNumber
               ? std::nan("")
               : std::strtod(value->text.c_str(), nullptr);
  }

  static void Tensor(const Json& value, TensorValue* tensor) {
    tensor->type = value.Find("type")->text;
    tensor->dtype = value.Find("dtype")->text;
    tensor->element_type = DTypeFromTorchName(tensor->dtype).value_or(DType::kFloat32);
    int64_t count = 1;
    if (const Json* shape = value.Find("shape")) {
      for (const Json& extent : shape->items)
        tensor->shape.push_back(std::atoll(extent.text.c_str()));
    }
    for (const int64_t extent : tensor->shape) count *= extent == 0 ? 0 : 1;
    kernels::Stats& stats = tensor->stats;
    stats = kernels::Stats();
    stats.count = count;
    stats.max = Number(value.Find("Max")), stats.min = Number(value.Find("Min"));
    stats.mean = Number(value.Find("Mean")), stats.norm = Number(value.Find("Norm"));
    // Checks the range, because hostile text can have any number.
    const auto integer = [](double number) {
      return std::abs(number) < 1e18 ? static_cast<int64_t>(number) : 0;
    };
    stats.int_max = integer(stats.max), stats.int_min = integer(stats.min);
    tensor->with_statistics = value.Find("Max") != nullptr;
    tensor->with_fingerprint = false;
    tensor->numbers = TensorValue::Numbers::kHere;
    if (const Json* print = value.Find("fingerprint")) {
      stats.fingerprint = std::strtoull(print->text.c_str(), nullptr, 16);
      tensor->with_fingerprint = true;
    } else if (const Json* short_print = value.Find("fp")) {
      stats.fingerprint = ParseBase64(short_print->text).value_or(0);
      tensor->with_fingerprint = true;
    }
    if (const Json* checksum = value.Find("md5")) {
      const bool is_xor = checksum->text.starts_with("0x");
      stats.checksum = std::strtoull(checksum->text.c_str(), nullptr, 16);
      tensor->checksum = is_xor ? kernels::Checksum::kXor : kernels::Checksum::kCrc32;
    }
    if (const Json* file = value.Find("data_name")) tensor->file = file->text;
    if (const Json* grad = value.Find("requires_grad")) tensor->requires_grad = grad->boolean;
  }

  Entry entry_;
};

// Parses an entry that the test wrote itself, so the text must be valid.
inline Entry ParseEntry(std::string_view text) {
  std::optional<Entry> entry = EntryFromJson::Parse(text);
  if (!entry) std::abort();
  return std::move(*entry);
}

}  // namespace msprobe::test
