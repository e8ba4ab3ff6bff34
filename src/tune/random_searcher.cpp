#include "tune/domain.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

/// Independent points: that of a trial depends on the seed and its number alone.
class RandomSearcher : public PointSearcher {
 public:
  explicit RandomSearcher(const SearcherSetup& setup) : space_(setup.space), seed_(setup.seed) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    RandomNumbers random(seed_, static_cast<std::uint64_t>(trial));
    return {Asked::Kind::point, random_point(space_, fixed, random)};
  }
  void tell(TrialNumber, const std::vector<double>&) override {}

 private:
  Space space_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_random(SearcherOptions&, const SearcherSetup& setup) {
  return std::make_unique<RandomSearcher>(setup);
}

}  // namespace lockstep::tune
