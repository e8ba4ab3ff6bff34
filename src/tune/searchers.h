#pragma once

#include <lockstep/value.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tune/searcher.h"

namespace lockstep::tune {

/// The options of a searcher's description. Reading one marks it as known.
class SearcherOptions {
 public:
  explicit SearcherOptions(const Value& description);

  const std::string& kind() const { return kind_; }
  std::int64_t integer(const char* name, std::int64_t otherwise, std::int64_t lowest,
                       std::int64_t highest = 1'000'000'000);
  double number(const char* name, double otherwise, double lowest, double highest);
  bool flag(const char* name, bool otherwise);
  /// The description of another searcher; a description without one is wrong.
  Value searcher();
  /// Throws ConfigError if an option was never read.
  void check_all_known() const;

 private:
  const Value* find(const char* name);
  [[noreturn]] void refuse(const char* name, const std::string& wanted) const;

  Value description_;
  std::string kind_;
  std::vector<std::string> known_;
};

/// What every searcher is made from.
struct SearcherSetup {
  const Space& space;
  std::uint64_t seed = 0;
  int objectives = 1;
  std::shared_ptr<PointSearcher> own = nullptr;  ///< the caller's; see make_searcher
};

/// One function per kind; each reads its options.
std::unique_ptr<PointSearcher> make_random(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_grid(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_sobol(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_tpe(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_cmaes(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_gp(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_nsga2(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_bohb(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_limit(SearcherOptions& options, const SearcherSetup& setup);
std::unique_ptr<PointSearcher> make_repeat(SearcherOptions& options, const SearcherSetup& setup);

std::unique_ptr<PointSearcher> make_own(SearcherOptions& options, const SearcherSetup& setup);

/// The one value of a trial, to be minimised. A trial that failed, or whose value is not a number, counts as the worst:
/// infinity.
double value_or_worst(const std::vector<double>& values);

}  // namespace lockstep::tune
