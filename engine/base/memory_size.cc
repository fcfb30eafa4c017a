#include "engine/base/memory_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

namespace msprobe {
namespace {

constexpr std::string_view kUnits = "KMGTP";
constexpr double kMega = 1 << 20, kGiga = 1 << 30;

// The number in a file of one line; nullopt: there is no such file, or it says "max".
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The sum in bytes of the lines with these names: "MemAvailable:  1024 kB", "inactive_file 1024".
uint64_t SumOf(const std::string& path, std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  uint64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, unit;
    uint64_t number = 0;
    if (!(words >> name >> number)) continue;
    if (name.ends_with(':')) name.pop_back();
    words >> unit;
    if (std::find(names.begin(), names.end(), name) != names.end())
      sum += unit == "kB" ? number * 1024 : number;
  }
  return sum;
}

// A control group and the groups around it; each may have a limit.
class Groups {
 public:
  Groups(std::string root, uint64_t swap) : root_(std::move(root)), swap_(swap) {}

  uint64_t Available() {
    std::ifstream file(root_ + "/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == line.npos) continue;
      const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
      const std::string group = line.substr(second + 1);
      if (kinds == ",,") Walk("/sys/fs/cgroup", group, false);
      if (kinds.find(",memory,") != kinds.npos) Walk("/sys/fs/cgroup/memory", group, true);
    }
    return available_;
  }

 private:
  void Walk(const std::string& mount, std::string group, bool first_version) {
    while (true) {
      Look(root_ + mount + group + (group.ends_with('/') ? "" : "/"), first_version);
      if (group.empty() || group == "/") return;
      group.resize(group.rfind('/'));
    }
  }

  void Look(const std::string& folder, bool first_version) {
    const auto limit = NumberIn(folder + (first_version ? "memory.limit_in_bytes" : "memory.max"));
    const auto used =
        NumberIn(folder + (first_version ? "memory.usage_in_bytes" : "memory.current"));
    if (!limit || !used) return;
    const uint64_t files =
        first_version
            ? SumOf(folder + "memory.stat", {"total_inactive_file", "total_active_file"})
            : SumOf(folder + "memory.stat", {"inactive_file", "active_file", "slab_reclaimable"});
    const uint64_t taken = *used - std::min(*used, files);
    const uint64_t swap =
        first_version ? swap_
                      : std::min(swap_, NumberIn(folder + "memory.swap.max").value_or(swap_));
    available_ = std::min(available_, *limit - std::min(*limit, taken) + swap);
  }

  const std::string root_;
  const uint64_t swap_;
  uint64_t available_ = UINT64_MAX;
};

}  // namespace

Result<uint64_t> ParseMemorySize(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string unit;
  for (const char* p = stop; p < end; ++p) {
    if (*p != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(*p)));
  }
  const size_t power = unit.empty() ? std::string_view::npos : kUnits.find(unit[0]);
  const std::string_view rest = std::string_view(unit).substr(power == kUnits.npos ? 0 : 1);
  const double bytes =
      number * std::pow(1024, power == kUnits.npos ? 0 : static_cast<double>(power) + 1);
  const bool known = rest.empty() || rest == "B" || (rest == "IB" && power != kUnits.npos);
  if (error != std::errc() || !known || !(bytes >= 1) || bytes > 0x1p62) {
    return InvalidArgument()
        .Expected("an amount of memory such as 4GB or 512MB"_t)
        .Found(Excerpt(text));
  }
  return static_cast<uint64_t>(bytes);
}

std::string MemorySizeText(uint64_t bytes) {
  const auto size = static_cast<double>(bytes);
  if (size >= kGiga) return fmt::format("{:.1f} GB", std::ceil(size / kGiga * 10) / 10);
  return fmt::format("{:.0f} MB", std::ceil(size / kMega));
}

std::string MemorySizeFlag(uint64_t bytes) {
  constexpr double kStep = 32 * kMega;
  const auto size = static_cast<double>(bytes);
  if (size > kGiga - kStep) return fmt::format("{}GB", std::ceil(size / kGiga * 4) / 4);
  return fmt::format("{}MB", std::ceil(size / kStep) * kStep / kMega);
}

uint64_t AvailableMemory() { return AvailableMemoryBelow(""); }

uint64_t AvailableMemoryBelow(const std::string& root) {
  const std::string machine = root + "/proc/meminfo";
  const uint64_t swap = SumOf(machine, {"SwapFree"});
  const uint64_t free = SumOf(machine, {"MemAvailable"});
  // 0: the system does not tell how much is free. Then only the control groups limit the memory.
  return std::min(free == 0 ? UINT64_MAX : free + swap, Groups(root, swap).Available());
}

}  // namespace msprobe
