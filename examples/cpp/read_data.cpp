// Fits a line to the rows of a CSV file on two workers, in batches of Arrow, and goes on in the middle of an epoch.
//
//     example_read_data [RESULTS_DIRECTORY]
//
// prints the run's progress and, at its end, something like
//
//     y is about 3.00 x + 1.00 after 2000 rows; the first run had stopped after 400

#include <arrow/array.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <lockstep/data.h>
#include <lockstep/lockstep.h>

namespace {

double number(const arrow::RecordBatch& batch, const char* column, std::int64_t row) {
  return static_cast<const arrow::DoubleArray&>(*batch.GetColumnByName(column)).Value(row);
}

void fit_line(lockstep::Session& session) {
  double slope = 0, offset = 0;
  long rows = 0;
  if (auto checkpoint = session.checkpoint()) {
    const lockstep::Value saved = checkpoint->to_dict();
    slope = saved["slope"], offset = saved["offset"], rows = saved["rows"];
  }
  auto shard = session.dataset_shard("train");  // goes on where the checkpoint was saved
  const auto most = session.config()["rows"].get<long>();
  while (rows < most) {
    for (const auto& batch : shard.batches(50)) {
      for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
        const double x = number(*batch, "x", row), error = slope * x + offset - number(*batch, "y", row);
        slope -= 0.3 * error * x;
        offset -= 0.3 * error;
      }
      rows += batch->num_rows();
      session.report({{"rows", rows}, {"slope", slope}, {"offset", offset}},
                     lockstep::Checkpoint::from_dict({{"slope", slope}, {"offset", offset}, {"rows", rows}}));
      if (rows >= most) break;
    }
  }
}
LOCKSTEP_TRAIN_FUNCTION(fit_line);

}  // namespace

int main(int argc, char** argv) {
  lockstep::init(argc, argv);  // a worker runs its function here and never returns
  const std::filesystem::path results = argc > 1 ? argv[1] : "results";
  std::filesystem::create_directories(results);
  std::ofstream file(results / "points.csv");
  file << "x,y\n";
  for (int n = 0; n < 1000; ++n) file << n / 1000.0 << "," << 3 * n / 1000.0 + 1 << "\n";
  file.close();

  lockstep::TrainerOptions options{
      .config = {{"rows", 400}}, .scaling = {.num_workers = 2}, .run = {.storage_path = results}};
  const std::map<std::string, lockstep::DatasetPlan> data{
      {"train", lockstep::read_csv((results / "points.csv").string())}};
  const auto first = lockstep::DataParallelTrainer(fit_line, options).datasets(data).fit();
  options.config["rows"] = 2000;
  options.resume_from = first.checkpoint;
  const auto result = lockstep::DataParallelTrainer(fit_line, options).datasets(data).fit();
  const double slope = result.metrics["slope"], offset = result.metrics["offset"];
  std::printf("y is about %.2f x + %.2f after %ld rows; the first run had stopped after %ld\n", slope, offset,
              result.metrics["rows"].get<long>(), first.metrics["rows"].get<long>());
  return std::abs(slope - 3) < 0.1 && std::abs(offset - 1) < 0.1 ? 0 : 1;
}
