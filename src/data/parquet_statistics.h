#pragma once

#include <arrow/type_fwd.h>

namespace arrow::compute {
class Expression;
}
namespace parquet {
class FileMetaData;
}

namespace lockstep::data {

/// Whether rows of a row group can satisfy a condition that is bound to `schema`, by the smallest and largest values in
/// the footer. True if that is not known.
bool row_group_may_match(const parquet::FileMetaData& footer, int row_group, const arrow::Schema& schema,
                         const arrow::compute::Expression& condition);

}  // namespace lockstep::data
