#include "tune/own_searcher.h"

#include <cmath>
#include <utility>

#include "tune/domain.h"

namespace lockstep::tune {
namespace {

class OwnSearcher final : public PointSearcher {
 public:
  OwnSearcher(std::shared_ptr<Searcher> own, const Space& space, std::vector<std::string> modes, std::uint64_t seed)
      : own_(std::move(own)), space_(space), modes_(std::move(modes)), seed_(seed) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    const std::optional<Value> config = own_->ask(trial);
    if (!config) return {Asked::Kind::wait, {}};
    Point chosen = space_.point(*config);
    for (std::size_t d = 0; d < fixed.size(); ++d)
      if (!std::isnan(fixed[d])) chosen[d] = fixed[d];
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    return {Asked::Kind::point, random_point(space_, chosen, random)};
  }

  void tell(TrialNumber trial, const std::vector<double>& values) override {
    std::vector<double> reported;
    for (std::size_t i = 0; i < values.size(); ++i) reported.push_back(as_reported(values[i], i));
    own_->tell(trial, reported);
  }

  void observe(TrialNumber trial, double budget, double value) override {
    own_->observe(trial, budget, as_reported(value, 0));
  }

 private:
  double as_reported(double value, std::size_t metric) const {
    return metric < modes_.size() && modes_[metric] == "max" ? -value : value;
  }

  std::shared_ptr<Searcher> own_;
  Space space_;
  std::vector<std::string> modes_;
  std::uint64_t seed_;
};

}  // namespace

std::shared_ptr<PointSearcher> adapted(std::shared_ptr<Searcher> own, const Space& space,
                                       std::vector<std::string> modes, std::uint64_t seed) {
  return std::make_shared<OwnSearcher>(std::move(own), space, std::move(modes), seed);
}

}  // namespace lockstep::tune
