#include "tune/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lockstep::tune {

std::vector<double> Chart::values(std::size_t metric) const {
  std::vector<double> all;
  for (const Trial& trial : trials)
    all.push_back(metric < trial.values.size() ? trial.values[metric] : std::numeric_limits<double>::quiet_NaN());
  return all;
}

std::string Chart::label(std::size_t dimension, double value) const {
  if (std::isnan(value)) return "-";
  if (dimensions[dimension].domain.kind != Domain::Kind::category || value < 0) return short_number(value);
  const auto choice = static_cast<std::size_t>(value);
  const bool has_label = dimension < labels.size() && choice < labels[dimension].size();
  return has_label ? labels[dimension][choice] : std::to_string(choice);
}

std::vector<std::size_t> Chart::pareto_front(std::size_t first, std::size_t second) const {
  const std::vector<double> x = values(first), y = values(second);
  const double x_sign = metrics[first].maximize ? -1 : 1, y_sign = metrics[second].maximize ? -1 : 1;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (std::isfinite(x[i]) && std::isfinite(y[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return x[a] != x[b] ? x_sign * x[a] < x_sign * x[b] : y_sign * y[a] < y_sign * y[b];
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    const bool is_equal = !front.empty() && x[front.back()] == x[i] && y[front.back()] == y[i];
    if (front.empty() || is_equal || y_sign * y[i] < y_sign * y[front.back()]) front.push_back(i);
  }
  return front;
}

std::string short_number(double number, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, number == 0 ? 0.0 : number);
  return text;
}

}  // namespace lockstep::tune
