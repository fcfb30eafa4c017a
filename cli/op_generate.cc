#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "engine/accuracy/standards.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/formats/text/json.h"
#include "engine/replay/find_call.h"
#include "engine/replay/reproducer.h"

namespace msprobe::cli {
namespace {

using formats::JsonCursor;
using formats::JsonText;
using formats::JsonValue;

// The limits of the verdict, as the script writes them.
std::string Limits() {
  const accuracy::FirstCheckLimits& limits = accuracy::Standards::Shipped().first_check();
  const auto number = [](double value) {
    std::string text;
    AppendPythonFloat(&text, value);
    return text;
  };
  return fmt::format(
      "{{\n    'cosine': {},\n    'max_abs_error': {},\n    'hundredth_share': {},\n"
      "    'thousandth_share': {},\n    'ten_thousandth_share': {},\n"
      "    'bfloat16_epsilon': {},\n"
      "    'half_max_error': {{'float16': {}, 'bfloat16': {}}},\n"
      "    'input_rounding': {{'float16': {}, 'bfloat16': {}}}, 'input_rounding_of_others': {},\n"
      "    'input_rounding_bound': {},\n}}",
      number(limits.cosine), number(limits.max_abs_error), number(limits.hundredth_share),
      number(limits.thousandth_share), number(limits.ten_thousandth_share),
      number(limits.bfloat16_epsilon), number(limits.half_max_error.float16),
      number(limits.half_max_error.bfloat16), number(limits.input_rounding.float16),
      number(limits.input_rounding.bfloat16), number(limits.input_rounding.float32),
      number(limits.input_rounding_bound));
}

std::string DumpFile(const std::string& path) {
  return IsDirectory(path) ? JoinPath(path, "dump.json") : path;
}

// A dump.json that has the entries of one call alone, in the words of the whole one.
Result<std::string> ExtractCall(const std::string& path, const std::string& call) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  JsonCursor json(file.bytes());
  std::string head, entries;
  JsonText key;
  std::string_view raw;
  for (json.BeginObject(); json.NextKey(&key);) {
    if (key != "data") {
      if (json.Raw(&raw)) head += fmt::format("\"{}\": {}, ", key.raw, raw);
      continue;
    }
    for (json.BeginObject(); json.NextKey(&key);) {
      const bool wanted = key == call + ".forward" || key == call + ".backward";
      if (!json.Raw(&raw)) break;
      if (wanted)
        entries += fmt::format("{}\n\"{}\": {}", entries.empty() ? "" : ",", key.raw, raw);
    }
  }
  if (json.failed() && !json.truncated()) return json.Error(path);
  return fmt::format("{{{}\"data\": {{{}\n}}}}\n", head, entries);
}

class OpGenerate : public Verb {
 public:
  std::string_view name() const override { return "op_generate"; }
  Message summary() const override {
    return "write a script that executes one recorded call again; it needs PyTorch alone"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("-i,--input", &input_,
              "dump.json, or a folder with one; or config_op.json of msprobe 8"_t)
        .TypeName("PATH")
        .Required();
    name_ =
        flags
            .Text("--api_name", &api_,
                  "the call: Functional.linear.3, a part of such a name, or a line: model.py:41"_t)
            .Usual();
    flags.Text("-o,--output_path", &output_, "folder for the script and its data"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    propagation_ = flags
                       .Text("--propagation", &direction_,
                             "forward: without gradients. Default: backward where recorded"_t)
                       .OneOf({"forward", "backward"});
    mode_ = flags
                .Text("--data_mode", &data_,
                      "real_data: stored tensors; random_data: elements from the recorded "
                      "statistics. Default: stored where there are some"_t)
                .OneOf({"real_data", "random_data"});
    seeded_ = flags.Number("--seed", &seed_, "of elements that are made"_t).ShowDefault();
    repeated_ = flags.Number("--iter_times", &iterations_, "executions on the device, 1 to 1000"_t)
                    .ShowDefault();
    extracted_ = flags
                     .Text("--extract_api_path", &extract_,
                           "also write the entries of the call, as a dump.json of their own"_t)
                     .TypeName("FILE");
  }

  Result<int> Run(Console& out) override {
    MSPROBE_RETURN_IF_ERROR(ReadConfig());
    if (api_.empty()) {
      return InvalidArgument("-api (--api_name) is required: the call"_t)
          .Hint(fmt::format("msprobe op_generate -i {} -api Functional.linear.3", input_));
    }
    for (const std::string_view direction : {".forward", ".backward"}) {
      if (!api_.ends_with(direction)) continue;
      api_.resize(api_.size() - direction.size());
      if (direction_.empty()) direction_ = direction.substr(1);
    }
    if (iterations_ < 1 || iterations_ > 1000)
      return InvalidArgument()
          .Expected("--iter_times from 1 to 1000"_t)
          .Found(std::to_string(iterations_));
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(input_));
    const std::vector<replay::RecordedCall> calls = replay::CallsOf(dump, {});
    MSPROBE_ASSIGN_OR_RETURN(const size_t found, replay::FindCall(dump, calls, api_, input_));
    const replay::RecordedCall& call = calls[found];
    if (direction_ == "backward" && call.backward < 0) {
      return InvalidArgument("{} has no backward entry"_t(call.name))
          .Hint(std::string("--propagation forward"));
    }
    const replay::InputData data = data_ == "real_data"     ? replay::InputData::kStored
                                   : data_ == "random_data" ? replay::InputData::kMade
                                                            : replay::InputData::kStoredOrMade;
    MSPROBE_ASSIGN_OR_RETURN(const replay::Reproducer made,
                             replay::WriteReproducer(dump, call, output_,
                                                     {.backward = direction_ != "forward",
                                                      .data = data,
                                                      .seed = static_cast<uint64_t>(seed_),
                                                      .iterations = iterations_,
                                                      .limits = Limits()}));
    if (!extract_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(const std::string entries, ExtractCall(DumpFile(input_), call.name));
      MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(extract_, entries));
      out.Tell("written: {}"_t(extract_));
    }
    out.Tell("written: {}"_t(made.script));
    if (!made.folder.empty())
      out.Tell("written: {}/, {} stored tensors, {} made from statistics"_t(
          made.folder, made.stored, made.made));
    return kExitOk;
  }

 private:
  // config_op.json: the flags win over it.
  Status ReadConfig() {
    constexpr size_t kLargestConfig = 1 << 20;
    if (IsDirectory(input_)) return Status::Ok();
    MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(input_));
    const bool is_config = file.bytes().size() <= kLargestConfig &&
                           file.bytes().find("\"dump_json_path\"") != std::string_view::npos;
    if (!is_config) return Status::Ok();
    const std::string path = input_;
    MSPROBE_ASSIGN_OR_RETURN(const JsonValue root, formats::ParseJson(file.bytes(), path));
    const JsonValue* dump = root.Find("dump_json_path");
    if (dump == nullptr) return Status::Ok();
    MSPROBE_RETURN_IF_ERROR(TakeText(*dump, path, {}, &input_));
    const struct {
      const char* key;
      Flag flag;
      std::string* text;
      std::vector<std::string_view> allowed;
    } texts[] = {{"api_name", name_, &api_, {}},
                 {"propagation", propagation_, &direction_, {"forward", "backward"}},
                 {"data_mode", mode_, &data_, {"random_data", "real_data"}},
                 {"extract_api_path", extracted_, &extract_, {}}};
    for (const auto& [key, flag, text, allowed] : texts) {
      const JsonValue* value = root.Find(key);
      if (value == nullptr || flag.given()) continue;
      MSPROBE_RETURN_IF_ERROR(TakeText(*value, path, allowed, text));
    }
    const std::pair<const char*, std::pair<Flag, int64_t*>> numbers[] = {
        {"random_seed", {seeded_, &seed_}}, {"iter_times", {repeated_, &iterations_}}};
    for (const auto& [key, place] : numbers) {
      const JsonValue* value = root.Find(key);
      if (value == nullptr || place.first.given()) continue;
      const std::string& text = value->text;
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), *place.second);
      if (value->kind != JsonValue::Kind::kNumber || error != std::errc() ||
          end != text.data() + text.size()) {
        return InvalidConfig(path, value->line)
            .Expected("a whole number for \"{}\""_t(std::string(key)))
            .Found(value->Describe());
      }
    }
    return Status::Ok();
  }

  static Status TakeText(const JsonValue& value, const std::string& path,
                         const std::vector<std::string_view>& allowed, std::string* text) {
    const bool known = allowed.empty() || value.text.empty() ||
                       std::find(allowed.begin(), allowed.end(), value.text) != allowed.end();
    if (value.kind != JsonValue::Kind::kString || !known) {
      const Message wanted =
          allowed.empty() ? "a text"_t : "a text: \"{}\" or \"{}\""_t(allowed[0], allowed[1]);
      return InvalidConfig(path, value.line).Expected(wanted).Found(value.Describe());
    }
    *text = value.text;
    return Status::Ok();
  }

  std::string input_, api_, output_ = "./", direction_, data_, extract_;
  int64_t seed_ = 1234, iterations_ = 1;
  Flag name_, propagation_, mode_, seeded_, repeated_, extracted_;
};

}  // namespace

std::unique_ptr<Verb> MakeOpGenerateVerb() { return std::make_unique<OpGenerate>(); }

}  // namespace msprobe::cli
