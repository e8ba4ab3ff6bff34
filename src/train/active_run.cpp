#include "train/active_run.h"

#include <lockstep/callback.h>
#include <lockstep/error.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/text.h"
#include "driver/clock.h"
#include "sys/sockets.h"
#include "train/open_runs.h"

namespace lockstep::train {
namespace {

/// If more reports than this wait to be taken, the oldest are dropped.
constexpr std::size_t kMostReports = 10'000;

/// Waits until `event` is readable or the time is `until`. Returns whether it is readable.
bool await(const sys::Descriptor& event, std::optional<Instant> until, const ActiveRun::OnSignal& on_signal) {
  pollfd item{event.get(), POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&item, 1, driver::poll_timeout(until, now()));
    if (ready > 0) return true;
    if (ready < 0 && on_signal) on_signal();
    if (ready == 0 && until && now() >= *until) return false;
  }
}

}  // namespace

/// Passes the run's callbacks on.
class ActiveRun::Listener : public Callback {
 public:
  explicit Listener(ActiveRun& run) : run_(run) {}
  std::string name() const override { return "RunHandle"; }
  void on_start(const RunInfo&) override { run_.begun_ = true; }
  void on_result(const Value& metrics) override { run_.note_report(metrics); }

 private:
  ActiveRun& run_;
};

ActiveRun::ActiveRun(const Options& options)
    : options_(options), owner_(::getpid()), ended_(sys::event_descriptor()), news_(sys::event_descriptor()) {
  signals_ = std::make_unique<sys::SignalWatch>(options.then);
}

ActiveRun::~ActiveRun() {
  if (::getpid() != owner_)
    static_cast<void>(signals_.release());  // in a fork, signals and the directory are the parent's
  else if (prepared_)
    abandon(*prepared_);
}

void ActiveRun::prepare(driver::RunPlan plan) {
  plan.wiring.signals = signals_.get();
  plan.wiring.control = &control_;
  prepared_.emplace(train::prepare(std::move(plan)));
  path_ = prepared_->plan.directory();
}

void ActiveRun::set_finished(Result result) {
  signals_.reset();
  path_ = result.path;
  last_ = result.metrics;
  outcome_.emplace().result = std::move(result);
  end();
}

void ActiveRun::run() {
  if (over_) return;
  runner_ = std::this_thread::get_id();
  Listener listener(*this);
  if (options_.observed) prepared_->plan.options.run.callbacks.push_back(&listener);
  try {
    outcome_ = train::run(*std::exchange(prepared_, std::nullopt), options_.agent);
  } catch (...) {
    error_ = std::current_exception();
  }
  // This raises a signal that is due. Whoever waits for the run must not continue before that.
  signals_.reset();
  end();
}

void ActiveRun::note_report(const Value& metrics) {
  const std::lock_guard lock(mutex_);
  last_ = metrics;
  reports_.push_back(metrics);
  if (reports_.size() > kMostReports) {
    reports_.pop_front();
    ++dropped_;
  }
  ::eventfd_write(news_.get(), 1);
}

void ActiveRun::end() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  ::eventfd_write(ended_.get(), 1);
  ::eventfd_write(news_.get(), 1);
}

void ActiveRun::check_can_wait(const char* what) const {
  if (over_) return;
  const std::string run = "[" + std::string(what) + "] run " + in_quotes(name());
  if (::getpid() != owner_)
    throw ConfigError(run + " belongs to another process, " + std::to_string(owner_) + "; wait there");
  if (runner_ == std::this_thread::get_id()) throw ConfigError(run + " cannot end while its own callback waits for it");
}

const driver::RunOutcome& ActiveRun::wait(std::optional<Seconds> timeout, const OnSignal& on_signal) const {
  check_can_wait("wait");
  const auto until = timeout ? std::optional(now() + ticks(*timeout)) : std::nullopt;
  while (!over_) {
    if (await(ended_, until, on_signal)) continue;
    std::ostringstream text;
    text << "[wait] run " << in_quotes(name()) << " has not ended after " << timeout->count() << " s; it continues";
    throw TimeoutError(text.str());
  }
  if (error_) std::rethrow_exception(error_);
  return *outcome_;
}

std::optional<Value> ActiveRun::next(const OnSignal& on_signal) {
  for (;;) {
    check_can_wait("iterating");
    {
      const std::lock_guard lock(mutex_);
      if (!reports_.empty()) {
        Value first = std::move(reports_.front());
        reports_.pop_front();
        return first;
      }
      if (over_) return std::nullopt;
      eventfd_t count = 0;
      ::eventfd_read(news_.get(), &count);
    }
    await(news_, std::nullopt, on_signal);
  }
}

void ActiveRun::stop(bool checkpoint) {
  if (::getpid() == owner_) control_.request_stop(checkpoint);
}

std::string ActiveRun::state() const {
  if (!over_) return begun_ ? "running" : "waiting";
  return outcome_ ? outcome_->result.state : "failed";
}

Value ActiveRun::metrics() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    // In a fork, a thread that is not there may hold the lock.
    if (::getpid() != owner_) return Value::object();
    lock.lock();
  }
  return last_;
}

void run_in_background(const std::shared_ptr<ActiveRun>& run) {
  static const int registered = std::atexit(&stop_open_runs);
  static_cast<void>(registered);
  if (run->is_over()) return;
  auto body = [run, open = std::make_unique<OpenRun>(run->control())]() mutable {
    open->set_thread();
    run->run();
    open.reset();
  };
  std::thread(std::move(body)).detach();
}

}  // namespace lockstep::train
