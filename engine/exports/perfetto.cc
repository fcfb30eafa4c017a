#include "engine/exports/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/judge.h"
#include "engine/exports/protobuf_writer.h"

namespace msprobe::exports {
namespace {

using compare::CallClass;
using compare::Comparison;
using compare::StepState;

// Numbers of fields in Perfetto's trace_packet.proto, track_descriptor.proto, track_event.proto.
namespace trace {
constexpr uint32_t kPacket = 1;
}
namespace packet {
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kSequenceFlags = 13,
                   kTrackDescriptor = 60;
constexpr uint64_t kBeginsSequence = 1;  // SEQ_INCREMENTAL_STATE_CLEARED
}  // namespace packet
namespace descriptor {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8,
                   kChildOrdering = 11, kRank = 12;
constexpr uint64_t kExplicit = 3;
constexpr uint32_t kPid = 1, kProcessName = 6, kUnitName = 6;
}  // namespace descriptor
namespace event {
constexpr uint32_t kAnnotation = 4, kType = 9, kTrack = 11, kCategory = 22, kName = 23,
                   kDoubleCounter = 44;
constexpr uint64_t kBegin = 1, kEnd = 2, kCounterType = 4;
constexpr uint32_t kAnnotationDouble = 5, kAnnotationText = 6, kAnnotationName = 10;
}  // namespace event

constexpr uint64_t kNanosecondsOfCall = 1000;

enum Track : uint64_t { kAll, kVerdict, kError, kModules, kCalls, kTracks };

// A module call: the calls from `begin` to before `end` are inside, itself included.
struct Span {
  size_t begin, end, pair;
};

class Trace {
 public:
  Trace(const Comparison& c, const PairPlace& place)
      : c_(c), sequence_(place.index + 1), first_track_(1 + place.index * kTracks) {
    const std::string where = PlaceText(place);
    const std::string name = where.empty() ? "comparison" : where;
    const ProtobufWriter process =
        ProtobufWriter().Integer(descriptor::kPid, sequence_).Text(descriptor::kProcessName, name);
    Describe(ProtobufWriter()
                 .Integer(descriptor::kUuid, Uuid(kAll))
                 .Message(descriptor::kProcess, process)
                 .Integer(descriptor::kChildOrdering, descriptor::kExplicit),
             packet::kBeginsSequence);
    DescribeTrack(kVerdict, "verdict");
    const ProtobufWriter counter = ProtobufWriter().Text(descriptor::kUnitName, "roundings");
    DescribeTrack(kError, "error", &counter);
    DescribeTrack(kModules, "modules");
    DescribeTrack(kCalls, "calls");
  }

  ExportPart Make() {
    ForEachState([&] { Verdicts(); });
    Modules();
    for (size_t p = 0; p < c_.pairs.size(); ++p) Call(p);
    part_.Append(bytes_);
    return std::move(part_);
  }

 private:
  uint64_t Uuid(Track track) const { return first_track_ + track; }

  void Packet(ProtobufWriter packet) {
    packet.Integer(packet::kSequence, sequence_);
    bytes_ += ProtobufWriter().Message(trace::kPacket, packet).bytes();
  }
  void Describe(const ProtobufWriter& track, uint64_t flags = 0) {
    ProtobufWriter packet;
    packet.Message(packet::kTrackDescriptor, track);
    if (flags != 0) packet.Integer(packet::kSequenceFlags, flags);
    Packet(std::move(packet));
  }
  void DescribeTrack(Track track, std::string_view name, const ProtobufWriter* counter = nullptr) {
    ProtobufWriter described;
    described.Integer(descriptor::kUuid, Uuid(track))
        .Text(descriptor::kName, name)
        .Integer(descriptor::kParent, Uuid(kAll))
        .Integer(descriptor::kRank, track);
    if (counter != nullptr) described.Message(descriptor::kCounter, *counter);
    Describe(described);
  }
  void Event(size_t call, Track track, uint64_t type, ProtobufWriter event) {
    event.Integer(event::kType, type).Integer(event::kTrack, Uuid(track));
    Packet(std::move(ProtobufWriter()
                         .Integer(packet::kTimestamp, call * kNanosecondsOfCall)
                         .Message(packet::kTrackEvent, event)));
  }

  template <typename Write>
  void ForEachState(const Write& write) {
    part_.Append(std::exchange(bytes_, {}));
    std::array<std::string, ExportPart::kStates> texts;
    for (const StepState state : compare::kStepStates) {
      state_ = state;
      write();
      texts[static_cast<size_t>(state)] = std::exchange(bytes_, {});
    }
    part_.Append(texts);
  }

  CallClass JudgedClass(size_t pair) const {
    return compare::ClassInStep(c_.classes[pair], state_);
  }
  std::string_view ClassOf(size_t pair) const { return compare::ClassName(JudgedClass(pair)); }

  void Verdicts() {
    for (size_t begin = 0, end = 0; begin < c_.pairs.size(); begin = end) {
      while (end < c_.pairs.size() && JudgedClass(end) == JudgedClass(begin)) ++end;
      Event(begin, kVerdict, event::kBegin,
            std::move(ProtobufWriter().Text(event::kName, ClassOf(begin))));
      Event(end, kVerdict, event::kEnd, {});
    }
  }

  static void Annotate(std::string_view name, std::string_view text, ProtobufWriter* event) {
    if (text.empty()) return;
    event->Message(
        event::kAnnotation,
        ProtobufWriter().Text(event::kAnnotationName, name).Text(event::kAnnotationText, text));
  }

  ProtobufWriter Slice(size_t pair) const {
    const auto p = static_cast<int32_t>(pair);
    ProtobufWriter event;
    event.Text(event::kName, compare::EntryName(c_, p)).Text(event::kCategory, ClassOf(pair));
    if (c_.classes[pair] == CallClass::kEqual) return event;  // most calls: small files
    const double error = LargestError(pair);
    if (!std::isnan(error)) {
      event.Message(event::kAnnotation, ProtobufWriter()
                                            .Text(event::kAnnotationName, "roundings")
                                            .Double(event::kAnnotationDouble, error));
    }
    Annotate("class", ClassOf(pair), &event);
    Annotate("source", compare::SourceLineOf(c_, p), &event);
    const compare::RecordPair& both = c_.pairs[pair];
    if (!both.matched())
      Annotate("only in", both.target >= 0 ? "the target" : "the golden", &event);
    if (p == c_.first.pair && state_ == StepState::kOwn)
      Annotate("first divergence", c_.first.why.English(), &event);
    return event;
  }

  void BeginSlice(size_t call, Track track, size_t pair) {
    const auto begin = [&] { Event(call, track, event::kBegin, Slice(pair)); };
    c_.classes[pair] == CallClass::kEqual ? begin() : ForEachState(begin);
  }

  double LargestError(size_t pair) const {
    double largest = kernels::Diff::kNaN;
    const compare::RecordPair& p = c_.pairs[pair];
    for (uint32_t r = p.first_row; r < p.first_row + p.row_count; ++r) {
      const double severity = c_.measures[r].severity;
      if (!std::isnan(severity) && !(severity <= largest)) largest = severity;
    }
    return largest;
  }

  void Call(size_t pair) {
    const double error = LargestError(pair);
    if (!std::isnan(error)) {
      constexpr double kInfiniteError = 1e18;  // a counter of infinity hides all others
      Event(pair, kError, event::kCounterType,
            std::move(
                ProtobufWriter().Double(event::kDoubleCounter, std::min(error, kInfiniteError))));
    }
    if (compare::RecordOf(c_, static_cast<int32_t>(pair)).is_module) return;
    BeginSlice(pair, kCalls, pair);
    Event(pair + 1, kCalls, event::kEnd, {});
  }

  // From the first to the last call that ran in each module call.
  std::vector<Span> ModuleSpans() const {
    std::unordered_map<std::string_view, size_t> by_name;
    std::vector<Span> spans;
    std::vector<std::string_view> parents;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      const Record& record = compare::RecordOf(c_, static_cast<int32_t>(p));
      if (!record.is_module) continue;
      by_name.emplace(record.name, spans.size());
      spans.push_back({p, p + 1, p});
      parents.push_back(record.parent);
    }
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      std::string_view parent = compare::RecordOf(c_, static_cast<int32_t>(p)).parent;
      // Parents of a damaged dump may form a ring.
      for (size_t depth = 0; depth < 100 && !parent.empty(); ++depth) {
        const auto found = by_name.find(parent);
        if (found == by_name.end()) break;
        Span& span = spans[found->second];
        span.begin = std::min(span.begin, p), span.end = std::max(span.end, p + 1);
        parent = parents[found->second];
      }
    }
    return spans;
  }

  void Modules() {
    std::vector<Span> spans = ModuleSpans();
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<size_t> open;  // ends of the slices around
    const auto close_until = [&](size_t begin) {
      for (; !open.empty() && open.back() <= begin; open.pop_back())
        Event(open.back(), kModules, event::kEnd, {});
    };
    for (const Span& span : spans) {
      close_until(span.begin);
      BeginSlice(span.begin, kModules, span.pair);
      // Slices of a track are nested: one that ends after the slice around it is cut there.
      open.push_back(open.empty() ? span.end : std::min(span.end, open.back()));
    }
    close_until(c_.pairs.size());
  }

  const Comparison& c_;
  const uint64_t sequence_, first_track_;
  StepState state_ = StepState::kOwn;  // for which is written
  ExportPart part_;
  std::string bytes_;  // what follows `part_`
};

}  // namespace

ExportPart PerfettoExporter::Part(const Comparison& comparison, const PairPlace& place) const {
  return Trace(comparison, place).Make();
}

// A trace is a list of packets: parts that follow each other are one.
std::string PerfettoExporter::File(std::span<std::string> parts) const {
  std::string file;
  for (std::string& part : parts) {
    file.empty() ? void(file = std::move(part)) : void(file += part);
    part = {};
  }
  return file;
}

}  // namespace msprobe::exports
