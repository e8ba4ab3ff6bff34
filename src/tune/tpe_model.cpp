#include "tune/tpe_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tune/domain.h"

namespace lockstep::tune {
namespace {

constexpr std::size_t kMostGood = 25;
constexpr std::size_t kMostOthers = 1024;

}  // namespace

TpeModel::TpeModel(const Space& space, TpeSettings settings) : space_(space), settings_(settings) {
  std::map<std::pair<int, int>, std::vector<int>> members;  // parents stand before what depends on them
  for (std::size_t d = 0; d < space.dimensions().size(); ++d) {
    const Dimension& dimension = space.dimensions()[d];
    members[{dimension.parent, dimension.parent_value}].push_back(static_cast<int>(d));
  }
  for (const auto& [parent, dimensions] : members) {
    groups_.push_back({dimensions.front(),
                       {space, dimensions, kMostGood, settings.prior_weight},
                       {space, dimensions, kMostOthers, settings.prior_weight}});
  }
}

void TpeModel::start(TrialNumber trial, const Point& point) {
  unfinished_[trial] = point;
  for (Group& group : groups_) {
    if (space_.is_active(point, group.first)) group.others.insert(trial, point);
  }
}

void TpeModel::finish(TrialNumber trial, double value) {
  auto found = unfinished_.extract(trial);
  if (!found) return;
  ++finished_;
  if (std::isfinite(value)) {
    const auto place =
        std::upper_bound(best_.begin(), best_.end(), value, [](double a, const Result& b) { return a < b.value; });
    best_.insert(place, {value, trial, std::move(found.mapped())});
  }
  const std::size_t good = std::min(static_cast<std::size_t>((finished_ + 9) / 10), kMostGood);
  for (std::size_t n = 0; n < best_.size(); ++n) {
    if (best_[n].is_good != (n < good)) set_good(best_[n], n < good);
  }
  if (best_.size() > kMostGood) best_.pop_back();
}

void TpeModel::set_good(Result& result, bool is_good) {
  result.is_good = is_good;
  for (Group& group : groups_) {
    if (!space_.is_active(result.point, group.first)) continue;
    (is_good ? group.others : group.good).erase(result.trial);
    (is_good ? group.good : group.others).insert(result.trial, result.point);
  }
}

void TpeModel::forget(TrialNumber trial) {
  if (unfinished_.erase(trial) == 0) return;
  for (Group& group : groups_) group.others.erase(trial);
}

Point TpeModel::choose(const Point& fixed, RandomNumbers& random) const {
  if (finished_ < settings_.startup) return random_point(space_, fixed, random);
  Point chosen(space_.dimensions().size(), std::numeric_limits<double>::quiet_NaN());
  for (const Group& group : groups_) {
    if (!space_.is_active(chosen, group.first)) continue;
    Point candidate = chosen;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::int64_t n = 0; n < settings_.candidates; ++n) {
      group.good.draw(candidate, fixed, random);
      const double score = group.good.log_density(candidate) - group.others.log_density(candidate);
      if (!(score > highest)) continue;
      highest = score;
      chosen = candidate;
    }
  }
  return chosen;
}

}  // namespace lockstep::tune
