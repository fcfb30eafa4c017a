// NumPy's .npy files, format versions 1.0, 2.0 and 3.0.
//
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadNpy("x.npy"));
//   MSPROBE_RETURN_IF_ERROR(WriteNpy("copy.npy", t.view()));
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::formats {

// bool, (u)int8..64, float16/32/64, complex64/128. Little-endian data stay in the mapped file;
// big-endian data are swapped into memory of their own; Fortran order becomes strides. Object,
// string, date and structured arrays are kUnsupported; a header that is not the literal dictionary
// NumPy writes, or a size that does not fit the file exactly, is kInvalidDump.
Result<TensorFile> ReadNpy(const std::string& path);
Result<TensorFile> ReadNpy(MappedFile file);
bool LooksLikeNpy(std::string_view bytes);
// Dtype and shape alone, no elements: data is null.
Result<TensorFile> DescribeNpy(const MappedFile& file);

// Whether NumPy has this dtype.
bool IsNumpyDType(DType dtype);

// Writes version 1.0, C order, little-endian, whatever the view's strides. NumPy has no bfloat16,
// float8, float4 or complex32: those are kUnsupported (write a .pt). Readers see the former file or
// the new one, never half.
Status WriteNpy(const std::string& path, const TensorView& view);

}  // namespace msprobe::formats
