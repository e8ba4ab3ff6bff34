#pragma once

#include <string>
#include <vector>

#include "tune/space.h"

namespace lockstep::tune {

/// The trials of an experiment as plots need them: plain numbers and names.
struct Chart {
  struct Metric {
    std::string name;
    bool maximize = false;
  };
  struct Trial {
    std::string name;
    std::string state;           ///< "terminated", ...
    Point point;                 ///< one per dimension; NaN: not active
    std::vector<double> values;  ///< one per metric; NaN: not reported
  };

  std::string title;
  std::vector<Dimension> dimensions;
  std::vector<std::vector<std::string>> labels;  ///< of each dimension's choices; shorter or empty: the index is shown
  std::vector<Metric> metrics;
  std::vector<Trial> trials;  ///< in the order of their numbers

  /// The values of one metric, one per trial.
  std::vector<double> values(std::size_t metric) const;
  /// The text of a value of a dimension: a number, or the label of the choice.
  std::string label(std::size_t dimension, double value) const;
  /// The trials that no other one beats in both metrics, sorted by the first, best first. Equal ones are all in.
  std::vector<std::size_t> pareto_front(std::size_t first, std::size_t second) const;
};

/// "0.001234", with `digits` significant digits at most.
std::string short_number(double number, int digits = 4);

}  // namespace lockstep::tune
