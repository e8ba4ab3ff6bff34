#include "storage/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <atomic>
#include <set>
#include <stdexcept>

#include "storage/parallel.h"

namespace lockstep::storage {
namespace {

using testing::HasSubstr;

TEST(Retry, PausesGrowAndDiffer) {
  EXPECT_EQ(pause_before(2, 1.0), Seconds(0.1));
  EXPECT_EQ(pause_before(2, 0.0), Seconds(0.05));
  EXPECT_EQ(pause_before(5, 1.0), Seconds(0.8));
  EXPECT_EQ(pause_before(50, 1.0), Seconds(10));
  EXPECT_EQ(pause_before(1'000'000, 0.0), Seconds(5));
}

TEST(Retry, SomeErrorsStay) {
  EXPECT_TRUE(is_permanent("When uploading: AWS Error ACCESS_DENIED during PutObject"));
  EXPECT_TRUE(is_permanent("AWS Error NO_SUCH_BUCKET"));
  EXPECT_FALSE(is_permanent("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7"));
  EXPECT_FALSE(is_permanent("AWS Error SLOW_DOWN: HTTP status 503"));
}

TEST(Retry, GoesOnUntilItSucceeds) {
  int calls = 0;
  with_retries("do it", now() + 60s, [&] {
    if (++calls < 4) throw StorageError("not yet");
  });
  EXPECT_EQ(calls, 4);
}

std::string failure_of(Instant deadline, const char* cause, int& calls) {
  try {
    with_retries("upload s3://b/x", deadline, [&] {
      ++calls;
      throw StorageError(cause);
    });
  } catch (const StorageError& error) {
    return error.what();
  }
  return "";
}

TEST(Retry, NamesWhatAndWhyAtTheDeadline) {
  int calls = 0;
  EXPECT_EQ(failure_of(now(), "no route", calls), "[storage] could not upload s3://b/x: no route (after 1 tries)");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(failure_of(now() + 60s, "AWS Error ACCESS_DENIED", calls),
            "[storage] could not upload s3://b/x: AWS Error ACCESS_DENIED");
  EXPECT_EQ(calls, 2);
}

TEST(Parallel, CallsEachOnce) {
  std::atomic<int> sum = 0;
  in_parallel(100, 7, [&](std::size_t number) { sum += static_cast<int>(number); });
  EXPECT_EQ(sum, 4950);
  in_parallel(0, 7, [&](std::size_t) { FAIL(); });
}

TEST(Parallel, StopsAtAnError) {
  std::atomic<int> calls = 0;
  EXPECT_THROW(in_parallel(1'000'000, 3,
                           [&](std::size_t number) {
                             ++calls;
                             if (number == 5) throw std::runtime_error("five");
                           }),
               std::runtime_error);
  EXPECT_LT(calls, 1'000'000);
}

}  // namespace
}  // namespace lockstep::storage
