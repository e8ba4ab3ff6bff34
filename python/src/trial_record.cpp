#include <lockstep/array.h>
#include <lockstep/error.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "bindings.h"
#include "checkpoint.h"
#include "convert.h"
#include "metrics/autofill.h"
#include "metrics/csv_sink.h"
#include "metrics/json_sink.h"
#include "metrics/tensorboard_sink.h"
#include "store/part_writer.h"
#include "store/run_directory.h"
#include "store/run_record.h"
#include "sys/files.h"
#include "sys/node.h"
#include "tune/experiment.h"
#include "tune/stored_result.h"
#include "wire/codec.h"

namespace lockstep::python {
namespace {

double seconds_now() { return unix_seconds(wall_now()); }

/// Replaces a small file by a rename, without waiting for the disk: the experiment's database is what must last.
/// `is_first`: nobody can look for the file yet.
void put_file(const std::filesystem::path& path, const std::string& text, bool is_first = false) {
  const std::string partial = is_first ? path.native() : path.native() + ".partial";
  sys::OpenFile file = sys::files().open(partial, sys::OpenMode::replace);
  sys::files().write_all(file, std::as_bytes(std::span(text)));
  sys::files().close(std::move(file));
  if (!is_first) sys::files().rename(partial, path);
}

std::vector<FileEntry> write_part(const std::string& directory, const py::object& contents) {
  store::PartWriter writer(sys::files(), directory);
  if (py::isinstance<EncodedDict>(contents)) {
    const auto& encoded = py::cast<const EncodedDict&>(contents);
    const store::DictParts parts = encoded.view();
    const py::gil_scoped_release unlocked;
    return writer.write_dict(parts);
  }
  const auto& checkpoint = py::cast<const Checkpoint&>(contents);
  const py::gil_scoped_release unlocked;
  if (const auto path = checkpoint.path()) return writer.copy_directory(*path);
  std::vector<Bytes> held;
  std::vector<store::MemoryFile> files;
  for (const std::string& name : checkpoint.files()) held.push_back(checkpoint.read(name));
  std::size_t next = 0;
  for (const std::string& name : checkpoint.files()) files.push_back({name, std::as_bytes(std::span(held[next++]))});
  return writer.write_files(files);
}

Value entries_value(const std::vector<FileEntry>& files) {
  Value list = Value::array();
  for (const FileEntry& file : files)
    list.push_back({{"name", file.name}, {"size", file.size}, {"xxh3_128", file.xxh3_128}});
  return list;
}

std::vector<FileEntry> entries_of(const py::list& files) {
  std::vector<FileEntry> entries;
  for (const py::handle each : files) {
    FileEntry entry;
    entry.name = py::cast<std::string>(each["name"]);
    entry.size = py::cast<std::int64_t>(each["size"]);
    entry.xxh3_128 = py::cast<std::string>(each["xxh3_128"]);
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// The directory of a trial, in the form of a run directory. Nothing is written before commit(), flush() or end().
class TrialRecord {
 public:
  TrialRecord(const std::string& directory, const py::dict& constants, const py::object& config)
      : directory_(directory), config_(to_value(config, "config")), autofill_(run_constants(constants, config_)) {
    record_.name = py::cast<std::string>(constants["name"]);
    record_.trainer = py::cast<std::string>(constants["trainer"]);
    record_.trial_id = py::cast<std::string>(constants["trial_id"]);
    record_.experiment_id = py::cast<std::string>(constants["experiment_id"]);
    record_.created = seconds_now();
    if (store::RunDirectory before(directory_); py::cast<bool>(constants["again"]) && before.exists())
      record_ = store::RunRecord::from_value(before.read_run_json());
    record_.state = "running";
    record_.error.clear();
  }

  /// `iterations`: the reports that it goes on from. Without any, files of an earlier attempt begin anew.
  void begin(int attempt, int pid, long iterations) {
    if (attempt > 0 && std::filesystem::exists(directory_)) {
      store::RunDirectory(directory_).remove_partials();
      if (iterations == 0)
        for (const char* name : {"result.json", "progress.csv"}) std::filesystem::remove(directory_ / name);
    }
    record_.training_iteration = iterations;
    if (iterations == 0) record_.time_total_s = 0;
    const Instant start = now();
    record_.attempt = attempt;
    record_.begin_attempt(attempt, 1, {}, seconds_now());
    autofill_.begin_attempt(start, {record_.training_iteration, record_.time_total_s});
    static const std::string host = sys::host_name(), address = sys::node_ip();  // asking takes a tenth of a trial
    autofill_.function_started({host, address, pid}, start);
  }

  py::object report(const py::bytes& metrics, double timestamp, double time_this_iter) {
    const std::string_view bytes = metrics;
    return to_python(add(bytes, {timestamp, time_this_iter}));
  }

  /// What take() did.
  struct Taken {
    std::size_t bytes = 0;  ///< how much of the input
    long reports = 0;
    tune::Decision::Kind decision = tune::Decision::Kind::go_on;
    std::string problem;         ///< why the last report could not be used; empty: nothing
    std::optional<double> best;  ///< of the first metric
  };

  /// Gives reports that nobody waits for to the experiment: those that `messages`, in the form of tune/_frames.py,
  /// begins with. Stops before a message of another kind and before a checkpoint, and after a report that is the last.
  Taken take(tune::Experiment& experiment, tune::TrialNumber trial, int attempt, const py::buffer& messages) {
    const py::buffer_info view = messages.request();
    std::string_view rest(static_cast<const char*>(view.ptr), static_cast<std::size_t>(view.size * view.itemsize));
    const py::gil_scoped_release unlocked;
    const tune::ExperimentSettings& settings = experiment.settings();
    const bool has_metric = !settings.metrics.empty();
    const bool higher_is_better = has_metric && settings.modes[0] == "max";
    Taken taken;
    while (const auto message = next_report(rest, trial, attempt)) {
      rest.remove_prefix(message->size);
      taken.bytes += message->size;
      ++taken.reports;
      const Value& result = add(message->metrics, message->times);
      try {
        taken.decision = experiment.on_report(trial, tune::stored_result(result), "").kind;
      } catch (const ConfigError& error) {
        taken.problem = error.what();
        break;
      }
      if (const auto value = has_metric ? number_at(result, settings.metrics[0]) : std::nullopt;
          value && *value == *value)
        taken.best = !taken.best        ? *value
                     : higher_is_better ? std::max(*taken.best, *value)
                                        : std::min(*taken.best, *value);
      if (taken.decision != tune::Decision::Kind::go_on) break;
    }
    return taken;
  }

  /// The latest result.
  py::object last() const { return to_python(autofill_.last()); }

  /// Commits what a worker has written; returns the path.
  std::string commit(const std::string& partial, int seq, int attempt, const py::list& files) {
    store::Manifest manifest;
    manifest.seq = seq;
    manifest.attempt = attempt;
    manifest.ranks = {0};
    manifest.created = seconds_now();
    manifest.metrics = with_summaries(autofill_.last());
    manifest.files = entries_of(files);
    record_.next_seq = std::max(record_.next_seq, seq + 1);
    const py::gil_scoped_release unlocked;
    write_all();  // a trial that goes on from the checkpoint does not make these reports again
    return store::RunDirectory(directory_).commit(partial, manifest).string();
  }

  void flush() {
    const py::gil_scoped_release unlocked;
    write_all();
    write_record();
  }

  void end(const std::string& state, const std::string& error, const py::object& failure) {
    if (!failure.is_none()) {
      Failure made;
      made.kind = failure_kind(py::cast<std::string>(failure["kind"]));
      made.type = py::cast<std::string>(failure["type"]);
      made.message = py::cast<std::string>(failure["message"]);
      made.traceback = py::cast<std::string>(failure["traceback"]);
      made.rank = 0;
      made.attempt = record_.attempt;
      record_.failures.push_back(std::move(made));
    }
    const py::gil_scoped_release unlocked;
    autofill_.mark_done();
    record_.state = state;
    record_.error = error;
    record_.finished = seconds_now();
    record_.end_attempt(state, record_.finished);
    write_last();
    write_record();
  }

 private:
  static metrics::RunConstants run_constants(const py::dict& given, const Value& config) {
    metrics::RunConstants made;
    made.trial_id = py::cast<std::string>(given["trial_id"]);
    made.experiment_id = py::cast<std::string>(given["experiment_id"]);
    made.experiment_tag = py::cast<std::string>(given["experiment_tag"]);
    made.config = config;
    made.detailed = metrics::detailed_metrics_wanted();
    return made;
  }

  /// A report in the messages of a worker.
  struct Message {
    std::size_t size = 0;
    metrics::WorkerTimes times;
    std::string_view metrics;
  };

  /// The first of `messages`, if it is whole, and a report of this attempt without a checkpoint.
  static std::optional<Message> next_report(std::string_view messages, tune::TrialNumber trial, int attempt) {
    const auto read = [&messages](auto& into) {
      std::memcpy(&into, messages.data(), sizeof into);
      messages.remove_prefix(sizeof into);
    };
    std::uint64_t length = 0, number = 0;
    std::uint32_t of_attempt = 0, size = 0;
    char kind = 0;
    constexpr std::size_t kHead = sizeof length + sizeof kind;
    constexpr std::size_t kAbout = sizeof number + sizeof of_attempt + 2 * sizeof(double) + sizeof size;
    if (messages.size() < kHead + kAbout) return std::nullopt;
    Message message;
    read(length);
    read(kind);
    if (kind != 'R' || length < kAbout || length > messages.size()) return std::nullopt;
    read(number);
    read(of_attempt);
    read(message.times.timestamp);
    read(message.times.time_this_iter);
    read(size);
    const bool is_its_own =
        number == static_cast<std::uint64_t>(trial) && of_attempt == static_cast<std::uint32_t>(attempt);
    if (!is_its_own || size == 0 || size != length - kAbout) return std::nullopt;
    message.metrics = messages.substr(0, size);
    message.size = kHead + length;
    return message;
  }

  /// Completes a report. The one before it is written to the files' buffers, because it is not the last.
  const Value& add(std::string_view metrics, const metrics::WorkerTimes& times) {
    if (unwritten_) write();
    Value value = wire::decode_value({reinterpret_cast<const std::uint8_t*>(metrics.data()), metrics.size()});
    const Value& result = autofill_.fill(std::move(value), times, now(), wall_now());
    unwritten_ = true;
    is_in_files_ = false;
    return result;
  }

  void make_directory() {
    if (std::exchange(made_, true)) return;
    const bool is_new = sys::files().make_directory(directory_);
    put_file(directory_ / "params.json", to_pretty_json(with_summaries(config_)), is_new);
  }

  /// Writes the latest result to the files' buffers.
  void write() {
    make_directory();
    if (sinks_.empty()) {
      sinks_.push_back(std::make_unique<metrics::JsonSink>(directory_, sys::files(), kJson));
      sinks_.push_back(std::make_unique<metrics::CsvSink>(directory_));
      sinks_.push_back(std::make_unique<metrics::TensorBoardSink>(directory_));
      for (auto& sink : sinks_) sink->start(config_);
    }
    for (auto& sink : sinks_) sink->write(autofill_.last(), autofill_.progress().training_iteration);
    unwritten_ = false;
  }

  void flush_files() {
    for (auto& sink : sinks_) sink->flush();
  }

  /// Makes all results readable in the files.
  void write_all() {
    make_directory();
    flush_files();
    if (!unwritten_) return;
    write();
    flush_files();
    is_in_files_ = true;
  }

  /// The last result says that it is the last, also if it is in the files already.
  void write_last() {
    make_directory();
    if (unwritten_) {
      write();
    } else if (std::exchange(is_in_files_, false)) {
      sinks_.clear();
      metrics::cut_last_line(sys::files(), directory_ / kJson);
      metrics::cut_last_row(sys::files(), directory_ / kCsv);
      sinks_.push_back(std::make_unique<metrics::JsonSink>(directory_, sys::files(), kJson));
      sinks_.push_back(std::make_unique<metrics::CsvSink>(directory_));
      for (auto& sink : sinks_) sink->start(config_);
      write();
    }
    for (auto& sink : sinks_) sink->close();
    sinks_.clear();
  }

  void write_record() {
    const auto progress = autofill_.progress();
    record_.training_iteration = progress.training_iteration;
    record_.time_total_s = progress.time_total;
    record_.metrics = with_summaries(autofill_.last());
    record_.sign(seconds_now());
    put_file(directory_ / "run.json", to_pretty_json(record_.to_value()));
  }

  const std::filesystem::path directory_;
  Value config_;
  metrics::Autofill autofill_;
  store::RunRecord record_;
  std::vector<std::unique_ptr<metrics::ReportSink>> sinks_;
  bool unwritten_ = false;    ///< the latest result, which may be the last, is not even in their buffers
  bool is_in_files_ = false;  ///< it can be read in the files
  bool made_ = false;

  static constexpr const char* kJson = "result.json";
  static constexpr const char* kCsv = "progress.csv";
};

}  // namespace

void bind_trial_record(py::module_& module) {
  py::class_<TrialRecord> record(module, "TrialRecord");
  py::class_<TrialRecord::Taken>(record, "Taken")
      .def_readonly("bytes", &TrialRecord::Taken::bytes)
      .def_readonly("reports", &TrialRecord::Taken::reports)
      .def_readonly("decision", &TrialRecord::Taken::decision)
      .def_readonly("problem", &TrialRecord::Taken::problem)
      .def_readonly("best", &TrialRecord::Taken::best);
  record
      .def(py::init<const std::string&, const py::dict&, const py::object&>(), py::arg("directory"),
           py::arg("constants"), py::arg("config"))
      .def("begin", &TrialRecord::begin, py::arg("attempt"), py::arg("pid"), py::arg("iterations"))
      .def("report", &TrialRecord::report, py::arg("metrics"), py::arg("timestamp"), py::arg("time_this_iter"))
      .def("take", &TrialRecord::take, py::arg("experiment"), py::arg("trial"), py::arg("attempt"), py::arg("messages"))
      .def("last", &TrialRecord::last)
      .def("commit", &TrialRecord::commit, py::arg("partial"), py::arg("seq"), py::arg("attempt"), py::arg("files"))
      .def("flush", &TrialRecord::flush)
      .def("end", &TrialRecord::end, py::arg("state"), py::arg("error"), py::arg("failure") = py::none());
  module.def("encode_metrics",
             [](const py::dict& metrics) { return to_python_bytes(wire::encode_value(to_value(metrics, "metrics"))); });
  module.def("write_part", [](const std::string& directory, const py::object& contents) {
    return to_python(entries_value(write_part(directory, contents)));
  });
  module.def("next_seq", [](const std::string& directory) { return store::RunDirectory(directory).next_seq(); });
  module.def("remove_checkpoint",
             [](const std::string& directory, int seq) { store::RunDirectory(directory).remove_checkpoint(seq); });
  module.def("finish_record", [](const std::string& run, const py::dict& metrics) {
    store::finish_record(run, to_value(metrics, "metrics"), seconds_now());
  });
  module.def("adopt_checkpoint", [](const std::string& directory, const std::string& source) {
    store::RunDirectory run(directory);
    const int seq = run.next_seq();
    const store::Manifest before = store::read_manifest(sys::files(), source);
    const std::string partial = store::RunDirectory::partial_name(seq);
    store::Manifest manifest = before;
    manifest.files = store::PartWriter(sys::files(), run.path() / partial).copy_directory(source);
    manifest.seq = seq;
    return run.commit(partial, manifest).string();
  });
}

}  // namespace lockstep::python
