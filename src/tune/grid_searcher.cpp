#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "tune/domain.h"
#include "tune/searchers.h"

namespace lockstep::tune {
namespace {

/// All combinations of values, the last dimension fastest. A dimension with more values than `steps`, or infinitely
/// many, has `steps` of them, evenly spaced on its scale with both bounds. Categories have all values.
class GridSearcher : public PointSearcher {
 public:
  GridSearcher(const SearcherSetup& setup, std::int64_t steps) : space_(setup.space) {
    for (const auto& dimension : space_.dimensions()) values_.push_back(values_of(dimension.domain, steps));
  }

  Asked ask(TrialNumber, const Point& fixed) override {
    // Every combination of what the experiment fixes has its own way through the grid.
    std::vector<std::uint64_t> key;
    for (const double value : fixed) key.push_back(std::bit_cast<std::uint64_t>(value));
    auto [place, is_new] = places_.try_emplace(std::move(key), std::vector<std::size_t>(values_.size(), 0));
    std::vector<std::size_t>& counters = place->second;
    if (!is_new && !advance(counters, fixed)) return {Asked::Kind::exhausted, {}};
    return {Asked::Kind::point, at(counters, fixed)};
  }
  void tell(TrialNumber, const std::vector<double>&) override {}

 private:
  static std::vector<double> values_of(const Domain& domain, std::int64_t steps) {
    const std::int64_t count = count_values(domain);
    std::vector<double> values;
    if (domain.kind == Domain::Kind::category || (count > 0 && count <= steps)) {
      for (std::int64_t n = 0; n < count; ++n) {
        values.push_back(domain.kind == Domain::Kind::category
                             ? static_cast<double>(n)
                             : std::min(domain.lower + static_cast<double>(n) * domain.quantum, domain.upper));
      }
      return values;
    }
    for (std::int64_t n = 0; n < steps; ++n) {
      // Quantiles for a normal domain, whose bounds are infinite.
      const double unit = domain.kind == Domain::Kind::normal
                              ? (static_cast<double>(n) + 0.5) / static_cast<double>(steps)
                              : static_cast<double>(n) / static_cast<double>(std::max<std::int64_t>(steps - 1, 1));
      const double value = from_unit(domain, steps == 1 ? 0.5 : unit);
      if (values.empty() || value > values.back()) values.push_back(value);
    }
    return values;
  }

  Point at(const std::vector<std::size_t>& counters, const Point& fixed) const {
    return filled(space_, fixed, [&](int d) { return values_[d][counters[d]]; });
  }

  /// Steps to the next point. False: there is none, and the counters stay.
  bool advance(std::vector<std::size_t>& counters, const Point& fixed) const {
    const Point now = at(counters, fixed);
    for (std::size_t d = counters.size(); d-- > 0;) {
      const bool is_open = d >= fixed.size() || std::isnan(fixed[d]);
      if (std::isnan(now[d]) || !is_open || counters[d] + 1 >= values_[d].size()) continue;
      ++counters[d];
      std::fill(counters.begin() + static_cast<std::ptrdiff_t>(d) + 1, counters.end(), 0);
      return true;
    }
    return false;
  }

  Space space_;
  std::vector<std::vector<double>> values_;
  std::map<std::vector<std::uint64_t>, std::vector<std::size_t>> places_;
};

}  // namespace

std::unique_ptr<PointSearcher> make_grid(SearcherOptions& options, const SearcherSetup& setup) {
  return std::make_unique<GridSearcher>(setup, options.integer("steps", 5, 1, 1'000'000));
}

}  // namespace lockstep::tune
