#pragma once

#include <lockstep/value.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Makes a Value of JSON text, in time that grows with the text's length: the library's own reader looks through all
/// keys of a dict at each of them. Of equal keys the last one counts, at the place of the first.
class JsonReader final : public Value::json_sax_t {
 public:
  /// Throws StorageError with `where`, and the position, when it is no JSON.
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
  /// A list or dict that has not ended, and the key that waits for its value.
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
