#pragma once

#include <lockstep/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Parses JSON text into a Value in linear time. (The library's own reader searches all keys of a dict for each new
/// key.) If a key occurs twice, the last value counts, at the position of the first.
class JsonReader final : public Value::json_sax_t {
 public:
  /// Throws StorageError with `where` and the position if it is not JSON.
  static Value read(std::string_view text, std::string_view where);

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*size*/) override { return start(Value::object()); }
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t /*size*/) override { return start(Value::array()); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override;

 private:
  /// A list or dict that is still open, and the key whose value comes next.
  struct Open {
    Value value;
    std::string key;
  };
  bool add(Value value);
  bool start(Value value);
  bool end();

  std::vector<Open> open_;
  Value result_;
  std::string error_;
};

}  // namespace lockstep
