// Where the calling thread is: outside of all observed calls, inside a recorded one, or inside our
// own code. The counts of the coverage are made from it.
#pragma once

#include <cstdint>

namespace msprobe::capture {

enum class Place : uint8_t {
  kOutside,   // in no listed call
  kRecorded,  // inside a call that has a record
  kIgnored,   // inside a call that the configuration leaves out
  kOurs,      // our own use of the framework
};

struct CallPlace {
  Place place = Place::kOutside;
  bool fresh = false;  // the next operation is the recorded call itself, not an operation inside it
  int modules = 0;     // number of recorded modules that are running
  int converters = 0;  // number of calls of kind kConverter that are running
  int compilers = 0;   // number of compilers that are tracing; calls that they make are not part of
                       // the training step, even if they use the program's tensors
};
inline constinit thread_local CallPlace call_place;

// Whether this process has compiled code (torch.compile). Guarded by the GIL.
inline bool compilers_seen = false;
// How many listed calls ran inside a recorded one. Guarded by the GIL.
inline int64_t nested_calls = 0;
// How many collectives ran inside a listed call. Guarded by the GIL.
inline int64_t nested_collectives = 0;
// How many listed calls a compiler made while it was tracing. Guarded by the GIL.
inline int64_t traced_calls = 0;

// Sets the place of this thread; the destructor sets the former place again.
class PlaceScope {
 public:
  explicit PlaceScope(Place place) : before_(call_place.place) { call_place.place = place; }
  ~PlaceScope() { call_place.place = before_; }
  Place before() const { return before_; }
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;

 private:
  const Place before_;
};

}  // namespace msprobe::capture
