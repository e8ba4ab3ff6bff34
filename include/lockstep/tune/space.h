#pragma once

#include <cstdint>
#include <functional>
#include <lockstep/value.h>
#include <vector>

/// Domains: values of a configuration that a searcher chooses. They are Values, which stand in a param_space wherever
/// a constant may stand, at any depth:
///
///     {{"lr", tune::loguniform(1e-4, 1e-1)},
///      {"layers", tune::grid_search({1, 2, 3})},
///      {"head", tune::choice({"linear", {{"width", tune::randint(8, 256)}}})}}
///
/// A domain inside a value of choice() or grid_search() is chosen only if that value is. All functions throw
/// ConfigError that names the bound or list that is wrong.
namespace lockstep::tune {

/// Every one of the values is tried, num_samples times.
Value grid_search(const std::vector<Value>& values);
/// One of the values, all equally likely.
Value choice(const std::vector<Value>& values);

/// A number in [lower, upper).
Value uniform(double lower, double upper);
/// A multiple of `q`; `upper` is included, as in all functions with a `q`.
Value quniform(double lower, double upper, double q);
/// A number whose logarithm is uniform.
Value loguniform(double lower, double upper);
Value qloguniform(double lower, double upper, double q);

/// An integer in [lower, upper).
Value randint(std::int64_t lower, std::int64_t upper);
Value qrandint(std::int64_t lower, std::int64_t upper, std::int64_t q = 1);
/// An integer whose logarithm is uniform.
Value lograndint(std::int64_t lower, std::int64_t upper);
Value qlograndint(std::int64_t lower, std::int64_t upper, std::int64_t q);

/// A number of a normal distribution.
Value randn(double mean = 0, double sd = 1);
Value qrandn(double mean, double sd, double q);

/// A value that `function` computes from others: `spec["config"]` is the configuration. Computed once per trial, last,
/// in the order in which such values need each other; the result is stored. For the param_space of a Tuner only:
/// Tuner::restore() must be given it again.
Value sample_from(std::function<Value(const Value& spec)> function);

}  // namespace lockstep::tune
