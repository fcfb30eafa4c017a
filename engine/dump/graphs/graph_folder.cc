#include "engine/dump/graphs/graph_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/graphs/graph_files.h"
#include "engine/dump/graphs/graph_lines.h"
#include "engine/dump/graphs/graph_names.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

namespace fs = std::filesystem;

constexpr int kFoldersAround = 4;  // <path>/rank_0/<net>/<graph>/<iteration>

// Numbers of MindSpore's folders: 0, 1, 12. -1: any other name.
int FolderNumber(std::string_view name) { return static_cast<int>(NumberAfter(name, "")); }

int RankOf(const std::string& path) {
  std::error_code error;
  int rank = -1;
  for (const fs::path& part : fs::absolute(path, error).lexically_normal()) {
    const auto number = static_cast<int>(NumberAfter(part.string(), "rank_"));
    if (number >= 0) rank = number;
  }
  return rank;
}

bool BeginsAsTensorFile(const std::string& folder, std::string_view name) {
  const Result<MappedFile> file = MappedFile::OpenBelow(folder, name);
  return file.ok() && formats::LooksLikeTensorFile(file->bytes());
}

// One graph in one iteration, and what lies beside it in the folder of the rank.
struct GraphPlace {
  std::string folder;       // <rank>/<net>/<graph>/<iteration>
  std::string rank_folder;  // "": the folder does not lie in one
  int graph = -1;
};

// The folder from the root on, without a slash at its end.
std::string OwnFolder(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::absolute(folder, error).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

GraphPlace PlaceOf(const std::string& folder) {
  GraphPlace place{.folder = folder};
  const fs::path path(OwnFolder(folder));
  const fs::path graph = path.parent_path();
  const fs::path rank = graph.parent_path().parent_path();
  if (FolderNumber(path.filename().string()) < 0) return place;
  place.graph = FolderNumber(graph.filename().string());
  if (place.graph >= 0 && NumberAfter(rank.filename().string(), "rank_") >= 0) {
    place.rank_folder = rank.string();
  }
  return place;
}

// The same iteration of the network's other graphs; none when one of them has a lower number.
std::vector<std::string> LaterGraphs(const std::string& folder) {
  const GraphPlace place = PlaceOf(folder);
  if (place.graph < 0) return {};
  const fs::path own(OwnFolder(folder));
  const std::string net = own.parent_path().parent_path().string();
  const Result<std::vector<std::string>> names = ListDirectory(net);
  std::map<int, std::string> later;
  if (!names.ok()) return {};
  for (const std::string& name : *names) {
    const int graph = FolderNumber(name);
    std::string other = JoinPath(JoinPath(net, name), own.filename().string());
    if (graph < 0 || graph == place.graph || IsLink(JoinPath(net, name)) ||
        !IsGraphIteration(other)) {
      continue;
    }
    if (graph < place.graph) return {};
    later.emplace(graph, std::move(other));
  }
  std::vector<std::string> folders;
  folders.reserve(later.size());
  for (auto& [graph, other] : later) folders.push_back(std::move(other));
  return folders;
}

// The names of a graph's operators, in the order of execution.
class ExecutionOrder {
 public:
  explicit ExecutionOrder(const GraphPlace& place) {
    const Result<MappedFile> file =
        place.rank_folder.empty()
            ? Result<MappedFile>(NotFound(place.folder))
            : MappedFile::OpenBelow(
                  place.rank_folder,
                  fmt::format("execution_order/ms_execution_order_graph_{}.csv", place.graph));
    if (!file.ok()) return;
    for (const std::string_view line : Split(file->bytes(), '\n')) {
      const std::string_view name = Trim(line);
      if (name.empty() || name.find('/') == name.npos) continue;  // the header
      if (by_name_.emplace(GraphNameInFiles(name), lines_.size()).second) lines_.emplace_back(name);
    }
  }

  bool known() const { return !lines_.empty(); }
  const std::string& line(int64_t place) const { return lines_[static_cast<size_t>(place)]; }

  // The place of each of `names` (as files have them), -1: not in the file. A process that compiles
  // several graphs may number operators of the same kind in another way in the file: names that are
  // left over are taken in the order of their numbers.
  std::unordered_map<std::string_view, int64_t> PlacesOf(
      const std::vector<std::pair<std::string_view, std::string_view>>& types_and_names) const {
    std::unordered_map<std::string_view, int64_t> places;
    std::vector<bool> used(lines_.size());
    std::map<std::string, std::map<int64_t, std::string_view>> left;  // of each stem, by number
    for (const auto& [type, name] : types_and_names) {
      const auto found = by_name_.find(std::string(name));
      places[name] = found == by_name_.end() ? -1 : static_cast<int64_t>(found->second);
      if (found != by_name_.end()) {
        used[found->second] = true;
        continue;
      }
      const GraphOperator op = ParseGraphOperator(type, name);
      left[std::string(op.stem)].emplace(op.number, name);
    }
    for (size_t i = 0; i < lines_.size() && !left.empty(); ++i) {
      if (used[i]) continue;
      const auto found = left.find(GraphNameInFiles(ParseGraphOperator("", lines_[i]).stem));
      if (found == left.end() || found->second.empty()) continue;
      places[found->second.begin()->second] = static_cast<int64_t>(i);
      found->second.erase(found->second.begin());
    }
    return places;
  }

 private:
  std::vector<std::string> lines_;
  std::unordered_map<std::string, size_t> by_name_;
};

// One operator in one of its runs.
struct Call {
  size_t graph = 0;           // index into the graphs that are read
  size_t first = 0, end = 0;  // its values
  int64_t run = 0;
  int64_t place = -1;  // in the order of execution
  uint64_t time = 0;   // of its first file
  std::string name;    // with slashes where the order of execution tells them
  std::string line;    // the name there and in the .ir
  GraphOperator op;    // its stem points into `name`: calls are held by pointer
};

// MindSpore's spelling in file names, of the spelling in statistic.csv: "Float32" of "float32".
std::string DTypeInFiles(std::string_view text) {
  std::string out(text);
  if (out.starts_with("bf") || out.starts_with("ui")) out[1] = static_cast<char>(out[1] & ~0x20);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] & ~0x20);
  return out;
}

// "(2,3)".
std::vector<int64_t> ExtentsIn(std::string_view shape) {
  std::vector<int64_t> extents;
  for (const std::string_view part : Split(shape, ',')) {
    const size_t begin = part.find_first_of("0123456789");
    if (begin == part.npos) continue;
    int64_t value = 0;
    std::from_chars(part.data() + begin, part.data() + part.size(), value);
    extents.push_back(value);
  }
  return extents;
}

class GraphReader {
 public:
  explicit GraphReader(Dump* dump) : dump_(*dump) {}

  Status Read(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      places_.push_back(PlaceOf(folder));
      MSPROBE_RETURN_IF_ERROR(graphs_.emplace_back(std::make_unique<GraphFiles>())->Read(folder));
    }
    for (size_t i = 0; i < graphs_.size(); ++i) AddCalls(i);
    Sort();
    NumberCalls();
    std::vector<std::unique_ptr<GraphLines>> lines;
    for (size_t i = 0; i < graphs_.size(); ++i) lines.push_back(LinesOf(i));
    for (const std::unique_ptr<Call>& call : calls_) AddRecord(*call, *lines[call->graph]);
    Finish();
    return Status::Ok();
  }

 private:
  void AddCalls(size_t index) {
    const std::vector<GraphValue>& values = graphs_[index]->values;
    const ExecutionOrder order(places_[index]);
    has_order_ = has_order_ && order.known();
    const size_t first_call = calls_.size();
    std::vector<std::pair<std::string_view, std::string_view>> names;
    for (size_t i = 0; i < values.size(); ++i) {
      const GraphValue& v = values[i];
      const bool begins = i == 0 || v.name != values[i - 1].name || v.type != values[i - 1].type;
      if (begins) names.emplace_back(v.type, v.name);
      if (begins || v.run != values[i - 1].run) {
        calls_.push_back(std::make_unique<Call>(Call{.graph = index,
                                                     .first = i,
                                                     .run = v.run,
                                                     .time = v.time,
                                                     .name = std::string(v.name)}));
      }
      Call& call = *calls_.back();
      call.end = i + 1;
      call.time = std::min(call.time, v.time);
    }
    const auto places = order.PlacesOf(names);
    for (size_t i = first_call; i < calls_.size(); ++i) {
      Call& call = *calls_[i];
      const GraphValue& v = values[call.first];
      call.place = places.at(v.name);
      // The number stays that of the file: it is by the file that people find the operator.
      if (call.place >= 0) {
        const GraphOperator file = ParseGraphOperator(v.type, v.name);
        const GraphOperator line = ParseGraphOperator(v.type, order.line(call.place));
        call.name = fmt::format("{}-op{}", line.stem, file.number);
      }
      call.op = ParseGraphOperator(v.type, call.name);
      call.line = call.place >= 0 ? order.line(call.place) : call.name;
    }
  }

  // Runs of graphs by their times; in a run, the order of execution, then what is not in it by
  // time, then parameters by name.
  void Sort() {
    std::map<std::pair<size_t, int64_t>, uint64_t> began;
    for (const auto& call : calls_) {
      const auto [at, is_new] = began.emplace(std::pair(call->graph, call->run), call->time);
      if (!is_new) at->second = std::min(at->second, call->time);
    }
    std::stable_sort(calls_.begin(), calls_.end(), [&](const auto& a, const auto& b) {
      const std::pair run_a(a->graph, a->run), run_b(b->graph, b->run);
      if (run_a != run_b) {
        return std::tuple(began.at(run_a), run_a) < std::tuple(began.at(run_b), run_b);
      }
      const bool last_a = a->op.part == GraphPart::kParameter;
      const bool last_b = b->op.part == GraphPart::kParameter;
      if (last_a != last_b) return last_b;
      if (last_a) return NaturalLess(a->name, b->name);
      if ((a->place < 0) != (b->place < 0)) return b->place < 0;
      if (a->place != b->place) return a->place < b->place;
      return a->time < b->time;
    });
  }

  // A second run of an operator goes on where the numbers of its kind end.
  void NumberCalls() {
    for (const auto& call : calls_) {
      int64_t& above = numbers_[{call->graph, std::string(call->op.stem)}];
      above = std::max(above, std::min(call->op.number, kMostNumber) + 1);
    }
  }

  std::unique_ptr<GraphLines> LinesOf(size_t index) {
    const GraphPlace& place = places_[index];
    std::unordered_set<std::string> wanted;
    for (const auto& call : calls_) {
      if (call->graph == index) wanted.insert(call->line);
    }
    const Result<MappedFile> file =
        place.rank_folder.empty()
            ? Result<MappedFile>(NotFound(place.folder))
            : MappedFile::OpenBelow(
                  place.rank_folder,
                  fmt::format("graphs/ms_output_trace_code_graph_{}.ir", place.graph));
    return std::make_unique<GraphLines>(file.ok() ? file->bytes() : std::string_view(), wanted);
  }

  void AddRecord(const Call& call, const GraphLines& lines) {
    const std::vector<GraphValue>& values = graphs_[call.graph]->values;
    const GraphLines::Node* node = lines.Of(call.line);
    GraphPart part = call.op.part;
    // Operators that MindSpore made out of another one ("Expand/...") do not say where they belong.
    if (part == GraphPart::kForward && node != nullptr && node->of_forward) {
      part = GraphPart::kBackward;
    }
    const int64_t above = numbers_.at({call.graph, std::string(call.op.stem)});
    const bool is_parameter = part == GraphPart::kParameter;
    const int64_t number =
        is_parameter ? call.run : std::min(call.op.number, kMostNumber) + call.run * above;
    std::string api = graphs_.size() > 1 ? fmt::format("graph{}/", places_[call.graph].graph) : "";
    api.append(is_parameter ? "Parameter." : "").append(call.op.stem);
    constexpr std::string_view kWords[] = {"forward", "backward", "optimizer"};
    const std::string name =
        !is_parameter  ? fmt::format("{}.{}.{}", api, number, kWords[static_cast<size_t>(part)])
        : call.run > 0 ? fmt::format("{}.{}", api, number)
                       : api;
    Record record{.name = arena_.Copy(name)};
    record.api = arena_.Copy(api);
    record.call = number;
    record.direction = part == GraphPart::kForward    ? Direction::kForward
                       : part == GraphPart::kBackward ? Direction::kBackward
                                                      : Direction::kNone;
    record.module = arena_.Copy(part == GraphPart::kForward ? call.op.module : "");
    record.stack = StackOf(call.graph, call.line, node);
    record.first_leaf = static_cast<uint32_t>(dump_.leaves.size());
    record.leaf_count = static_cast<uint32_t>(call.end - call.first);
    for (size_t i = call.first; i < call.end; ++i) AddLeaf(record, call.graph, values[i]);
    dump_.records.push_back(record);
  }

  int32_t StackOf(size_t graph, const std::string& name, const GraphLines::Node* node) {
    if (node == nullptr || node->frames.empty()) return -1;
    const auto [at, is_new] =
        stacks_.emplace(std::pair(graph, name), static_cast<int32_t>(dump_.stacks.size()));
    if (is_new) {
      std::vector<std::string_view>& frames = dump_.stacks.emplace_back();
      for (const std::string& frame : node->frames) frames.push_back(arena_.Copy(frame));
    }
    return at->second;
  }

  void AddLeaf(const Record& record, size_t graph, const GraphValue& value) {
    Leaf leaf{.record = static_cast<uint32_t>(dump_.records.size())};
    leaf.slot = value.is_output ? Slot::kOutput : Slot::kInput;
    leaf.name = arena_.Copy(fmt::format("{}.{}.{}", record.name.view(),
                                        value.is_output ? "output" : "input", value.slot));
    leaf.type = "mindspore.Tensor";
    leaf.dtype = arena_.Copy(DTypeInFiles(value.dtype));
    if (!value.shape.empty()) leaf.shape = dump_.shapes.Of(ExtentsIn(value.shape));
    AddStats(value, &leaf);
    if (!value.file.empty()) {
      const std::string& folder = places_[graph].folder;
      // Below the folder of the first graph's network when there are several.
      leaf.data_name =
          arena_.Copy(graphs_.size() > 1 ? fmt::format("{}/{}/{}", BaseName(DirectoryName(folder)),
                                                       BaseName(folder), value.file)
                                         : std::string(value.file));
      Result<MappedFile> file = MappedFile::OpenBelow(dump_.tensor_folder, leaf.data_name);
      if (file.ok()) {
        // Only the header is looked at.
        const Result<formats::TensorFile> tensor = formats::ReadTensorFile(std::move(*file));
        if (tensor.ok()) {
          leaf.shape = dump_.shapes.Of(tensor->shape);
          if (value.dtype.empty()) leaf.dtype = tensor->dtype;
        }
      }
    }
    dump_.leaves.push_back(leaf);
  }

  void AddStats(const GraphValue& value, Leaf* leaf) {
    TextRef* const texts[] = {&leaf->max, &leaf->min, &leaf->mean, &leaf->norm};
    double* const numbers[] = {&leaf->max_value, &leaf->min_value, &leaf->mean_value,
                               &leaf->norm_value};
    for (size_t i = 0; i < value.stats.size(); ++i) {
      std::string_view text = value.stats[i];
      if (text == "True" || text == "False") text = text == "True" ? "1" : "0";
      double number = 0;
      const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (text.empty() || error != std::errc() || last != text.data() + text.size()) continue;
      leaf->has_stats = true;
      *numbers[i] = number;
      *texts[i] = std::isnan(number)   ? "NaN"
                  : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                       : arena_.Copy(text);
    }
    const ElementCounts& counts = value.counts;
    if (std::max({counts.nan, counts.pos_inf, counts.neg_inf, counts.zero}) >= 0) {
      leaf->counts = &dump_.counts.emplace_back(counts);
    }
    if (!value.digest.empty()) {
      leaf->checksum = arena_.Copy(value.digest);
      // Statistics say by how much two values differ, a digest only that they do.
      dump_.has_checksums = dump_.has_checksums || !leaf->has_stats;
    }
  }

  void Finish() {
    size_t others = 0;
    std::string first;
    bool files = false;
    for (const auto& graph : graphs_) {
      others += graph->others.size();
      files = files || graph->has_files;
      if (first.empty() && !graph->others.empty()) first = graph->others[0];
    }
    dump_.task = files ? Task::kTensor : Task::kStatistics;
    if (!has_order_) {
      dump_.AddNote(
          "no execution_order beside the dump: operators are in the order of their times"_t);
    }
    if (others == 1) {
      dump_.AddNote("1 file is no value of an operator and left out, the first: {}"_t(first));
    } else if (others > 1) {
      dump_.AddNote(
          "{} files are no value of an operator and left out, the first: {}"_t(others, first));
    }
    arena_.Release(&dump_.arena);
  }

  static constexpr int64_t kMostNumber = int64_t{1} << 31;  // a file name may have any number

  Dump& dump_;
  std::vector<GraphPlace> places_;
  std::vector<std::unique_ptr<GraphFiles>> graphs_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::map<std::pair<size_t, std::string>, int64_t> numbers_;  // above those of each stem
  std::map<std::pair<size_t, std::string>, int32_t> stacks_;
  TextArena arena_;
  bool has_order_ = true;
};

// "run: mindspore 2.10.0, device CPU".
void ReadRun(const std::string& rank_folder, Dump* dump) {
  if (rank_folder.empty()) return;
  const Result<MappedFile> file = MappedFile::OpenBelow(rank_folder, ".dump_metadata/config.json");
  if (!file.ok()) return;
  formats::JsonCursor json(file->bytes());
  formats::JsonText key, value;
  for (json.BeginObject(); json.NextKey(&key);) {
    if (json.Peek() != '"' || !json.String(&value)) {
      json.Skip();
    } else if (key == "ms_version") {
      dump->provenance.emplace_back("mindspore", value.raw);
    } else if (key == "device_target") {
      dump->provenance.emplace_back("device", value.raw);
    }
  }
}

void Find(const std::string& folder, int depth, std::vector<GraphIteration>* found) {
  const Result<std::vector<std::string>> names = ListDirectory(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string below = JoinPath(folder, name);
    if (name.starts_with('.') || IsLink(below) || !IsDirectory(below)) continue;
    const int iteration = FolderNumber(name);
    if (iteration >= 0 && FolderNumber(BaseName(folder)) >= 0 && IsGraphIteration(below)) {
      found->push_back({below, RankOf(below), iteration});
    } else if (depth + 1 < kFoldersAround) {
      Find(below, depth + 1, found);
    }
  }
}

}  // namespace

bool IsGraphIteration(const std::string& folder) {
  const Result<std::vector<std::string>> names = ListDirectory(folder);
  if (!names.ok()) return false;
  size_t tensors = 0, named = 0;
  const std::string* first = nullptr;
  for (const std::string& name : *names) {
    if (name == kStatisticFile) {
      const Result<MappedFile> file = MappedFile::OpenBelow(folder, name);
      if (file.ok() && BeginsAsStatistics(file->bytes())) return true;
    }
    if (!name.ends_with(".npy")) continue;
    ++tensors;
    if (!ParseGraphFile(name)) continue;
    ++named;
    if (first == nullptr && BeginsAsTensorFile(folder, name)) first = &name;
  }
  return first != nullptr && named * 2 >= tensors;
}

std::vector<GraphIteration> FindGraphIterations(const std::string& path) {
  std::vector<GraphIteration> found;
  if (IsGraphIteration(path))
    return {{path, RankOf(path), FolderNumber(BaseName(OwnFolder(path)))}};
  Find(path, 0, &found);
  const auto net = [](const GraphIteration& i) { return DirectoryName(DirectoryName(i.path)); };
  std::sort(found.begin(), found.end(), [&](const GraphIteration& a, const GraphIteration& b) {
    const std::string net_a = net(a), net_b = net(b);
    if (std::tie(a.rank, net_a, a.iteration) != std::tie(b.rank, net_b, b.iteration)) {
      return std::tie(a.rank, net_a, a.iteration) < std::tie(b.rank, net_b, b.iteration);
    }
    return NaturalLess(a.path, b.path);
  });
  // Of several graphs in one iteration the first stands for all.
  found.erase(std::unique(found.begin(), found.end(),
                          [&](const GraphIteration& a, const GraphIteration& b) {
                            return net(a) == net(b) && a.iteration == b.iteration;
                          }),
              found.end());
  return found;
}

Result<Dump> ReadGraphIteration(const std::string& path) {
  Dump dump;
  dump.path = path;
  dump.folder = dump.tensor_folder = path;
  dump.dialect = Dialect::kMindSporeGraph;
  dump.framework = "mindspore";
  dump.level = Level::kL2;
  std::vector<std::string> folders = LaterGraphs(path);
  if (folders.empty()) {
    folders.push_back(path);
  } else {  // their files have only the folder of the network in common
    folders.insert(folders.begin(), OwnFolder(path));
    dump.tensor_folder = DirectoryName(DirectoryName(folders[0]));
  }
  ReadRun(PlaceOf(path).rank_folder, &dump);
  GraphReader reader(&dump);
  MSPROBE_RETURN_IF_ERROR(reader.Read(folders));
  return dump;
}

}  // namespace msprobe::dump
