#include "tune/sqlite.h"

#include <fcntl.h>
#include <lockstep/error.h>
#include <sqlite3.h>

#include <cerrno>

#include "base/text.h"
#include "sys/descriptor.h"
#include "sys/files.h"

namespace lockstep::tune {

Database::Database(const std::filesystem::path& file, bool writable) : file_(file) {
  if (writable) {  // SQLite gives its other files the mode of this one
    const sys::Descriptor made(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!made) sys::throw_file_error("open", file, errno);
  }
  const int flags = (writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(file.c_str(), &handle_, flags, nullptr) != SQLITE_OK) {
    const std::string reason = handle_ != nullptr ? sqlite3_errmsg(handle_) : "no memory";
    sqlite3_close(handle_);
    throw StorageError("[tune] cannot open " + in_quotes(file.string()) + ": " + reason +
                       "; check that it is a database of an experiment");
  }
  sqlite3_busy_timeout(handle_, 10'000);
}

Database::~Database() { sqlite3_close_v2(handle_); }

void Database::execute(const char* statements) {
  if (sqlite3_exec(handle_, statements, nullptr, nullptr, nullptr) != SQLITE_OK) fail("use");
}

void Database::fail(const char* action) const {
  throw StorageError("[tune] cannot " + std::string(action) + " " + in_quotes(file_.string()) + ": " +
                     sqlite3_errmsg(handle_) + "; check the disk and that the file is a database of an experiment");
}

Statement::Statement(const Database& database, const char* text) : database_(database) {
  if (sqlite3_prepare_v3(database.handle(), text, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr) != SQLITE_OK)
    database_.fail("read");
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int parameter, std::int64_t value) {
  sqlite3_bind_int64(statement_, parameter, value);
  return *this;
}

Statement& Statement::bind(int parameter, double value) {
  sqlite3_bind_double(statement_, parameter, value);
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view text) {
  sqlite3_bind_text(statement_, parameter, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind_or_null(int parameter, std::string_view text) {
  if (!text.empty()) return bind(parameter, text);
  sqlite3_bind_null(statement_, parameter);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code != SQLITE_ROW && code != SQLITE_DONE) {
    sqlite3_reset(statement_);
    database_.fail("use");
  }
  return code == SQLITE_ROW;
}

void Statement::run() {
  while (step()) continue;
  reset();
}

void Statement::reset() { sqlite3_reset(statement_); }

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::real(int column) const { return sqlite3_column_double(statement_, column); }

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

std::string_view Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text == nullptr ? std::string_view()
                         : std::string_view(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

}  // namespace lockstep::tune
