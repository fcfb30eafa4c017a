// Runs a target without libFuzzer, for `make test`: first with the unchanged inputs of a corpus,
// then with RUNS mutations of them, which are the same in every run.
//
//   replay NAME CORPUS RUNS
//
// An input that crashes the target is written to the file NAME-input in the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

// MSPROBE_FUZZ_TARGETS: X(npy) X(pt) ...; see CMakeLists.txt.
#define X(name) extern "C" int Fuzz_##name(const uint8_t* data, size_t size);
MSPROBE_FUZZ_TARGETS
#undef X

namespace {

struct Target {
  std::string_view name;
  int (*run)(const uint8_t*, size_t);
};
#define X(name) {#name, Fuzz_##name},
constexpr Target kTargets[] = {MSPROBE_FUZZ_TARGETS};
#undef X

std::string input;  // the input of the current run
std::string left_in;

void Leave(int signal) {
  const int fd = ::open(left_in.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0) (void)!::write(fd, input.data(), input.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string Next() {
    std::string text = seeds_[Below(seeds_.size())];
    for (size_t n = 1 + Below(4); n > 0; --n) Change(&text);
    return text;
  }

 private:
  size_t Below(size_t end) { return end == 0 ? 0 : dice_() % end; }

  void Change(std::string* text) {
    const size_t at = Below(text->size() + 1), length = 1 + Below(8);
    const std::string& other = seeds_[Below(seeds_.size())];
    switch (Below(6)) {
      case 0:
        if (at < text->size()) (*text)[at] ^= static_cast<char>(1 << Below(8));
        break;
      case 1:
        if (at < text->size()) (*text)[at] = static_cast<char>(dice_());
        break;
      case 2:
        text->erase(at, length);
        break;
      case 3:  // repeats a piece
        text->insert(at, text->substr(Below(text->size()), length * 4));
        break;
      case 4:  // replaces the rest by the end of another input
        text->replace(at, std::string::npos, other, Below(other.size()), std::string::npos);
        break;
      default:  // writes a number of random size
        text->replace(at, at < text->size() ? 1 : 0, std::to_string(dice_() >> Below(64)));
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 dice_{7};
};

std::vector<std::string> Contents(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> contents;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return contents;
}

}  // namespace

int main(int count, char** words) {
  if (count == 1) {
    for (const Target& target : kTargets) std::printf("%s\n", target.name.data());
    return 0;
  }
  const std::string_view name = words[1];
  const auto* target = std::find_if(std::begin(kTargets), std::end(kTargets),
                                    [&](const Target& each) { return each.name == name; });
  const std::vector<std::string> seeds =
      count == 4 ? Contents(words[2]) : std::vector<std::string>();
  size_t runs = 0;
  if (target == std::end(kTargets) || seeds.empty() ||
      std::from_chars(words[3], words[3] + std::string_view(words[3]).size(), runs).ec !=
          std::errc()) {
    std::fprintf(stderr, "usage: replay NAME CORPUS RUNS, with files in CORPUS\n");
    return 2;
  }
  left_in = std::string(name) + "-input";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, Leave);
  Mutator mutator(seeds);
  for (size_t run = 0; run < seeds.size() + runs; ++run) {
    input = run < seeds.size() ? seeds[run] : mutator.Next();
    target->run(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%zu runs\n", seeds.size() + runs);
  return 0;
}
