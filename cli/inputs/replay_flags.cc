#include "cli/inputs/replay_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "cli/programs/python_program.h"
#include "engine/base/memory_size.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/replay/reference_table.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kMostProcesses = 64;

// The numbers of -d, each once.
Result<std::vector<int>> DeviceNumbers(const std::vector<std::string>& texts) {
  std::vector<int> numbers;
  for (const std::string& text : texts) {
    int number = -1;
    const char* last = text.data() + text.size();
    const auto end = std::from_chars(text.data(), last, number);
    const bool is_number = end.ec == std::errc() && end.ptr == last && number >= 0;
    if (!is_number || std::find(numbers.begin(), numbers.end(), number) != numbers.end())
      return InvalidArgument(std::string("-d"))
          .Expected("different device numbers from 0 on"_t)
          .Found(text);
    numbers.push_back(number);
  }
  if (numbers.empty()) numbers.push_back(0);
  return numbers;
}

// How many workers the cluster has room for.
Result<int64_t> WorkersOfRay(const std::string& address) {
  MSPROBE_ASSIGN_OR_RETURN(const std::string line,
                           LineOfPython("--ray", {"-m", "msprobe.pytorch.ray_worker", address}));
  int64_t count = 0;
  const char* last = line.data() + line.size();
  const auto end = std::from_chars(line.data(), last, count);
  if (end.ec == std::errc() && end.ptr == last) return count;
  return Unsupported("--ray: {}"_t(MakePrintable(line)));
}

}  // namespace

std::string QuotedJson(std::string_view text) {
  std::string json;
  AppendJsonString(&json, text);
  return json;
}

std::string JsonList(const std::set<std::string, std::less<>>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) {
    if (json.size() > 1) json += ", ";
    AppendJsonString(&json, text);
  }
  return json + "]";
}

void ReplayFlags::Add(Flags& flags, bool several) {
  many = several;
  flags
      .Text("--api_info_file", &dump,
            "dump.json, or a folder with one; of level L1 or mix, with statistics or tensors"_t)
      .TypeName("PATH")
      .Required();
  flags
      .Texts("-d,--device", &devices,
             several ? "numbers of the devices; processes are spread over them"_t
                     : "number of the device: an NPU, else a GPU, else the CPU"_t)
      .TypeName("NUMBER");
  if (several) {
    flags
        .Number(
            "-n,--num_splits", &processes,
            "number of processes. Default: one for each core, at most 8; with --ray one for each "
            "device of the cluster, at most 64"_t)
        .Positive();
    flags
        .Text("--ray", &ray,
              "execute the calls on the devices of a cluster of Ray: HOST:PORT, or auto. Each node "
              "reads the dump at the same path"_t)
        .TypeName("ADDRESS");
  }
  flags.Switch("-j,--jit_compile", &jit, "NPU: compile operators just in time"_t);
  flags.Number("--seed", &seed, "of elements that are made from statistics"_t).ShowDefault();
  flags.Number("--timeout", &timeout, "seconds that one call may take"_t).Positive().ShowDefault();
  flags.Text("--memory", &memory, "memory that one process may take, such as 4GB. Default: any"_t)
      .TypeName("SIZE");
  flags
      .Text(
          "--references", &references,
          "YAML: functions that compute golden results, a line `API: file.py:function` for each"_t)
      .TypeName("FILE");
}

Result<Dump> ReplayFlags::Read(Console& out) const {
  Result<Dump> read = dump::ReadDump(dump);
  if (read.ok() && !read->complete) out.Warn("warning: {}: {}"_t(read->path, Message(read->note)));
  return read;
}

Status ReplayFlags::CheckRayFlags() const {
  if (!devices.empty()) {
    return InvalidArgument(std::string("-d"))
        .Expected("no device numbers with --ray"_t)
        .Found(devices[0])
        .Hint("Ray chooses the devices; -n says how many"_t);
  }
  if (!memory.empty()) {
    return InvalidArgument(std::string("--memory"))
        .Expected("no limit with --ray"_t)
        .Found(memory)
        .Hint("the nodes of Ray watch their memory: RAY_memory_usage_threshold of ray start"_t);
  }
  return Status::Ok();
}

Result<workers::PoolOptions> ReplayFlags::Pool(const ReplayOptions& options, Console& out) const {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<int> numbers, DeviceNumbers(devices));
  if (!many && numbers.size() > 1)
    out.Warn("warning: one process uses one device: {}"_t(numbers[0]));
  if (seed < 0)
    return InvalidArgument(std::string("--seed"))
        .Expected("0 or more"_t)
        .Found(std::to_string(seed));
  if (!ray.empty()) MSPROBE_RETURN_IF_ERROR(CheckRayFlags());
  const std::string python = PythonProgram();
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  int64_t count = !many ? 1 : processes > 0 ? processes : std::min<int64_t>(8, cores);
  if (count > kMostProcesses) {
    return InvalidArgument(std::string("-n"))
        .Expected("1 to {}"_t(kMostProcesses))
        .Found(std::to_string(count));
  }
  workers::PoolOptions pool{.seconds = static_cast<double>(timeout)};
  if (!memory.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(pool.bytes, ParseMemorySize(memory));
  }
  if (!references.empty()) MSPROBE_RETURN_IF_ERROR(replay::ReadReferenceTable(references).status());
  std::vector<std::string> program = {python, "-m", "msprobe.pytorch.replay_worker"};
  if (!ray.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(const int64_t places, WorkersOfRay(ray));
    if (processes == 0) count = places;
    program = {python, "-m", "msprobe.pytorch.ray_worker", ray};
    pool.start_seconds = 0;  // an actor waits until a device is free
  }
  std::string said = ", \"imports\": " + JsonList({imports.begin(), imports.end()});
  for (const auto& [name, value] : options) said += fmt::format(", \"{}\": {}", name, value);
  for (int64_t i = 0; i < count; ++i) {
    std::vector<std::string>& words = pool.workers.emplace_back(program);
    words.push_back(
        fmt::format("{{\"dump\": {}, \"device\": {}, \"seed\": {}, \"jit_compile\": {}, "
                    "\"references\": {}{}}}",
                    QuotedJson(dump), numbers[i % numbers.size()], seed, JsonBool(jit),
                    QuotedJson(references), said));
  }
  return pool;
}

}  // namespace msprobe::cli
