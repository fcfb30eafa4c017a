// Where the calling thread is, seen from the observer: for counting what was observed.
#pragma once

#include <cstdint>

namespace msprobe::capture {

enum class Place : uint8_t {
  kOutside,   // of every listed call
  kRecorded,  // inside a call that has a record
  kIgnored,   // inside a call that the configuration leaves out
  kOurs,      // our own use of the framework
};

struct CallPlace {
  Place place = Place::kOutside;
  bool fresh = false;  // the next operation is the recorded call itself, not something inside it
  int modules = 0;     // recorded modules that are running
  int compilers = 0;   // that trace: what they call, also with the program's tensors, is no step
};
inline constinit thread_local CallPlace call_place;

// Listed calls inside a recorded one. Guarded by the GIL.
inline int64_t nested_calls = 0;
// Listed calls made by a compiler that traces. The same.
inline int64_t traced_calls = 0;

// Sets the place for as long as it lives.
class InPlace {
 public:
  explicit InPlace(Place place) : before_(call_place.place) { call_place.place = place; }
  ~InPlace() { call_place.place = before_; }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

 private:
  const Place before_;
};

}  // namespace msprobe::capture
