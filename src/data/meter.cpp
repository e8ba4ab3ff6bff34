#include "data/meter.h"

#include <arrow/table.h>
#include <arrow/util/byte_size.h>

#include <utility>

#include "data/steps.h"

namespace lockstep::data {
namespace {

thread_local std::int64_t time_within = 0;  ///< of scopes within the one that runs

void add_stats(const Source& source, std::vector<StepStats>& steps) {
  for (const Source* each : source.inputs()) add_stats(*each, steps);
  const Meter& meter = source.meter();
  steps.push_back({source.description(), meter.blocks, meter.rows, meter.bytes,
                   std::chrono::nanoseconds(meter.nanoseconds.load())});
}

}  // namespace

Timed::Timed(Meter& meter) : meter_(meter), within_before_(std::exchange(time_within, 0)) {}

Timed::~Timed() {
  const std::int64_t taken = std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count();
  meter_.nanoseconds += taken - time_within;
  time_within = within_before_ + taken;
}

std::shared_ptr<arrow::Table> measured(const Source& source, std::size_t block, const std::vector<int>& columns) {
  const Timed timed(source.meter());
  auto table = source.read(block, columns);
  ++source.meter().blocks;
  source.meter().rows += table->num_rows();
  source.meter().bytes += arrow::util::ReferencedBufferSize(*table).ValueOr(0);
  return table;
}

bool measured_numbers(const Source& source, std::size_t block, const std::vector<int>& columns, const Room& room) {
  const Timed timed(source.meter());
  if (!source.read_numbers(block, columns, room)) return false;
  ++source.meter().blocks;
  source.meter().rows += source.rows_of_block(block);
  source.meter().bytes += static_cast<std::int64_t>(room.bytes.size());
  return true;
}

std::vector<StepStats> stats_of(const Source& source) {
  std::vector<StepStats> steps;
  add_stats(source, steps);
  return steps;
}

}  // namespace lockstep::data
