#include "tune/searchers.h"
#include "tune/tpe_model.h"

namespace lockstep::tune {
namespace {

/// See TpeModel.
class TpeSearcher : public PointSearcher {
 public:
  TpeSearcher(const SearcherSetup& setup, TpeSettings settings) : seed_(setup.seed), model_(setup.space, settings) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    Asked asked{Asked::Kind::point, model_.choose(fixed, random)};
    model_.start(trial, asked.point);
    return asked;
  }
  void tell(TrialNumber trial, const std::vector<double>& values) override {
    model_.finish(trial, value_or_worst(values));
  }

 private:
  std::uint64_t seed_;
  TpeModel model_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_tpe(SearcherOptions& options, const SearcherSetup& setup) {
  TpeSettings settings;
  settings.startup = options.integer("n_startup", settings.startup, 1);
  settings.candidates = options.integer("n_candidates", settings.candidates, 1, 100'000);
  settings.prior_weight = options.number("prior_weight", settings.prior_weight, 1e-3, 1e3);
  return std::make_unique<TpeSearcher>(setup, settings);
}

}  // namespace lockstep::tune
