#include "base/ids.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Ids, RunNamesAreOnePathComponent) {
  for (const char* good : {"digits", "a b", "run-1.2", "ä", "\u00a0", "..."})
    EXPECT_EQ(run_name_problem(good), "") << good;
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/abs"),
        std::string("../x"), std::string("a\nb"), std::string("a\0b", 3), std::string("\x7f"),
        std::string("a\u009b31m"), std::string("\u0080"), std::string(201, 'x')})
    EXPECT_NE(run_name_problem(bad), "") << bad;
}

TEST(Ids, RandomHexDiffers) {
  EXPECT_EQ(random_hex(32).size(), 32U);
  EXPECT_NE(random_hex(32), random_hex(32));
  EXPECT_EQ(random_hex(5).find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
