#pragma once

#include <functional>
#include <lockstep/value.h>
#include <string>
#include <string_view>

namespace lockstep::store {

/// data.json holds the plain values of a dict checkpoint as JSON. A value that JSON lacks is an object whose first key
/// begins with `$`:
///
///     {"$tensor": NAME}             the array of that name in tensors.safetensors; other keys may follow, see below
///     {"$dict": [[KEY, VALUE]...]}  a dict with keys that begin with `$`, or (Python) keys that are not strings
///     {"$ordered_dict": [...]}      (Python) the same, of another class; {"$counter": [...]} too
///     {"$tuple": [...]}             (Python); {"$torch_size": [...]} too
///     {"$float": "nan" | "inf" | "-inf"}
///     {"$bytes": BASE64}
///
/// and others that only Python writes and reads ($set, $frozenset, $int, $numpy, $complex, $torch_dtype, $torch_device,
/// $preprocessor, $object). "metadata" may follow $ordered_dict; C++ ignores it.
///
/// If an array from Python is not in C order, or shares its memory with others, $tensor is followed by "shape",
/// "stride" and "offset", in elements: they select the part of the flat stored array that is meant. The default is all
/// of it in C order. "dtype" says that the stored bytes are viewed as another type. "layout" gives strides that the
/// stored array has in memory; "stride" and "offset" then count in that memory.

/// Converts plain values to the form in data.json. `is_tensor` says which names {"$tensor": NAME} may have. Throws
/// ConfigError.
Value encode_data(const Value& plain, const std::function<bool(const std::string&)>& is_tensor);

/// The inverse, for C++: tuples become lists, all dicts become dicts (a key that is not a string becomes its JSON text;
/// if two keys would then be equal, the dict is left unchanged). $tensor and forms that only Python knows are left
/// unchanged.
Value decode_data(const Value& encoded);

}  // namespace lockstep::store
