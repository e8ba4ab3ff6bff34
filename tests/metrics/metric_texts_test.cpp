#include "metrics/metric_texts.h"

#include <gtest/gtest.h>
#include <lockstep/array.h>

namespace lockstep::metrics {
namespace {

using Texts = std::vector<std::string>;

TEST(MetricTexts, NestedNamesAreJoined) {
  const Value metrics = {{"epoch", 3}, {"val", {{"loss", 0.12345}, {"top", {{"k", 5}}}}}, {"ok", true}, {"tag", "b"}};
  EXPECT_EQ(metric_texts(metrics, Keys::all, 10),
            (Texts{"epoch=3", "val/loss=0.1235", "val/top/k=5", "ok=true", "tag=b"}));
}

TEST(MetricTexts, WhatDoesNotFitALineIsLeftOut) {
  const Value metrics = {
      {"list", {1, 2}}, {"none", nullptr}, {"long", std::string(100, 'x')}, {"empty", Value::object()}};
  EXPECT_EQ(metric_texts(metrics, Keys::all, 10), Texts{});
  const Value array = Array{"int8", {2}, Bytes{1, 2}};
  EXPECT_EQ(metric_texts({{"array", array}, {"filed", with_summaries(array)}}, Keys::all, 10), Texts{});
  EXPECT_EQ(metric_texts(Value(5), Keys::all, 10), Texts{});
}

TEST(MetricTexts, WhatLockstepFilledInIsLeftOutOnRequest) {
  const Value metrics = {{"loss", 1}, {"pid", 7}, {"config", {{"lr", 0.1}}}, {"val", {{"pid", 8}}}};
  EXPECT_EQ(metric_texts(metrics, Keys::reported, 10), (Texts{"loss=1", "val/pid=8"}));
  EXPECT_EQ(metric_texts(metrics, Keys::all, 3), (Texts{"loss=1", "pid=7", "config/lr=0.1"}));
}

TEST(MetricTexts, NamesAndTextsCannotCommandTheTerminal) {
  const Value metrics = {{"a\x1b[2J", {{"b\n", "\x07"}}}};
  EXPECT_EQ(metric_texts(metrics, Keys::all, 10), Texts{"a?[2J/b?=?"});
}

}  // namespace
}  // namespace lockstep::metrics
