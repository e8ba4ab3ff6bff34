#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace lockstep::tune {

/// A connection to a database, for one thread at a time. Everything throws StorageError with the file and SQLite's
/// reason.
class Database {
 public:
  /// `writable`: the file is created with mode 0600 if it is missing.
  Database(const std::filesystem::path& file, bool writable);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  /// Runs statements that return nothing of interest.
  void execute(const char* statements);
  sqlite3* handle() const { return handle_; }
  [[noreturn]] void fail(const char* action) const;

 private:
  std::filesystem::path file_;
  sqlite3* handle_ = nullptr;
};

/// A prepared statement. Parameters are numbered from 1 and columns from 0, as in SQLite. Bound text is borrowed until
/// run() or reset().
class Statement {
 public:
  Statement(const Database& database, const char* text);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  Statement& bind(int parameter, std::int64_t value);
  Statement& bind(int parameter, double value);  ///< NaN becomes NULL
  Statement& bind(int parameter, std::string_view text);
  Statement& bind_or_null(int parameter, std::string_view text);  ///< empty text becomes NULL
  /// Goes to the next row; false: there is none.
  bool step();
  /// Steps to the end and makes the statement ready for other values.
  void run();
  void reset();

  std::int64_t integer(int column) const;
  double real(int column) const;
  bool is_null(int column) const;
  /// Valid until the next step().
  std::string_view text(int column) const;

 private:
  const Database& database_;
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace lockstep::tune
