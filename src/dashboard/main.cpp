#include <lockstep/error.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "base/ids.h"
#include "base/log.h"
#include "base/text.h"
#include "dashboard/api.h"
#include "dashboard/catalog.h"
#include "dashboard/certificate.h"
#include "dashboard/server.h"
#include "sys/beneath_files.h"
#include "sys/node.h"

namespace lockstep::dashboard {
namespace {

constexpr const char* kUsage =
    "Usage: lockstep-dashboard DIRECTORY [--host NAME] [--port N] [--cert FILE --key FILE]\n"
    "Started by `lockstep dashboard`, whose --help explains the options.\n";
constexpr int kDefaultPort = 8484;
constexpr int kPortsTried = 20;

struct UsageError : ConfigError {
  using ConfigError::ConfigError;
};

struct Arguments {
  std::string directory, host, cert, key;
  int port = -1;
};

Arguments read(int argc, char** argv) {
  Arguments given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (!given.directory.empty()) throw UsageError("[dashboard] there are two directories; give one");
      given.directory = word;
      continue;
    }
    if (i + 1 >= argc) throw UsageError("[dashboard] " + word + " needs a value, or is unknown");
    const std::string value = argv[++i];
    if (word == "--host") {
      given.host = value;
    } else if (word == "--cert") {
      given.cert = value;
    } else if (word == "--key") {
      given.key = value;
    } else if (word == "--port") {
      const char* end = value.data() + value.size();
      if (std::from_chars(value.data(), end, given.port).ptr != end || value.empty() || given.port < 0 ||
          given.port > 65535)
        throw UsageError("[dashboard] --port is " + in_quotes(value) + "; it must be a number from 0 to 65535");
    } else {
      throw UsageError("[dashboard] there is no option " + word);
    }
  }
  if (given.directory.empty()) throw UsageError("[dashboard] the directory is missing");
  if (given.cert.empty() != given.key.empty()) throw UsageError("[dashboard] --cert and --key belong together");
  return given;
}

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string bracketed(const std::string& host) { return host.find(':') == host.npos ? host : "[" + host + "]"; }

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return text;
}

bool is_every_interface(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

/// The name in the URL.
std::string shown_host(const Arguments& given) {
  if (given.host.empty()) return sys::kLoopback;
  return is_every_interface(given.host) ? sys::node_ip() : given.host;
}

/// Where it listens, with which certificate. Also returns that certificate's fingerprint.
std::pair<ServerOptions, std::string> options_of(const Arguments& given) {
  ServerOptions options;
  options.host = given.host.empty() ? sys::kLoopback : given.host;
  options.access.token = random_hex(48);
  options.access.hosts = {sys::kLoopback, "localhost", "[::1]", lower(bracketed(shown_host(given)))};
  if (!is_loopback(given.host)) options.access.hosts.push_back(lower(sys::host_name()));
  std::string fingerprint;
  if (!given.cert.empty()) {
    options.certificate = sys::files().read_text(given.cert);
    options.key = sys::files().read_text(given.key);
    fingerprint = fingerprint_of(options.certificate);
    if (fingerprint.empty())  // an empty file must not mean: without TLS
      throw ConfigError("[dashboard] the certificate or its key cannot be used: " + in_quotes(given.cert) +
                        " holds no certificate in PEM");
  } else if (!is_loopback(given.host)) {
    const Certificate made = make_certificate(shown_host(given));
    options.certificate = made.certificate;
    options.key = made.key;
    fingerprint = made.fingerprint;
  }
  return {options, fingerprint};
}

std::unique_ptr<Server> listen(const Arguments& given, ServerOptions options, const Handler& handler, Feed& feed) {
  const bool may_choose = given.port < 0;
  options.port = may_choose ? kDefaultPort : given.port;
  for (;; ++options.port) {
    try {
      return std::make_unique<Server>(options, handler, feed);
    } catch (const EngineError&) {
      if (!may_choose || options.port >= kDefaultPort + kPortsTried) throw;
    }
  }
}

void announce(const Arguments& given, const ServerOptions& options, int port, const std::string& fingerprint,
              const std::filesystem::path& root) {
  const std::string url = (options.certificate.empty() ? "http://" : "https://") + bracketed(shown_host(given)) + ":" +
                          std::to_string(port) + "/?token=" + options.access.token;
  std::printf("Dashboard of %s\n  %s\n", printable(root.native()).c_str(), url.c_str());
  if (!fingerprint.empty()) std::printf("Fingerprint of the certificate (SHA-256): %s\n", fingerprint.c_str());
  std::printf("Whoever has this address can read these runs. Ctrl-C ends it.\n");
  std::fflush(stdout);
}

int serve(int argc, char** argv) {
  try {
    const Arguments given = read(argc, argv);
    sys::BeneathFiles files(given.directory);
    Catalog catalog(files);
    Api api(files, catalog);
    const auto [options, fingerprint] = options_of(given);
    const auto server = listen(
        given, options, [&](const Request& request) { return api.answer(request); }, catalog);
    announce(given, options, server->port(), fingerprint, files.root());
    server->run();
    return 0;
  } catch (const UsageError& error) {
    log_error(error.what());
    std::fputs(kUsage, stderr);
    return 2;
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace lockstep::dashboard

int main(int argc, char** argv) { return lockstep::dashboard::serve(argc, argv); }
