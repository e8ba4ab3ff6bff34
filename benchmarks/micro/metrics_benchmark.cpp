#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "metrics/autofill.h"
#include "metrics/crc32c.h"
#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/sink.h"
#include "metrics/tensorboard_sink.h"

// The cost of one report of rank 0 in the driver after decoding: two metrics, the autofilled keys, the default sinks.
// The goal is 6 us of CPU for everything (BM_all).

namespace {

using lockstep::Value;
namespace metrics = lockstep::metrics;

/// A directory that is removed after the benchmark.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "metrics-benchmark-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

metrics::Autofill make_autofill(bool detailed = false) {
  metrics::Autofill autofill(
      {.trial_id = "4913f_00000",
       .experiment_id = "5a3f8b9bf875437881a8ddc7e4dd3340",
       .config = Value{{"lr", 0.001}, {"num_epochs", 20}, {"batch_size", 64}, {"model", "resnet18"}},
       .detailed = detailed});
  autofill.begin_attempt(lockstep::now());
  autofill.function_started({"ip-172-31-43-110", "172.31.43.110", 654068}, lockstep::now());
  return autofill;
}

const Value& report(metrics::Autofill& autofill, long i) {
  const auto wall = lockstep::wall_now();
  return autofill.fill(Value{{"epoch", i}, {"loss", 1.0 / static_cast<double>(i + 1)}},
                       {lockstep::unix_seconds(wall), 1e-5 + 1e-9 * static_cast<double>(i)}, lockstep::now(), wall);
}

void BM_make_metrics(benchmark::State& state) {
  long i = 0;
  for (auto _ : state) {
    Value value{{"epoch", i}, {"loss", 1.0 / static_cast<double>(i + 1)}};
    benchmark::DoNotOptimize(value);
    ++i;
  }
}
BENCHMARK(BM_make_metrics);

void BM_autofill(benchmark::State& state) {
  auto autofill = make_autofill();
  long i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(&report(autofill, i++));
}
BENCHMARK(BM_autofill);

/// Every report has other keys than the one before.
void BM_autofill_new_keys(benchmark::State& state) {
  auto autofill = make_autofill();
  long i = 0;
  for (auto _ : state) {
    const auto wall = lockstep::wall_now();
    benchmark::DoNotOptimize(
        &autofill.fill(Value{{i++ % 2 == 0 ? "train_loss" : "valid_loss", 1.0}}, {0, 0}, lockstep::now(), wall));
  }
}
BENCHMARK(BM_autofill_new_keys);

template <class Sink>
void BM_sink(benchmark::State& state) {
  const Scratch scratch;
  auto autofill = make_autofill();
  Sink sink(scratch.path());
  sink.start(report(autofill, 0)["config"]);
  Value result = autofill.last();
  auto& loss = result["loss"];
  auto& time = result["time_total_s"];
  auto& iteration = result["training_iteration"];
  long i = 0;
  for (auto _ : state) {
    loss = 1.0 / static_cast<double>(i + 1);
    time = 1e-5 * static_cast<double>(i);
    iteration = i;
    sink.write(result, i++);
  }
}
BENCHMARK(BM_sink<metrics::JsonSink>);
BENCHMARK(BM_sink<metrics::CsvSink>);
BENCHMARK(BM_sink<metrics::TensorBoardSink>);

void BM_all(benchmark::State& state) {
  const Scratch scratch;
  auto autofill = make_autofill(state.range(0) != 0);
  const auto sinks = metrics::default_sinks(scratch.path());
  for (const auto& sink : sinks) sink->start(report(autofill, 0)["config"]);
  long i = 0;
  for (auto _ : state) {
    const Value& result = report(autofill, i++);
    for (const auto& sink : sinks) sink->write(result, autofill.progress().training_iteration);
  }
  for (const auto& sink : sinks) sink->close();
}
BENCHMARK(BM_all)->ArgName("detailed")->Arg(0)->Arg(1);

template <std::uint32_t (*Crc)(std::string_view)>
void BM_crc32c(benchmark::State& state) {
  const std::string bytes(512, 'x');
  for (auto _ : state) benchmark::DoNotOptimize(Crc(bytes));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * 512);
}
BENCHMARK(BM_crc32c<metrics::crc32c>);
BENCHMARK(BM_crc32c<metrics::crc32c_portable>);

}  // namespace

BENCHMARK_MAIN();
