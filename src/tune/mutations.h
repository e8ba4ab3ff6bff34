#pragma once

#include <lockstep/value.h>

#include <optional>
#include <string>
#include <vector>

#include "tune/random_numbers.h"
#include "tune/space.h"

namespace lockstep::tune {

/// The parameters that population based training changes. See make_scheduler for their form.
class Mutations {
 public:
  struct Settings {
    double resample_probability = 0.25;
    std::vector<double> factors{1.2, 0.8};
  };

  /// Throws ConfigError that names the parameter which has neither a domain nor a list.
  Mutations(const Value& description, Settings settings);

  /// `config` with every parameter drawn anew, scaled by one of the factors, or moved to a neighbour in its list.
  /// Values stay in their domains.
  Value explored(Value config, RandomNumbers& random) const;
  /// `config` with drawn values for the parameters that it lacks.
  Value completed(Value config, RandomNumbers& random) const;

 private:
  struct Parameter {
    std::vector<std::string> path;
    std::vector<Value> values;   // of a list or of $samples
    bool ordered = false;        // it is a list: has neighbours
    std::optional<Space> space;  // of a domain; its only dimension is the parameter
  };

  void parse(const Value& description, std::vector<std::string>& path);
  Value drawn(const Parameter& parameter, RandomNumbers& random) const;
  Value changed(const Parameter& parameter, const Value& old, RandomNumbers& random) const;

  Settings settings_;
  std::vector<Parameter> parameters_;
};

}  // namespace lockstep::tune
