#pragma once

#include <functional>
#include <lockstep/value.h>
#include <string>
#include <string_view>

namespace lockstep::store {

/// data.json holds the plain values of a dict checkpoint as JSON. What JSON lacks stands as an object whose first key
/// begins with `$`:
///
///     {"$tensor": NAME}             the array of that name in tensors.safetensors; other keys may follow, see below
///     {"$dict": [[KEY, VALUE]...]}  a dict that has keys which begin with `$`, or (Python) keys that are no strings
///     {"$ordered_dict": [...]}      (Python) the same, of another class; {"$counter": [...]} too
///     {"$tuple": [...]}             (Python); {"$torch_size": [...]} too
///     {"$float": "nan" | "inf" | "-inf"}
///     {"$bytes": BASE64}
///
/// and others that only Python writes and reads ($set, $frozenset, $int, $numpy, $complex, $torch_dtype, $torch_device,
/// $object). Behind $ordered_dict may stand "metadata", which C++ leaves out.
///
/// Where an array of Python's does not lie in C order, or shares its memory with others, $tensor is followed by
/// "shape", "stride" and "offset", in elements: the part of the stored array, taken as flat, that is meant. By default
/// that is all of it in C order. "dtype" says that the stored bytes are seen as another type; "layout" are strides that
/// the stored array has in memory, and then "stride" and "offset" count in that memory.

/// Plain values to what data.json holds. `is_tensor` says which names {"$tensor": NAME} may have. Throws ConfigError.
Value encode_data(const Value& plain, const std::function<bool(const std::string&)>& is_tensor);

/// The inverse, for C++: lists for tuples, dicts for all dicts (a key that is no string becomes its JSON text, unless
/// two keys would then be the same: such a dict stays as it is). $tensor and what only Python knows stay as they are.
Value decode_data(const Value& encoded);

}  // namespace lockstep::store
