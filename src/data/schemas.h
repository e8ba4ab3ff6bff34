#pragma once

#include <arrow/type_fwd.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::data {

/// "3 files", "1 file".
std::string counted(std::size_t count, const std::string& noun);

/// Throws StorageError that names the first difference of names, order or types. Whether a column may have nulls does
/// not matter.
void check_same_schema(const arrow::Schema& expected, const std::string& expected_file, const arrow::Schema& schema,
                       const std::string& file);

/// The columns of `known`, then those that only `schema` has. Types of a column become one that holds the values of
/// both: numbers widen, nulls become anything. Throws StorageError that names a column for which there is none.
std::shared_ptr<arrow::Schema> merged(const arrow::Schema& known, const std::string& known_file,
                                      const arrow::Schema& schema, const std::string& file);

/// `schema`, where columns without a type, and such parts of structs and lists, have the types of `more`.
std::shared_ptr<arrow::Schema> with_types_for_nulls(const arrow::Schema& schema, const arrow::Schema& more);

/// `array` as `type`. Throws StorageError that names the place.
std::shared_ptr<arrow::ChunkedArray> converted(const std::shared_ptr<arrow::ChunkedArray>& array,
                                               const std::shared_ptr<arrow::DataType>& type, const std::string& where);

/// `rows` nulls.
std::shared_ptr<arrow::ChunkedArray> nulls(const std::shared_ptr<arrow::DataType>& type, std::int64_t rows);

}  // namespace lockstep::data
