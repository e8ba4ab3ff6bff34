#pragma once

#include <arrow/type_fwd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/shared_cache.h"
#include "data/source.h"

/// Steps of a plan: sources that read other sources. None of them reads anything when it is made.
namespace lockstep::data {

using SourcePointer = std::shared_ptr<const Source>;

/// A column of another source, under a name.
struct Selected {
  int column = 0;
  std::string name{};
};
/// Which columns, given those that there are. Throws ConfigError.
using Choose = std::function<std::vector<Selected>(const arrow::Schema&)>;

/// Some columns in another order, under other names. Others are not read.
SourcePointer select(SourcePointer from, std::string description, Choose choose);
/// The rows from `begin` to before `end`, as many as there are.
SourcePointer slice(SourcePointer from, std::int64_t begin, std::int64_t end, std::string description);
/// The rows of one source after those of the other. Their columns must have the same names; types are widened. Throws
/// ConfigError if they cannot be; later, if columns are not known yet.
SourcePointer concatenate(std::vector<SourcePointer> sources);
/// The columns of both. A name that both have gets `_1` in the second. Throws ConfigError when it is read, if the
/// numbers of rows differ.
SourcePointer zip(SourcePointer left, SourcePointer right);
/// The blocks in another order; their rows stay together.
SourcePointer shuffle_blocks(SourcePointer from, std::uint64_t seed);
/// The rows for which a condition holds. Its fields are read, and blocks are left out whose statistics rule it out.
/// Throws ConfigError if it does not fit the columns; later, if they are not known yet.
SourcePointer filter(SourcePointer from, const arrow::compute::Expression& condition);

/// The rows of a block, and its number. Called by reading threads, by several at once.
using BlockFunction =
    std::function<std::shared_ptr<arrow::Table>(const std::shared_ptr<arrow::Table>&, std::size_t block)>;

struct MapOptions {
  std::string name{};        ///< "map_batches(double)", for people
  bool keeps_rows = false;   ///< the function gives as many rows as it gets: nothing has to be counted
  bool may_be_empty = true;  ///< the function accepts no rows; only asked for its columns if there are no rows at all
};

/// What results of a function, which were made to count rows or to know the columns, may take of memory. Others are
/// made again when they are read.
inline constexpr std::int64_t kKeptBytes = 64 << 20;

/// The rows that a function gives for each block. It must give the same ones every time. Columns are those of the first
/// block that has rows; in others they are cast, or ConfigError is thrown.
SourcePointer map(SourcePointer from, BlockFunction function, MapOptions options);

using TableFunction = std::function<std::shared_ptr<arrow::Table>(const std::shared_ptr<arrow::Table>&)>;

struct WholeOptions {
  std::string description{};
  bool keeps_rows = false;    ///< as many rows as it gets
  bool keeps_schema = false;  ///< the columns that it gets
  std::size_t blocks = 0;     ///< of the result; 0: of kRowsOfBlock rows each
  bool keeps_blocks = false;  ///< the rows of the blocks stay as they are
};

/// What a function makes of all rows together, in memory, when it is first needed.
SourcePointer whole(SourcePointer from, TableFunction function, WholeOptions options);

using MakeCache = std::function<std::shared_ptr<SharedCache>()>;
/// From now on whole() steps of these plans are done by one rank of the node, for all ranks that call this with the
/// same plans. The cache, which is made if there are such steps, is for them alone; null: every rank does them for
/// itself.
void share_whole(const std::vector<SourcePointer>& sources, const MakeCache& make_cache);

/// All rows in an order that the seed tells, in memory.
SourcePointer shuffle_rows(SourcePointer from, std::uint64_t seed, std::size_t blocks);

/// All rows of a source, read by threads, in memory. `rows` gets those of each block.
std::shared_ptr<arrow::Table> read_all(const Source& source, const std::string& step,
                                       std::vector<std::int64_t>* rows = nullptr);

/// Reads a block, and adds to the meter of the source.
std::shared_ptr<arrow::Table> measured(const Source& source, std::size_t block, const std::vector<int>& columns);
/// The same for Source::read_numbers().
bool measured_numbers(const Source& source, std::size_t block, const std::vector<int>& columns, const Room& room);

struct StepStats {
  std::string step{};
  std::int64_t blocks = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::chrono::nanoseconds time{};  ///< summed over threads, without that of the steps before it
};
/// Of all steps of a plan, the last one last.
std::vector<StepStats> stats_of(const Source& source);

/// Blocks of rows in memory are this large: small, so that they are shuffled well.
inline constexpr std::int64_t kRowsOfBlock = 16'384;
/// `total` rows in blocks of kRowsOfBlock, or in `blocks` blocks whose sizes differ by at most 1.
std::vector<std::int64_t> even_blocks(std::int64_t total, std::size_t blocks = 0);

/// All columns of a schema, by number.
std::vector<int> all_columns(const arrow::Schema& schema);
/// Some columns, without rows.
std::shared_ptr<arrow::Table> empty_table(const arrow::Schema& schema, const std::vector<int>& columns);

}  // namespace lockstep::data
