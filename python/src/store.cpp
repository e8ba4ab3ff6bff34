#include <pybind11/stl.h>

#include "base/json.h"
#include "bindings.h"
#include "checkpoint.h"
#include "convert.h"
#include "store/address.h"
#include "store/fetch.h"
#include "store/retention.h"
#include "store/score.h"
#include "store/store_program.h"
#include "sys/files.h"

namespace lockstep::python {

void bind_store(py::module_& module) {
  module.def(
      "score_of",
      [](const Checkpoint& checkpoint, const py::dict& metrics, const std::string& attribute) {
        const auto score = store::score_of(checkpoint, attribute);
        return score ? score : number_at(to_value(metrics, "metrics"), attribute);
      },
      py::arg("checkpoint"), py::arg("metrics"), py::arg("attribute"));
  module.def(
      "decide_retention",
      [](const std::vector<std::pair<int, std::optional<double>>>& scores, std::optional<int> num_to_keep,
         const std::string& order) {
        std::vector<store::ScoredCheckpoint> checkpoints;
        for (const auto& [seq, score] : scores) checkpoints.push_back({seq, score});
        const auto decided = store::decide_retention(std::move(checkpoints), num_to_keep,
                                                     order == "min" ? store::ScoreOrder::min : store::ScoreOrder::max);
        return std::pair(decided.remove, decided.best);
      },
      py::arg("scores"), py::arg("num_to_keep"), py::arg("order"));
  module.def(
      "replace_file",
      [](const std::string& path, const py::bytes& contents) {
        const std::string_view bytes = contents;
        const py::gil_scoped_release unlocked;
        sys::files().make_directories(std::filesystem::path(path).parent_path());
        sys::files().replace_file(path, bytes);
      },
      py::arg("path"), py::arg("contents"));

  module.def("check_address", [](const std::string& text) { return store::Address::parse(text).text(); });
  module.def("local_path", [](const std::string& given) { return store::local_path(given).string(); });
  module.def("address_of", [](const std::string& path) -> std::optional<std::string> {
    const auto address = store::address_of(path);
    return address ? std::optional(address->text()) : std::nullopt;
  });
  module.def(
      "fetch_checkpoint",
      [](const std::string& address) -> std::optional<std::string> {
        const auto found = store::fetch_checkpoint(store::Address::parse(address));
        return found ? std::optional(found->string()) : std::nullopt;
      },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "upload_directory",
      [](const std::string& path, const std::string& address) {
        store::upload_directory(path, store::Address::parse(address));
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("set_arrow_directory", [](const std::string& path) { store::set_arrow_directory(path); });
}

}  // namespace lockstep::python
