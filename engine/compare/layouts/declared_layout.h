// What the user says of parallel layouts: --layout FILE (docs/howto/compare-other-layouts.md).
//
//   MSPROBE_ASSIGN_OR_RETURN(DeclaredLayout declared, DeclaredLayout::Read("layout.yaml"));
//   const DeclaredSide side(declared.target_mesh, declared);
//   if (const DeclaredDims* dims = declared.DimsOf(names))
//     Print(side.LayoutOf(*dims, parts, runs, whole, names[0]).ok());
//
// A rank's coordinates in the mesh are its number, written with the sizes of the axes: the last
// axis counts fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/layouts/value_layout.h"

namespace msprobe::compare::layouts {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

// One dimension of a value: "b", "s/cp", "(h/tp d)", "(3 h/tp d)".
struct DeclaredDim {
  std::vector<std::string> axes;  // along which it is divided
  bool in_pieces =
      false;  // what is divided stands behind another factor: each rank has several pieces
};

struct DeclaredDims {
  std::string pattern, text;  // "*.attn.qkv.*", "b s (h/tp d)"
  std::vector<DeclaredDim> dims;
  std::vector<std::string> added;  // "+tp": the ranks along the axis have addends
  uint64_t line = 0;               // in the file
};

struct DeclaredLayout {
  std::string path;  // of the file
  std::vector<MeshAxis> target_mesh, golden_mesh;
  std::vector<DeclaredDims> dims;
  std::set<std::string> zigzag;                              // axes
  std::vector<std::pair<std::string, std::string>> modules;  // the target's, the golden's
  std::optional<double> gradient_factor;
  std::vector<std::string> ignored;

  // Errors: kNotFound; kInvalidConfig with the line: a key that is not known, what is no mesh, dims
  // that name an axis of no mesh.
  static Result<DeclaredLayout> Read(const std::string& path);

  // Of a value that has these names, the first that matches; null: none does.
  const DeclaredDims* DimsOf(std::span<const std::string> names) const;
  bool Ignores(std::span<const std::string> names) const;
};

// One side of a comparison, as its mesh says.
class DeclaredSide {
 public:
  DeclaredSide(std::span<const MeshAxis> mesh, const DeclaredLayout& declared)
      : mesh_(mesh), declared_(declared) {}

  // An error: the mesh has another number of ranks than the run.
  Status Check(size_t ranks, const std::string& run) const;
  // The shape of the whole of which these are the parts.
  Result<std::vector<int64_t>> WholeOf(const DeclaredDims& dims, std::span<const ValuePart> parts,
                                       std::span<const RankRun> runs, std::string_view name) const;
  // How the parts lie. Errors: as WholeOf; the parts do not make the whole.
  Result<ValueLayout> LayoutOf(const DeclaredDims& dims, std::span<const ValuePart> parts,
                               std::span<const RankRun> runs, Shape whole,
                               std::string_view name) const;

 private:
  struct Axis {
    int64_t size = 1, stride = 1;
  };
  std::optional<Axis> AxisOf(const std::string& name) const;
  Status Contradicted(const DeclaredDims& dims, Message expected, Shape found,
                      std::string_view name, int32_t rank) const;

  std::span<const MeshAxis> mesh_;
  const DeclaredLayout& declared_;
};

}  // namespace msprobe::compare::layouts
