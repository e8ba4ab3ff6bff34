#include "store/positions.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <string>

namespace lockstep::store {
namespace {

Value decoded(const std::string& text) { return decode_positions(Bytes(text.begin(), text.end())); }

TEST(Positions, ReadBackAsWritten) {
  const Value states{{"train", {{"epoch", 3}, {"seed", UINT64_MAX}}}, {"validation", {{"epoch", 0}}}};
  EXPECT_EQ(decode_positions(encode_positions(states)), states);
  EXPECT_EQ(decode_positions(encode_positions(Value::object())), Value::object());
}

TEST(Positions, FilesOfOthersAreRefused) {
  for (const char* text : {"", "{", "[]", "3", R"({"my": "own"})", R"({"version": 2, "datasets": {}})",
                           R"({"version": 1, "datasets": []})"})
    EXPECT_THROW(decoded(text), StorageError) << text;
}

}  // namespace
}  // namespace lockstep::store
