#include <lockstep/error.h>

#include "tune/domain.h"
#include "tune/searchers.h"
#include "tune/sobol.h"

namespace lockstep::tune {
namespace {

/// Point n of a scrambled Sobol sequence is that of trial n.
class SobolSearcher : public PointSearcher {
 public:
  explicit SobolSearcher(const SearcherSetup& setup)
      : space_(setup.space), sequence_(static_cast<int>(setup.space.dimensions().size()), setup.seed) {}

  Asked ask(TrialNumber trial, const Point& fixed) override {
    return {Asked::Kind::point, filled(space_, fixed, [&](int d) {
              const double place = sequence_.at(static_cast<std::uint64_t>(trial), d);
              return from_unit(space_.dimensions()[static_cast<std::size_t>(d)].domain, place);
            })};
  }
  void tell(TrialNumber, const std::vector<double>&) override {}

 private:
  Space space_;
  SobolSequence sequence_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_sobol(SearcherOptions&, const SearcherSetup& setup) {
  const std::size_t dimensions = setup.space.dimensions().size();
  if (dimensions > SobolSequence::kMostDimensions) {
    throw ConfigError("[tune.search] sobol: the space has " + std::to_string(dimensions) +
                      " parameters; at most 1000 are possible, use random");
  }
  return std::make_unique<SobolSearcher>(setup);
}

}  // namespace lockstep::tune
