#include "engine/model/guarded_text.h"

namespace msprobe {
namespace {

bool BeginsWithSign(std::string_view text) {
  if (text.empty()) return false;
  if (std::string_view("+-=%@").find(text[0]) != std::string_view::npos) return true;
  for (const std::string_view wide : {"＋", "－", "＝", "％", "＠"}) {
    if (text.starts_with(wide)) return true;
  }
  return false;
}

// Calls at(place, backslashes) for the beginning of the text and for each place after a ';', when a
// sign follows there, or `backslashes` backslashes and then a sign.
template <typename At>
void ForEachSign(std::string_view text, At&& at) {
  for (size_t place = 0; place < text.size();) {
    size_t sign = place;
    while (sign < text.size() && text[sign] == '\\') ++sign;
    if (BeginsWithSign(text.substr(sign))) at(place, sign - place);
    const size_t semicolon = text.find(';', sign);
    if (semicolon == std::string_view::npos) return;
    place = semicolon + 1;
  }
}

}  // namespace

std::string_view GuardText(std::string_view text, std::string* room) {
  size_t copied = 0;
  room->clear();
  ForEachSign(text, [&](size_t place, size_t) {
    room->append(text, copied, place - copied);
    *room += '\\';
    copied = place;
  });
  if (room->empty()) return text;
  return room->append(text, copied);
}

std::string_view UnguardText(std::string_view text, std::string* room) {
  size_t copied = 0;
  bool found = false;
  room->clear();
  ForEachSign(text, [&](size_t place, size_t backslashes) {
    if (backslashes == 0) return;  // not written by GuardText
    room->append(text, copied, place - copied);
    copied = place + 1;
    found = true;
  });
  if (!found) return text;
  return room->append(text, copied);
}

}  // namespace msprobe
