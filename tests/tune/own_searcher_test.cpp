// Searchers that users derive, and searchers without an experiment.

#include <atomic>
#include <cmath>
#include <map>

#include "tuner_fixture.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Halves x from trial to trial, and notes what it is told.
class Halving : public tune::Searcher {
 public:
  explicit Halving(int most = 5) : most_(most) {}
  std::optional<Value> ask(std::int64_t trial) override {
    if (asked >= most_) return std::nullopt;
    ++asked;
    return Value{{"x", std::pow(0.5, static_cast<double>(trial))}};
  }
  void tell(std::int64_t trial, const std::vector<double>& values) override { told[trial] = values; }
  void observe(std::int64_t, double, double value) override { observed.push_back(value); }

  int asked = 0;
  std::map<std::int64_t, std::vector<double>> told;
  std::vector<double> observed;

 private:
  int most_;
};

Value score_of(const Value& config) {
  if (config["x"] == 0.25) throw std::runtime_error("boom");
  return {{"score", 10 * config["x"].get<double>()}};
}

const Value kSpace = {{"x", tune::uniform(0, 1.5)}, {"y", tune::uniform(5, 6)}, {"constant", "c"}};

TEST_F(TunerTest, ASearcherOfOnesOwnChooses) {
  const auto own = std::make_shared<Halving>();
  const ResultGrid grid =
      Tuner(score_of,
            options(
                kSpace,
                {.metric = "score", .mode = "max", .num_samples = 100, .search_alg = own, .max_concurrent_trials = 1}))
          .fit();
  ASSERT_EQ(grid.size(), 5);
  EXPECT_EQ(grid[3].config["x"], 0.125);
  EXPECT_EQ(grid[3].config["constant"], "c");
  for (const Result& result : grid) {
    EXPECT_GE(result.config["y"], 5);
    EXPECT_LE(result.config["y"], 6);
  }
  EXPECT_NE(grid[0].config["y"], grid[1].config["y"]);
  EXPECT_THAT(own->told[0], ElementsAre(10));
  EXPECT_THAT(own->told[2], testing::IsEmpty());
  EXPECT_THAT(own->observed, ElementsAre(10, 5, 1.25, 0.625));
}

TEST_F(TunerTest, AnExperimentWithOnesOwnSearcherIsRestored) {
  std::atomic<bool> breaks = true;
  const auto train = [&](const Value& config) -> Value {
    if (breaks && config["x"] == 0.125) throw std::runtime_error("boom");
    return {{"score", config["x"]}};
  };
  Tuner tuner(train, options(kSpace, {.metric = "score",
                                      .mode = "max",
                                      .num_samples = 100,
                                      .search_alg = std::make_shared<Halving>(8),
                                      .max_concurrent_trials = 1,
                                      .fail_fast = true}));
  EXPECT_EQ(tuner.fit().size(), 4);
  breaks = false;
  EXPECT_THAT(message_of([&] { Tuner::restore(place_ / "search", train); }), HasSubstr("search_alg is missing"));
  const auto again = std::make_shared<Halving>(8);
  const ResultGrid grid =
      Tuner::restore(place_ / "search", train, {.restart_errored = true, .search_alg = again}).fit();
  ASSERT_EQ(grid.size(), 8);
  EXPECT_EQ(grid.num_errors(), 0);
  EXPECT_EQ(grid[7].config["x"], std::pow(0.5, 7));
  EXPECT_THAT(again->told, SizeIs(8));
}

TEST_F(TunerTest, OnesOwnSearcherMustFitTheSpace) {
  class Wrong : public Halving {
    std::optional<Value> ask(std::int64_t) override { return Value{{"z", 1}}; }
  };
  EXPECT_THAT(message_of([&] {
                Tuner(score_of, options(kSpace, {.num_samples = 2, .search_alg = std::make_shared<Wrong>()})).fit();
              }),
              HasSubstr("z"));
}

TEST_F(TunerTest, WrappersTakeOnesOwnSearcher) {
  const auto own = std::make_shared<Halving>(3);
  const auto train = [](const Value& config) { return Value{{"score", config["x"]}}; };
  const ResultGrid grid =
      Tuner(train,
            options(kSpace, {.metric = "score",
                             .mode = "max",
                             .num_samples = 6,
                             .search_alg = tune::Repeater{.searcher = tune::ConcurrencyLimiter{own, 1}, .repeat = 2},
                             .max_concurrent_trials = 1}))
          .fit();
  ASSERT_EQ(grid.size(), 6);
  EXPECT_EQ(grid[0].config, grid[1].config);
  EXPECT_NE(grid[1].config["x"], grid[2].config["x"]);
  EXPECT_EQ(own->asked, 3);
  EXPECT_THAT(own->told, SizeIs(3));
}

TEST(Search, FindsTheMinimumWithoutAnExperiment) {
  tune::Search search({{"x", tune::uniform(-5, 5)}}, tune::TPESearch{.points_to_evaluate = {{{"x", 4.5}}}},
                      {.seed = 3});
  EXPECT_FALSE(search.best());
  for (int i = 0; i < 60; ++i) {
    const auto asked = search.ask();
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->id, i);
    if (i == 0) {
      EXPECT_EQ(asked->config["x"], 4.5);
    }
    const double x = asked->config["x"];
    search.tell(asked->id, i == 5 ? NAN : (x - 1) * (x - 1));
  }
  ASSERT_TRUE(search.best());
  EXPECT_LT(search.best()->values[0], 0.05);
  EXPECT_NEAR(search.best()->config["x"].get<double>(), 1, 0.25);
  EXPECT_THAT(message_of([&] { search.tell(3, 1); }), HasSubstr("told once"));
}

TEST(Search, TriesEveryPointOfAGridAndKeepsAFront) {
  tune::Search search({{"a", tune::choice({1, 2, 3})}}, tune::GridSearch{}, {.modes = {"min", "max"}, .seed = 1});
  int count = 0;
  while (const auto asked = search.ask()) {
    const double a = asked->config["a"];
    search.tell(asked->id, {a, a == 2 ? 0 : a});
    ++count;
  }
  EXPECT_EQ(count, 3);
  const auto front = search.get_pareto_front();
  ASSERT_THAT(front, SizeIs(2));
  EXPECT_THAT(front[1].values, ElementsAre(3, 3));
  const auto asked = tune::Search({{"x", tune::uniform(0, 1)}}, std::make_shared<Halving>()).ask();
  EXPECT_EQ(asked->config["x"], 1);
  EXPECT_THAT(message_of([] {
                tune::Search({{"x", 1}}, tune::TPESearch{}, {.modes = {"least"}});
              }),
              HasSubstr("mode is \"least\""));
}

}  // namespace
}  // namespace lockstep
