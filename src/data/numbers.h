#pragma once

#include <arrow/type_fwd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

/// Blocks whose columns are all numbers without nulls, in one piece of memory: one column after the other, each from a
/// multiple of 64 bytes on.
namespace lockstep::data {

/// What `rows` numbers of this type take, up to where the next column begins; 0 if it is no type of numbers that
/// sources can read like this.
std::size_t aligned_bytes(const arrow::DataType& type, std::int64_t rows);
/// What the columns take together; 0 if one of them is not of such a type.
std::size_t aligned_bytes(const arrow::Schema& schema, std::int64_t rows);
/// The block that lies in this memory, which it keeps alive. Any `rows` whose bytes it has.
std::shared_ptr<arrow::Table> table_of_numbers(const std::shared_ptr<arrow::Schema>& schema, std::int64_t rows,
                                               const std::shared_ptr<arrow::Buffer>& memory);

}  // namespace lockstep::data
