#pragma once

/// Tries configurations of a C++ function and finds the best. Link Lockstep::tune, which needs the system's SQLite:
///
///     lockstep::Value objective(const lockstep::Value& config) {
///       const double x = config["x"];
///       return {{"loss", (x - 1) * (x - 1)}};
///     }
///
///     int main(int argc, char** argv) {
///       namespace tune = lockstep::tune;
///       lockstep::init(argc, argv);
///       lockstep::Tuner tuner(objective, {.param_space = {{"x", tune::uniform(-5, 5)}},
///                                         .tune_config = {.metric = "loss",
///                                                         .mode = "min",
///                                                         .num_samples = 100,
///                                                         .search_alg = tune::TPESearch{}}});
///       const lockstep::ResultGrid results = tuner.fit();
///       const lockstep::Result best = results.get_best_result();
///     }
///
/// Trials of a function run in threads of this process; trials of a trainer are runs with workers. Python and C++ write
/// experiments in the same form, so `lockstep tune show` and Python's ResultGrid read those of C++.

#include <lockstep/lockstep.h>
#include <lockstep/tune/callback.h>
#include <lockstep/tune/class_trainable.h>
#include <lockstep/tune/result_grid.h>
#include <lockstep/tune/schedulers.h>
#include <lockstep/tune/search.h>
#include <lockstep/tune/space.h>
#include <lockstep/tune/stoppers.h>
#include <lockstep/tune/tuner.h>
