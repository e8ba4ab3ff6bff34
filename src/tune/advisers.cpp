#include "tune/advisers.h"

#include <lockstep/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::tune {
namespace {

bool is_custom(const Value& description) {
  return description.is_object() && description.value("kind", Value()) == "custom";
}

}  // namespace

Advisers::Advisers(const ExperimentSettings& settings) : space_(Space::parse(settings.param_space)) {
  const int objectives = std::max(1, static_cast<int>(settings.metrics.size()));
  if (!is_custom(settings.searcher)) searcher_ = make_searcher(settings.searcher, space_, settings.seed, objectives);
  if (!is_custom(settings.scheduler)) scheduler_ = make_scheduler(settings.scheduler, settings.seed);
  has_metric_ = !settings.metrics.empty();
  fifo_ = settings.scheduler.is_object() && settings.scheduler.value("kind", Value()) == "fifo";
  const std::int64_t grid = space_.grid_size();
  first_.push_back(0);
  for (const Value& config : settings.points_to_evaluate) {
    points_.push_back(space_.point(config));
    bool whole = true;  // whether the point says where in the grid it is
    for (std::size_t i = 0; i < points_.back().size(); ++i)
      whole &= !space_.dimensions()[i].grid || !std::isnan(points_.back()[i]) ||
               !space_.is_active(points_.back(), static_cast<int>(i));
    first_.push_back(first_.back() + (whole ? 1 : grid));
  }
  const auto points = static_cast<std::int64_t>(points_.size());
  total_ = settings.num_samples < 0 ? std::numeric_limits<std::int64_t>::max()
                                    : first_.back() + std::max<std::int64_t>(0, settings.num_samples - points) * grid;
}

void Advisers::check() const {
  if (!searcher_) throw ConfigError("[tune] the experiment's searcher is the caller's own; give it with use()");
  if (!scheduler_) throw ConfigError("[tune] the experiment's scheduler is the caller's own; give it with use()");
}

Point Advisers::fixed(TrialNumber trial) const {
  const std::int64_t grid = space_.grid_size();
  if (trial >= first_.back()) return space_.grid_point((trial - first_.back()) % grid);
  const auto at = static_cast<std::size_t>(std::ranges::upper_bound(first_, trial) - first_.begin() - 1);
  if (first_[at + 1] - first_[at] == 1) return points_[at];
  Point point = space_.grid_point(trial - first_[at]);
  for (std::size_t i = 0; i < point.size(); ++i)
    if (!std::isnan(points_[at][i])) point[i] = points_[at][i];
  return point;
}

Value Advisers::add(TrialNumber trial, const Point& point) {
  Value config = space_.config(point);
  if (fifo_) return config;
  config = scheduler_->complete_config(trial, std::move(config));
  scheduler_->on_added(trial, config);
  return config;
}

std::optional<TrialNumber> Advisers::choose(const TrialBook& book) {
  if (fifo_) {
    if (!book.fresh().empty()) return *book.fresh().begin();
    return book.paused().empty() ? std::nullopt : std::optional(*book.paused().begin());
  }
  scheduler_->more_to_come(book.size() < total_ && !book.exhausted());
  return scheduler_->choose({book.fresh().begin(), book.fresh().end()}, {book.paused().begin(), book.paused().end()});
}

Decision Advisers::report(TrialNumber trial, double time, const std::vector<double>& values, bool has_checkpoint,
                          bool reached) {
  // Without a metric, only advisers of the caller's are told: they know the whole results.
  if (has_metric_) last_[trial] = values;
  const double value = has_metric_ ? values[0] : 0;
  searcher_->observe(trial, time, value);
  return reached || fifo_ ? Decision{} : scheduler_->on_result(trial, time, value, has_checkpoint);
}

void Advisers::finish(TrialNumber trial, bool failed) {
  const auto last = last_.find(trial);
  if (has_metric_)
    searcher_->tell(trial, failed || last == last_.end() ? std::vector<double>() : last->second);
  else
    searcher_->tell(trial, failed ? std::vector<double>() : std::vector<double>{0});
  scheduler_->on_ended(trial, failed);
  last_.erase(trial);
}

void Advisers::repeat(const Event& event, const TrialBook& book) {
  using Kind = Event::Kind;
  switch (event.kind) {
    case Kind::ask: {
      const PointSearcher::Asked asked = ask(event.trial);
      if (!fifo_ && asked.kind == PointSearcher::Asked::Kind::point) add(event.trial, asked.point);
      break;
    }
    case Kind::wait:
    case Kind::exhausted:
      ask(event.trial);
      break;
    case Kind::start:
    case Kind::none:
      if (!fifo_) {
        choose(book);
        if (event.kind == Kind::start && book.at(event.trial).state == TrialState::paused) exploit(event.trial);
        take_dropped();
      }
      break;
    case Kind::report:
      report(event.trial, event.time, event.values, event.has_checkpoint, event.outcome == "reached");
      take_dropped();
      break;
    case Kind::checkpoint:
      checkpoint(event.trial);
      break;
    case Kind::drop:
      if (book.at(event.trial).state == TrialState::running) break;
      [[fallthrough]];
    case Kind::end:
    case Kind::fail:
      finish(event.trial, event.kind == Kind::fail);
      take_dropped();
      break;
    default:
      break;
  }
}

}  // namespace lockstep::tune
