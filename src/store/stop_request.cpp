#include "store/stop_request.h"

#include <lockstep/error.h>

#include <string>

#include "sys/private_files.h"

namespace lockstep::store {
namespace {

std::string request_text(const DriverProcess& driver) {
  return std::to_string(driver.pid) + " " + std::to_string(driver.start_ticks) + "\n";
}

}  // namespace

void request_stop(const std::filesystem::path& run, const DriverProcess& driver) {
  sys::PrivateFiles files;
  files.enter(run);
  files.replace_file(run / kStopRequest, request_text(driver));
}

bool withdraw_stop(const std::filesystem::path& run) {
  try {
    sys::files().remove_file(run / kStopRequest);
    return true;
  } catch (const sys::FileError& error) {
    if (error.is_missing()) return false;
    throw;
  }
}

bool take_stop_request(sys::Files& files, const std::filesystem::path& run, const DriverProcess& driver) {
  const auto path = run / kStopRequest;
  if (files.info(path, false).kind == sys::FileKind::none) return false;
  try {
    const std::string text = files.read_text(path);
    files.remove_file(path);  // whoever removes it decides: the sender may withdraw it
    return text == request_text(driver);
  } catch (const sys::FileError& error) {
    if (error.is_missing()) return false;
    throw;
  }
}

}  // namespace lockstep::store
