#include "data/iterator.h"

#include <arrow/record_batch.h>
#include <arrow/table.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "data/status.h"

namespace lockstep::data {
namespace {

/// More rows than these, here and there in a block, are copied together instead of shared one by one.
constexpr std::size_t kMaxSlices = 16;

/// Adds the time until its end to a sum of nanoseconds.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::int64_t>& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::int64_t>& sum_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace

Pass::Pass(Dataset dataset, const OrderOptions& order, Start start, const PassOptions& options)
    : dataset_(std::move(dataset)),
      order_(dataset_.rows_of_blocks(), order, start.epoch),
      deal_(order_.total(), start.position, options.deal),
      prefetch_(options.prefetch),
      memory_(options.memory ? options.memory : std::make_shared<ReusedMemory>(1)),
      prefetcher_([this] { return next_work(); }, options.prefetch) {
  if (options.prefetch < 1)
    throw ConfigError("[data] prefetch is " + std::to_string(options.prefetch) + "; it must be 1 or more");
  if (options.cache) shared_.emplace(options.cache, dataset_, start.epoch);
}

Pass::~Pass() {
  prefetcher_.stop();
  if (!shared_) return;
  for (const auto& [number, held] : blocks_) shared_->done(number);
}

void Pass::start() {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  prefetcher_.start(std::min(prefetch_, cores));
}

std::optional<Pass::Job> Pass::next_job() {
  if (next_batch_ == deal_.batches()) return std::nullopt;
  Job job{order_.unit_at(deal_.batch(next_batch_).begin + next_row_), {}};
  for (; next_batch_ < deal_.batches(); ++next_batch_, next_row_ = 0) {
    const Range batch = deal_.batch(next_batch_);
    const Range wanted{batch.begin + next_row_, std::min(batch.end, job.unit.end)};
    if (wanted.begin < job.unit.begin || wanted.begin >= job.unit.end) break;
    if (!job.places.empty() && job.places.back().end == wanted.begin)
      job.places.back().end = wanted.end;
    else
      job.places.push_back(wanted);
    if (wanted.end < batch.end) {
      next_row_ = wanted.end - batch.begin;
      break;
    }
  }
  return job;
}

std::optional<Prefetcher<Pass::Pieces>::Work> Pass::next_work() {
  auto job = next_job();
  if (!job) return std::nullopt;
  const std::lock_guard lock(mutex_);
  running_.insert(job->unit.begin);
  upcoming_ =
      next_batch_ < deal_.batches() ? order_.unit_at(deal_.batch(next_batch_).begin + next_row_).begin : order_.total();
  return [this, job = std::move(*job)] { return done(job); };
}

Pass::Pieces Pass::done(const Job& job) {
  Pieces pieces = read(job);
  release_blocks(job);
  return pieces;
}

Pass::Pieces Pass::read(const Job& job) {
  std::vector<std::shared_ptr<arrow::Table>> tables;
  bool is_shared = false;
  std::int64_t at = job.unit.begin;
  for (const Part& part : order_.parts_of(job.unit)) {
    const std::int64_t end = at + dataset_.rows_of_blocks()[part.block] - part.first;
    const SharedBlocks::Got got = block(part.block, end);
    tables.push_back(got.table->Slice(part.first, part.count));
    is_shared = got.is_shared;
    at += part.count;
  }
  const Stopwatch stopwatch(shuffling_);
  if (order_.is_shuffled() || job.places.size() > kMaxSlices)
    return {{gathered(tables, order_.permuted(job.unit, job.places), *memory_)}};
  const auto unit = value_of(tables.front()->CombineChunksToBatch(), "a block");  // of which there is one
  const bool is_borrowed = !is_shared && dataset_.is_borrowed();
  Pieces pieces;
  for (const Range& places : job.places)
    pieces.push_back({unit->Slice(places.begin - job.unit.begin, places.size()), is_borrowed});
  return pieces;
}

SharedBlocks::Got Pass::block(std::size_t number, std::int64_t end) {
  std::promise<SharedBlocks::Got> promise;
  std::shared_future<SharedBlocks::Got> held;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = blocks_.find(number); found != blocks_.end())
      held = found->second.got;
    else
      blocks_.emplace(number, HeldBlock{promise.get_future().share(), end});
  }
  if (held.valid()) return held.get();  // another thread reads it, or has read it
  try {
    const Stopwatch stopwatch(reading_);
    auto got = read_block(number, end);
    promise.set_value(got);
    return got;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

SharedBlocks::Got Pass::read_block(std::size_t number, std::int64_t end) {
  if (!shared_) return {dataset_.read(number)};
  return shared_->get(number, order_.next_blocks(end, shared_->ahead()));
}

void Pass::release_blocks(const Job& finished) {
  const std::lock_guard lock(mutex_);
  running_.erase(running_.find(finished.unit.begin));
  const std::int64_t needed = running_.empty() ? upcoming_ : std::min(*running_.begin(), upcoming_);
  std::erase_if(blocks_, [&](const auto& each) {
    const bool is_over = each.second.end <= needed;
    if (is_over && shared_) shared_->done(each.first);
    return is_over;
  });
}

std::int64_t Pass::rows_of_next(std::int64_t count) const {
  std::int64_t rows = 0;
  for (std::int64_t n = given_; n < std::min(given_ + count, deal_.batches()); ++n) rows += deal_.batch(n).size();
  return rows;
}

bool Pass::wait(std::chrono::milliseconds timeout, std::int64_t count) {
  const std::int64_t wanted = rows_of_next(count);
  while (waiting_rows_ < wanted) {
    if (!prefetcher_.wait(timeout)) return false;
    auto more = prefetcher_.take();
    if (!more) throw InternalError("[data] the data ended before the batch " + std::to_string(given_));
    for (auto& piece : *more) {
      waiting_rows_ += piece.rows->num_rows();
      pieces_.push_back(std::move(piece));
    }
  }
  return true;
}

std::shared_ptr<arrow::RecordBatch> Pass::next(std::int64_t count) {
  while (!wait(std::chrono::hours(1), count)) {
  }
  if (given_ == deal_.batches()) return nullptr;
  const std::int64_t wanted = rows_of_next(count);
  std::vector<std::shared_ptr<arrow::RecordBatch>> taken;
  for (std::int64_t left = wanted; left > 0;) {
    Piece& front = pieces_.front();
    const std::int64_t rows = std::min(left, front.rows->num_rows());
    const bool is_all = rows == front.rows->num_rows();
    taken.push_back(is_all ? front.rows : front.rows->Slice(0, rows));
    is_borrowed_ = front.is_borrowed;
    left -= rows;
    if (is_all)
      pieces_.pop_front();
    else
      front.rows = front.rows->Slice(rows);
  }
  is_borrowed_ = is_borrowed_ && taken.size() == 1;  // several are copied into one
  waiting_rows_ -= wanted;
  given_ = std::min(given_ + count, deal_.batches());
  return taken.size() == 1 ? taken.front() : value_of(arrow::ConcatenateRecordBatches(taken), "a batch");
}

Iterator::Iterator(Dataset dataset, const IteratorOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      memory_(std::make_shared<ReusedMemory>(static_cast<std::size_t>(std::max(options.prefetch, 0)) + 1)),
      cursor_(dataset_.fingerprint(), dataset_.count(), options.order) {
  const EpochOrder checked(dataset_.rows_of_blocks(), options.order, 0);
  const Deal dealt(checked.total(), 0, {.rank = options.rank, .world = options.world});
}

std::shared_ptr<Pass> Iterator::begin(std::int64_t batch_size, bool drop_last) {
  const DealOptions deal{.rank = options_.rank,
                         .world = options_.world,
                         .batch_size = batch_size,
                         .tail = options_.tail,
                         .drop_last = drop_last};
  const Deal checked(dataset_.count(), 0, deal);  // before the cursor moves
  dataset_.source()->prepare();                   // here, because the caller can be interrupted
  dataset_.schema();
  auto pass = std::make_shared<Pass>(
      dataset_, options_.order, cursor_.begin(),
      PassOptions{.deal = deal, .prefetch = options_.prefetch, .cache = options_.cache, .memory = memory_});
  pass->start();
  pass_ = pass;
  return pass;
}

std::shared_ptr<arrow::RecordBatch> Iterator::next(Pass& pass) {
  auto batch = pass.next();
  if (batch)
    move(pass, pass.given());
  else
    finish(pass);
  return batch;
}

void Iterator::move(const Pass& pass, std::int64_t given) {
  if (pass_.lock().get() == &pass) cursor_.advance(pass.position_after(given));
}

void Iterator::finish(const Pass& pass) {
  if (pass_.lock().get() != &pass) return;
  cursor_.finish();
  pass_.reset();
}

}  // namespace lockstep::data
