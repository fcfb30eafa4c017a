#include "engine/accuracy/check_config.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe::accuracy {
namespace {

using formats::JsonValue;
using Kind = JsonValue::Kind;

constexpr int kMostDecimals = 20;

class SectionReader {
 public:
  SectionReader(const std::string& path, CheckConfig* config) : path_(path), config_(*config) {}

  Status Read(const JsonValue& section) {
    if (section.kind != Kind::kObject) return Wrong(section, "an object"_t);
    for (const formats::JsonMember& member : section.members)
      MSPROBE_RETURN_IF_ERROR(ReadMember(member.key, member.value));
    return Status::Ok();
  }

 private:
  Status ReadMember(const std::string& key, const JsonValue& value) {
    if (key == "white_list") return ReadNames(key, value, &config_.white_list);
    if (key == "black_list") return ReadNames(key, value, &config_.black_list);
    if (key == "quantization_api_list")
      return ReadNames(key, value, &config_.quantization_api_list);
    if (key == "error_data_path") {
      if (value.kind != Kind::kString) return Wrong(value, "a folder as \"error_data_path\""_t);
      config_.error_data_path = value.text;
      return Status::Ok();
    }
    if (key == "precision") return ReadPrecision(value);
    if (key == "is_online") {
      if (value.kind == Kind::kBool && !value.boolean) return Status::Ok();
      return Wrong(value,
                   "\"is_online\" to be false: record a dump, and check it on each machine"_t);
    }
    // Keys of the pre-check over a network; without "is_online" they mean nothing.
    for (const std::string_view known : {"nfs_path", "host", "port", "rank_list", "tls_path"}) {
      if (key == known) return Status::Ok();
    }
    return Wrong(value,
                 "one of the keys white_list, black_list, error_data_path, precision and "
                 "quantization_api_list"_t,
                 key);
  }

  Status ReadNames(const std::string& key, const JsonValue& value, CheckConfig::Names* names) {
    if (value.kind != Kind::kArray) return Wrong(value, "a list as \"{}\""_t(key));
    for (const JsonValue& name : value.items) {
      if (name.kind != Kind::kString) return Wrong(name, "names of APIs in \"{}\""_t(key));
      names->insert(name.text);
    }
    return Status::Ok();
  }

  Status ReadPrecision(const JsonValue& value) {
    int number = -1;
    const char* end = value.text.data() + value.text.size();
    const bool whole =
        value.kind == Kind::kNumber && std::from_chars(value.text.data(), end, number).ptr == end;
    if (!whole || number < 0 || number > kMostDecimals)
      return Wrong(value, "0 to {} decimals as \"precision\""_t(kMostDecimals));
    config_.precision = number;
    return Status::Ok();
  }

  Status Wrong(const JsonValue& value, Message expected, const std::string& found = "") const {
    return Status(ErrorCode::kInvalidConfig)
        .At(fmt::format("{}:{}", path_, value.line))
        .Expected(std::move(expected))
        .Found(found.empty() ? value.Describe() : Excerpt(found));
  }

  const std::string& path_;
  CheckConfig& config_;
};

}  // namespace

Result<CheckConfig> ReadCheckConfig(const std::string& path) {
  CheckConfig config;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const JsonValue root, formats::ParseJson(file.bytes(), path));
  for (const char* name : {"run_ut", "acc_check"}) {
    if (const JsonValue* section = root.Find(name))
      MSPROBE_RETURN_IF_ERROR(SectionReader(path, &config).Read(*section));
  }
  return config;
}

}  // namespace msprobe::accuracy
