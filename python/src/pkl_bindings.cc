// What the fronts of the older tools (msprobe/compat) need beyond PrecisionDebugger.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>

#include "bindings.h"
#include "capture/collector.h"
#include "convert.h"
#include "engine/base/messages/message.h"

namespace msprobe::python {
namespace {

using capture::Collector;
using Strings = std::vector<std::string>;

template <typename Enum, size_t N>
Enum Named(Message what, const std::string& word, const char* const (&words)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (word == words[i]) return static_cast<Enum>(i);
  }
  Raise(InvalidArgument().Expected(std::move(what)).Found(Excerpt(word)));
}

constexpr const char* kDialects[] = {"hooks", "numbered", "counted"};
constexpr const char* kModes[] = {"all", "list", "range", "stack", "api_list", "api_stack"};
constexpr const char* kData[] = {"none", "lines", "npy", "storages"};

// Members of a dict, each asked for once by its name.
class Options {
 public:
  explicit Options(const nb::dict& options) : options_(options) {}
  template <typename T>
  void Read(const char* name, T* value) const {
    if (options_.contains(name)) *value = nb::cast<T>(options_[name]);
  }

 private:
  const nb::dict& options_;
};

dump::Config ConfigOf(const nb::dict& dict) {
  const Options options(dict);
  dump::PklStyle style;
  std::string dialect = "counted", mode = "all", data = "npy", level = "L1";
  bool checksums = false;
  Strings parts = {"forward", "backward", "input", "output"};
  options.Read("dialect", &dialect);
  options.Read("mode", &mode);
  options.Read("data", &data);
  style.dialect = Named<dump::PklDialect>("a dialect"_t, dialect, kDialects);
  style.mode = Named<dump::PklMode>("a mode"_t, mode, kModes);
  style.data = Named<dump::PklData>("a form of data"_t, data, kData);
  if (!style.has_values()) style.data = dump::PklData::kNone;
  options.Read("file", &style.file);
  options.Read("data_folder", &style.data_folder);
  options.Read("tag_folder", &style.tag_folder);
  options.Read("step_folder", &style.step_folder);
  options.Read("stem", &style.stem);
  options.Read("sampled", &style.sampled);
  options.Read("sample_step", &style.sample_step);
  options.Read("plain_values", &style.plain_values);
  options.Read("raises", &style.raises);
  options.Read("scope", &style.scope);
  options.Read("api_list", &style.api_list);
  options.Read("level", &level);
  options.Read("checksums", &checksums);
  options.Read("parts", &parts);

  dump::Config config;
  options.Read("overflow_nums", &config.overflow_nums);
  options.Read("async_dump", &config.async_dump);
  options.Read("ranks", &config.rank);
  options.Read("checks_overflow", &style.file_for_each);
  config.level = level == "L0" ? Level::kL0 : Level::kL1;
  config.task = style.file_for_each                  ? Task::kOverflowCheck
                : style.data != dump::PklData::kNone ? Task::kTensor
                                                     : Task::kStatistics;
  if (checksums) config.summary = {.statistics = false, .checksum = kernels::Checksum::kCrc32};
  const auto has = [&](const char* part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  config.data_mode = {.forward_input = has("forward") && has("input"),
                      .forward_output = has("forward") && has("output"),
                      .backward_input = has("backward") && has("input"),
                      .backward_output = has("backward") && has("output")};
  config.extra_info = style.has_stacks() || style.file_for_each;
  config.dump_path = style.tag_folder.empty() ? style.file : style.tag_folder;
  config.pkl = std::move(style);
  return config;
}

}  // namespace

void BindPkl(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "configure_pkl",
      [](const nb::dict& options, const std::string& own_directory, bool goes_on) {
        dump::Config config = ConfigOf(options);
        PrepareCapture(own_directory);
        Collector::Get().ReconfigureNow(std::move(config), goes_on);
      },
      "options"_a, "own_directory"_a, "goes_on"_a = false,
      "Record as an older tool did: members of `options` are those of PklStyle, and parts, ranks, "
      "level, checks_overflow, overflow_nums, async_dump, checksums. Call numbers "
      "continue; with `goes_on` the count of overflows continues, too.");
  m.def(
      "release_pkl", [] { Collector::Get().ReleasePkl(); },
      "The files that were written are complete, and may be moved or removed.");
  m.def(
      "set_overflow_flag",
      [](nb::handle flag) {
        Collector::Get().overflow_check().SetFlag(
            flag.is_none() ? capture::PyRef() : capture::PyRef::Borrow(flag.ptr()));
      },
      "flag"_a.none(), "The object that says, after each call, whether the device has overflowed.");
  m.def(
      "last_file", [] { return Collector::Get().session().last_file(); },
      "The file that the last lines went to.");
}

}  // namespace msprobe::python
