#include "tune/plots.h"

#include <gmock/gmock.h>
#include <lockstep/error.h>

#include <cmath>
#include <limits>
#include <regex>

#include "tune/plot_data.h"
#include "tune/svg.h"

namespace lockstep::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
const std::vector<std::string> kKinds{"history", "parallel", "importance", "contour", "pareto"};

Chart chart_of_size(int trials) {
  Chart chart;
  chart.title = "digits";
  chart.dimensions = {{"lr", {.kind = Domain::Kind::real, .lower = 1e-4, .upper = 0.1, .log = true}},
                      {"net", {.kind = Domain::Kind::category, .choices = 2}},
                      {"depth", {.kind = Domain::Kind::integer, .lower = 1, .upper = 8}, false, 1, 1}};
  chart.labels = {{}, {"small", "large"}, {}};
  chart.metrics = {{"loss", false}, {"accuracy", true}};
  for (int i = 0; i < trials; ++i)
    chart.trials.push_back({"trial_" + std::to_string(i),
                            "terminated",
                            {1e-4 * std::pow(10, i % 4 * 0.9), i % 2 * 1.0, i % 2 == 1 ? 1.0 + i % 8 : kMissing},
                            {1.0 / (1 + i), 0.5 + i * 0.001}});
  return chart;
}

/// Every tag is closed, and attributes and texts hold no markup.
void expect_well_formed(const std::string& page) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z0-9]+)((?:[^<>\"']|\"[^\"<>]*\"|'[^'<>]*')*?)(/?)>");
  std::size_t end = 0;
  for (std::sregex_iterator found(page.begin(), page.end(), tag), none; found != none; ++found) {
    end = static_cast<std::size_t>(found->position() + found->length());
    const std::string name = (*found)[2];
    if (name == "meta" || (*found)[4] == "/") continue;
    if ((*found)[1] == "/") {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(end, page.size() - 1) << "all but the last newline is in tags";
}

std::string plot(const Chart& chart, const std::string& kind) { return plot_html(chart, {.kind = kind}); }

TEST(Plots, AreWellFormedAndLoadNothing) {
  for (const std::string& kind : kKinds) {
    SCOPED_TRACE(kind);
    const std::string page = plot(chart_of_size(40), kind);
    expect_well_formed(page);
    EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
    const std::string rest = std::regex_replace(page, std::regex("http://www.w3.org/2000/svg"), "");
    for (const char* word : {"http:", "https:", "<script", "<link", "src=", "href", "url(", "@import", "nan'", "inf'"})
      EXPECT_THAT(rest, Not(HasSubstr(word))) << word;
  }
}

TEST(Plots, HostileNamesAreText) {
  const std::string hostile = "</title><script>alert('x')</script>\"&\x01\xff";
  Chart chart = chart_of_size(30);
  chart.title = hostile;
  for (auto& dimension : chart.dimensions) dimension.name = hostile + dimension.name;
  for (auto& metric : chart.metrics) metric.name += hostile;
  for (auto& trial : chart.trials) trial.name = trial.state = hostile;
  chart.labels[1] = {hostile, hostile};
  for (const std::string& kind : kKinds) {
    SCOPED_TRACE(kind);
    const std::string page = plot(chart, kind);
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, Not(HasSubstr("alert('x')")));
    EXPECT_THAT(page, Not(HasSubstr("\x01")));
    EXPECT_THAT(page, Not(HasSubstr("\xff")));
    EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
    expect_well_formed(page);
  }
}

TEST(Plots, OfFewOrOddTrials) {
  for (const int count : {0, 1, 2}) {
    for (const std::string& kind : kKinds) {
      SCOPED_TRACE(kind + " of " + std::to_string(count));
      expect_well_formed(plot(chart_of_size(count), kind));
    }
  }
  Chart odd = chart_of_size(8);
  const double infinity = std::numeric_limits<double>::infinity();
  odd.trials[0].values = {kMissing, infinity};
  odd.trials[1].values = {infinity, 1};
  odd.trials[2].values = {-infinity, kMissing};
  odd.trials[3].values = {1e308, -1e308};
  odd.trials[4].values = {-1e308, 1e308};
  odd.trials[5].values = {5e-324, 0};
  odd.trials[6].point = {kMissing, kMissing, kMissing};
  odd.trials[7].point = {-5, 17, 1e9};
  for (const std::string& kind : kKinds) {
    SCOPED_TRACE(kind);
    const std::string page = plot(odd, kind);
    expect_well_formed(page);
    for (const char* bad : {"='nan", "='inf", "='-inf", "='-nan"}) EXPECT_THAT(page, Not(HasSubstr(bad)));
  }
  Chart none = odd;
  for (auto& trial : none.trials) trial.values = {kMissing, kMissing};
  EXPECT_THAT(plot(none, "history"), HasSubstr("no trial has reported this metric yet"));
}

TEST(Plots, HistoryShowsTheBest) {
  Chart chart = chart_of_size(10);
  EXPECT_THAT(plot(chart, "history"), HasSubstr("the best of all is trial_9 with 0.1."));
  chart.metrics[0].maximize = true;
  EXPECT_THAT(plot(chart, "history"), HasSubstr("the best of all is trial_0 with 1."));
}

TEST(Plots, OfManyTrialsDrawTheBest) {
  const Chart chart = chart_of_size(20000);
  const std::string page = plot(chart, "history");
  EXPECT_THAT(page, HasSubstr("5000 of 20000 trials are drawn."));
  EXPECT_THAT(page, HasSubstr(">trial_19999, terminated; loss = 5e-05"));
  EXPECT_LT(page.size(), 2'000'000);
  EXPECT_EQ(drawn_trials(chart, 0, 100).size(), 100);
}

TEST(Plots, TheFrontIsWhatNothingBeats) {
  Chart chart = chart_of_size(0);
  const std::vector<std::vector<double>> values{{1, 0.5}, {2, 0.9},      {2, 0.8}, {3, 0.9},
                                                {1, 0.5}, {kMissing, 1}, {4, 0.95}};
  for (const auto& pair : values) chart.trials.push_back({"t", "", {0.01, 0, kMissing}, pair});
  EXPECT_THAT(chart.pareto_front(0, 1), ElementsAre(0, 4, 1, 6));
  chart.metrics[1].maximize = false;
  EXPECT_THAT(chart.pareto_front(0, 1), ElementsAre(0, 4));
}

TEST(Plots, ContourTakesTheMostImportantParameters) {
  Chart chart = chart_of_size(0);
  chart.dimensions[2].parent = -1;
  for (int i = 0; i < 300; ++i) {
    const double lr = 1e-4 * std::pow(10, i % 10 * 0.3), depth = 1 + i % 7, net = i % 2;
    chart.trials.push_back({"t", "", {lr, net, depth}, {5 * std::log10(lr) + 4 * depth, 0}});
  }
  EXPECT_EQ(chosen_pair(chart, {.kind = "contour"}).first + chosen_pair(chart, {.kind = "contour"}).second, 2U)
      << "lr, depth";
  EXPECT_EQ(chosen_pair(chart, {.kind = "contour", .x = "net"}).first, 1U);
  EXPECT_EQ(chosen_pair(chart, {.kind = "contour", .y = "net"}).second, 1U);
  const auto named = chosen_pair(chart, {.kind = "contour", .x = "depth", .y = "net"});
  EXPECT_EQ(named, (std::pair<std::size_t, std::size_t>{2, 1}));
}

TEST(Plots, ErrorsNameWhatThereIs) {
  const auto message = [](const Chart& chart, const PlotOptions& options) -> std::string {
    try {
      plot_html(chart, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  Chart chart = chart_of_size(5);
  EXPECT_THAT(message(chart, {.kind = "pie"}), HasSubstr("history, parallel, importance, contour, pareto"));
  EXPECT_THAT(message(chart, {.metric = "los"}), HasSubstr("no metric \"los\"; there are: loss, accuracy"));
  EXPECT_THAT(message(chart, {.kind = "contour", .x = "lrr"}), HasSubstr("no parameter \"lrr\""));
  EXPECT_THAT(message(chart, {.kind = "contour", .x = "lr", .y = "lr"}), HasSubstr("two different parameters"));
  chart.metrics.resize(1);
  EXPECT_THAT(message(chart, {.kind = "pareto"}), HasSubstr("needs two metrics"));
  chart.metrics.clear();
  EXPECT_THAT(message(chart, {}), HasSubstr("has no metric"));
}

TEST(Plots, AxesHaveRoundTicks) {
  EXPECT_THAT((Axis{0, 10, false, 0, 1}).ticks(), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT((Axis{1e-4, 0.1, true, 0, 1}).ticks().size(), 4);
  EXPECT_TRUE(Axis::around({1e-5, 1}, 0, 1).log);
  EXPECT_FALSE(Axis::around({-1e-5, 1}, 0, 1).log);
  EXPECT_FALSE(Axis::around({}, 0, 1).ticks().empty());
  EXPECT_FALSE(Axis::around({3, 3}, 0, 1).ticks().empty());
}

}  // namespace
}  // namespace lockstep::tune
