#include "metrics/sink.h"

#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/tensorboard_sink.h"

namespace lockstep::metrics {

std::vector<std::unique_ptr<ReportSink>> default_sinks(const std::filesystem::path& directory, sys::Files& files) {
  std::vector<std::unique_ptr<ReportSink>> sinks;
  sinks.push_back(std::make_unique<JsonSink>(directory, files));
  sinks.push_back(std::make_unique<CsvSink>(directory, files));
  sinks.push_back(std::make_unique<TensorBoardSink>(directory, files));
  return sinks;
}

}  // namespace lockstep::metrics
