#include "sys/secret.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/ids.h"
#include "base/text.h"
#include "sys/descriptor.h"

namespace lockstep::sys {
namespace {

constexpr std::size_t kLongestText = 1024;

/// The value of a hexadecimal digit, or -1.
int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Bytes secret_of(std::string text, const std::string& where) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const auto last = text.find_last_not_of(" \t\r\n");
  text = first == std::string::npos ? "" : text.substr(first, last - first + 1);
  Bytes secret;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = digit_of(text[i]), low = digit_of(text[i + 1]);
    if (high < 0 || low < 0) break;
    secret.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  if (text.size() != 2 * kSecretSize || secret.size() != kSecretSize)
    throw ConfigError("[agent] " + where +
                      " holds no secret, which is 64 hexadecimal digits; make one with "
                      "`openssl rand -hex 32`");
  return secret;
}

/// Reads until a newline or the end.
std::string read_text(int fd, const std::string& where) {
  std::string text;
  for (char c = 0; text.size() < kLongestText;) {
    const ssize_t size = ::read(fd, &c, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw ConfigError("[agent] " + where + " cannot be read: " + std::strerror(errno));
    if (size == 0 || c == '\n') break;
    text += c;
  }
  return text;
}

}  // namespace

Bytes read_secret_file(const std::string& path) {
  const std::string where = "the secret file " + in_quotes(path);
  const sys::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) throw ConfigError("[agent] " + where + " cannot be opened: " + std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    throw ConfigError("[agent] " + where + " is not a file");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw ConfigError("[agent] others than its owner may use " + where +
                      "; run `chmod 600` on it, and make a new "
                      "secret if they may have read it");
  return secret_of(read_text(file.get(), where), where);
}

Bytes make_secret() { return secret_of(random_hex(2 * kSecretSize), "the system's generator"); }

std::string secret_text(const Bytes& secret) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : secret) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void write_secret_file(const std::string& path, const Bytes& secret) {
  const auto refuse = [&](const std::string& why) {
    throw StorageError("[agent] the secret file " + in_quotes(path) + " cannot be written: " + why +
                       "; choose another path");
  };
  std::error_code error;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) refuse(std::strerror(errno));
  const std::string line = secret_text(secret) + "\n";
  if (::fchmod(file.get(), 0600) != 0 ||
      ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    refuse(std::strerror(errno));
}

Bytes read_secret_line() { return secret_of(read_text(STDIN_FILENO, "standard input"), "standard input"); }

}  // namespace lockstep::sys
