#include "dashboard/api.h"

#include <lockstep/error.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "dashboard/open_metrics.h"
#include "dashboard/page.h"
#include "dashboard/resources.h"
#include "dashboard/run_details.h"

namespace lockstep::dashboard {
namespace {

std::int64_t integer(const Request& request, const char* name, std::int64_t otherwise) {
  const std::string text = request.parameter(name);
  if (text.empty()) return otherwise;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ptr != end)
    throw ConfigError("[dashboard] " + std::string(name) + " is " + in_quotes(text) + "; it must be a whole number");
  return number;
}

Response page() {
  Response response{200, "text/html; charset=utf-8", std::string(kPage)};
  response.headers.emplace_back("Content-Security-Policy", page_policy());
  return response;
}

}  // namespace

Response Api::answer(const Request& request) {
  if (request.path == "/") return page();
  if (request.path == "/metrics")
    return {200, "application/openmetrics-text; version=1.0.0; charset=utf-8", open_metrics(catalog_.list_json({}))};
  if (request.path.starts_with("/api/")) return data(request);
  return error_response(404, "there is no such page");
}

Response Api::data(const Request& request) {
  const std::string what = request.path.substr(5);
  const std::string id = request.parameter("id");
  if (what == "list") return {200, "application/json", catalog_.list_json(request.parameters("id"))};
  if (what == "run") return {200, "application/json", run_json(id, catalog_.path_of(id), files_)};
  if (what == "series") {
    Response response;
    const std::int64_t from = std::max<std::int64_t>(0, integer(request, "from", 0));
    const std::int64_t generation = integer(request, "generation", -1);
    series_.with(catalog_.path_of(id) / "result.json", [&](const Series& series) {
      response.body = series_json(series, static_cast<std::size_t>(from), static_cast<int>(generation));
    });
    return response;
  }
  if (what == "extremes") {
    Response response;
    series_.with(catalog_.path_of(id) / "result.json",
                 [&](const Series& series) { response.body = extremes_json(series); });
    return response;
  }
  if (what == "resources")
    return {200, "application/json",
            resources_json(store::RunView::read(catalog_.path_of(id), store::OddFields::ignore, files_))};
  if (what == "log")
    return {200, "application/json",
            log_json(catalog_.path_of(id), request.parameter("name"), integer(request, "from", -1),
                     integer(request, "most", 64 << 10), files_)};
  if (what == "experiment") return {200, "application/json", experiments_.trials_json(catalog_.path_of(id))};
  if (what == "plot")
    return {200, "application/json",
            experiments_.plot_json(catalog_.path_of(id), request.parameter("kind"), request.parameter("metric"),
                                   request.parameter("x"), request.parameter("y"))};
  return error_response(404, "there is no such data");
}

}  // namespace lockstep::dashboard
