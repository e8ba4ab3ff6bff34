#include <lockstep/error.h>
#include <lockstep/tune/search.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "base/text.h"
#include "tune/advisers.h"
#include "tune/computed_values.h"
#include "tune/experiment_settings.h"
#include "tune/own_searcher.h"
#include "tune/ranking.h"

namespace lockstep::tune {
namespace {

ExperimentSettings settings_alone(const Value& param_space, const SearchAlgorithm& searcher,
                                  const Search::Options& options) {
  ExperimentSettings settings;
  settings.param_space = param_space.is_null() ? Value::object() : param_space;
  settings.num_samples = -1;
  settings.modes = options.modes;
  for (std::size_t i = 0; i < options.modes.size(); ++i) settings.metrics.push_back("value " + std::to_string(i));
  settings.seed = options.seed ? *options.seed : std::random_device()();
  settings.searcher = searcher.own ? Value{{"kind", "custom"}} : searcher.description;
  settings.points_to_evaluate = searcher.points_to_evaluate;
  if (options.modes.empty()) throw ConfigError(R"([tune.Search] modes is empty; give "min" or "max" for each value)");
  validate(settings);
  return settings;
}

}  // namespace

struct Search::State {
  explicit State(const ExperimentSettings& settings) : modes(settings.modes), advisers(settings) {}

  std::vector<std::string> modes;
  Advisers advisers;
  std::vector<ComputeValue> functions{};  ///< of sample_from()
  std::int64_t next = 0;
  std::map<std::int64_t, Value> open{};  ///< configurations that are not told yet
  std::vector<Asked> told{};             ///< with values that are all finite

  std::vector<double> minimised(std::vector<double> values) const {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (modes[i] == "max") values[i] = -values[i];
    return values;
  }
};

Search::Search(const Value& param_space, const SearchAlgorithm& searcher) : Search(param_space, searcher, Options()) {}

Search::Search(const Value& param_space, const SearchAlgorithm& searcher, const Options& options) {
  ComputedValues computed = ComputedValues::of(param_space);
  const ExperimentSettings settings = settings_alone(computed.space, searcher, options);
  state_ = std::make_unique<State>(settings);
  state_->functions = std::move(computed.functions);
  if (searcher.own) {
    const Space space = Space::parse(settings.param_space);
    state_->advisers.use(std::shared_ptr<PointSearcher>(
        make_searcher(searcher.description, space, settings.seed, static_cast<int>(options.modes.size()),
                      adapted(searcher.own, space, options.modes, settings.seed))));
  }
}

Search::Search(Search&&) noexcept = default;
Search& Search::operator=(Search&&) noexcept = default;
Search::~Search() = default;

std::optional<Search::Asked> Search::ask() {
  const PointSearcher::Asked asked = state_->advisers.ask(state_->next);
  if (asked.kind != PointSearcher::Asked::Kind::point) return std::nullopt;
  Asked found{.id = state_->next++, .config = {}, .values = {}};
  found.config = with_computed_values(state_->functions, state_->advisers.add(found.id, asked.point));
  state_->open[found.id] = found.config;
  return found;
}

void Search::tell(std::int64_t id, double value) { tell(id, std::vector<double>{value}); }

void Search::tell(std::int64_t id, const std::vector<double>& values) {
  const auto found = state_->open.find(id);
  if (found == state_->open.end())
    throw ConfigError("[tune.Search] tell() got the id " + std::to_string(id) +
                      "; it must be one that ask() returned, told once");
  if (!values.empty() && values.size() != state_->modes.size())
    throw ConfigError("[tune.Search] tell() got " + std::to_string(values.size()) + " values; there are " +
                      std::to_string(state_->modes.size()) + " modes");
  if (!values.empty()) state_->advisers.report(id, 1, state_->minimised(values), false, true);
  state_->advisers.finish(id, values.empty());
  if (!values.empty() && std::ranges::all_of(values, [](double each) { return std::isfinite(each); }))
    state_->told.push_back({id, std::move(found->second), values});
  state_->open.erase(found);
}

std::optional<Search::Asked> Search::best() const {
  const auto score = [&](const Asked& each) { return state_->minimised(each.values)[0]; };
  const auto found = std::ranges::min_element(state_->told, {}, score);
  return found == state_->told.end() ? std::nullopt : std::optional(*found);
}

std::vector<Search::Asked> Search::get_pareto_front() const {
  std::vector<std::vector<double>> points;
  for (const Asked& each : state_->told) points.push_back(state_->minimised(each.values));
  std::vector<Asked> front;
  for (const std::size_t at : pareto_front(points)) front.push_back(state_->told[at]);
  return front;
}

}  // namespace lockstep::tune
