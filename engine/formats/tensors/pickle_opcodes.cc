#include "engine/formats/tensors/pickle_opcodes.h"

#include <fmt/format.h>

#include <string_view>

namespace msprobe::formats {
namespace {

std::string_view RefusedName(uint8_t opcode) {
  switch (opcode) {
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 'P':
      return "PERSID";
    case 'I':
      return "INT";
    case 'L':
      return "LONG";
    case 'F':
      return "FLOAT";
    case 'S':
      return "STRING";
    case 'V':
      return "UNICODE";
    case 'p':
      return "PUT";
    case 'g':
      return "GET";
    case '2':
      return "DUP";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return "";
  }
}

}  // namespace

std::string OpcodeText(uint8_t opcode) {
  const std::string_view name = RefusedName(opcode);
  return name.empty() ? fmt::format("0x{:02x}", opcode)
                      : fmt::format("{} (0x{:02x})", name, opcode);
}

}  // namespace msprobe::formats
