#pragma once

#include <array>
#include <cmath>
#include <numbers>

#include "tune/searcher.h"

namespace lockstep::tune {

/// A function to measure searchers with: its space, and its value for a configuration, to be minimised.
struct TestFunction {
  const char* name;
  Value space;
  double (*value)(const Value& config);
};

inline Value uniform_domain(double lower, double upper) {
  return {{"$domain", {{"kind", "uniform"}, {"lower", lower}, {"upper", upper}}}};
}

inline Value uniform_space(int dimensions, double lower, double upper) {
  Value space = Value::object();
  for (int n = 0; n < dimensions; ++n) space["x" + std::to_string(n)] = uniform_domain(lower, upper);
  return space;
}

inline double number_of(const Value& config, int n) { return config.at("x" + std::to_string(n)).get<double>(); }

/// The least value is 0.397887.
inline TestFunction branin() {
  Value space{{"x0", uniform_domain(-5, 10)}, {"x1", uniform_domain(0, 15)}};
  return {"branin", std::move(space), [](const Value& config) {
            const double x = number_of(config, 0), y = number_of(config, 1), pi = std::numbers::pi;
            const double curve = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
            return curve * curve + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10;
          }};
}

/// Six dimensions; the least value is -3.32237.
inline TestFunction hartmann() {
  return {
      "hartmann6", uniform_space(6, 0, 1), [](const Value& config) {
        constexpr std::array<double, 4> kHeights{1, 1.2, 3, 3.2};
        constexpr double kScales[4][6] = {
            {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
        constexpr double kCentres[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                                           {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                                           {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                                           {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
        double sum = 0;
        for (int peak = 0; peak < 4; ++peak) {
          double distance = 0;
          for (int n = 0; n < 6; ++n) {
            const double difference = number_of(config, n) - kCentres[peak][n];
            distance += kScales[peak][n] * difference * difference;
          }
          sum -= kHeights[static_cast<std::size_t>(peak)] * std::exp(-distance);
        }
        return sum;
      }};
}

/// Five dimensions; the least value is 0.
inline TestFunction rosenbrock() {
  return {"rosenbrock5", uniform_space(5, -5, 10), [](const Value& config) {
            double sum = 0;
            for (int n = 0; n < 4; ++n) {
              const double x = number_of(config, n), next = number_of(config, n + 1);
              sum += 100 * (next - x * x) * (next - x * x) + (1 - x) * (1 - x);
            }
            return sum;
          }};
}

/// A choice of two models with parameters of their own: logarithmic, integer and quantised ones. The least value is 0.
inline TestFunction conditional() {
  Value space = Value::parse(R"({
    "rate": {"$domain": {"kind": "loguniform", "lower": 1e-5, "upper": 1}},
    "model": {"$domain": {"kind": "choice", "values": [
      {"kind": "tree", "depth": {"$domain": {"kind": "randint", "lower": 1, "upper": 21}},
       "share": {"$domain": {"kind": "quniform", "lower": 0, "upper": 1, "q": 0.05}}},
      {"kind": "net", "width": {"$domain": {"kind": "lograndint", "lower": 4, "upper": 1024}},
       "drop": {"$domain": {"kind": "uniform", "lower": 0, "upper": 1}},
       "bias": {"$domain": {"kind": "choice", "values": [true, false]}}}]}}})");
  return {"conditional", std::move(space), [](const Value& config) {
            const auto square = [](double x) { return x * x; };
            const Value& model = config.at("model");
            double sum = square(std::log10(config.at("rate").get<double>()) + 3);
            if (model.at("kind") == "tree") {
              return 0.5 + sum + square((model.at("depth").get<double>() - 6) / 5) +
                     square(model.at("share").get<double>() - 0.5);
            }
            sum += square(std::log2(model.at("width").get<double>()) - 7) / 4 +
                   4 * square(model.at("drop").get<double>() - 0.2);
            return sum + (model.at("bias").get<bool>() ? 0 : 0.3);
          }};
}

}  // namespace lockstep::tune
