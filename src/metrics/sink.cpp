#include "metrics/sink.h"

#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/tensorboard_sink.h"

namespace lockstep::metrics {

std::vector<std::unique_ptr<ReportSink>> default_sinks(const std::filesystem::path& directory) {
  std::vector<std::unique_ptr<ReportSink>> sinks;
  sinks.push_back(std::make_unique<JsonSink>(directory));
  sinks.push_back(std::make_unique<CsvSink>(directory));
  sinks.push_back(std::make_unique<TensorBoardSink>(directory));
  return sinks;
}

}  // namespace lockstep::metrics
