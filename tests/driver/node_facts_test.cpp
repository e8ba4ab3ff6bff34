#include "driver/node_facts.h"

#include <gtest/gtest.h>

namespace lockstep::driver {
namespace {

TEST(NodeFacts, NamesWhatDiffersAndWhere) {
  const NodeFacts facts{{0, {{"Python", "3.11.2"}, {"torch", "2.13.0"}, {"the directory /x", "there"}}},
                        {1, {{"Python", "3.11.2"}, {"torch", "2.12.0"}, {"the directory /x", "there"}}},
                        {2, {{"the directory /x", "missing"}}},
                        {3, {{"Python", "3.10.1"}}}};
  EXPECT_EQ(differences(facts, {{0, "head"}, {1, "a"}, {2, "b"}}),
            "the directory /x is missing on b and there on head, a; torch is 2.12.0 on a and 2.13.0 on head");
  EXPECT_EQ(differences(facts, {{0, "head"}}), "") << "node 3 is not asked for";
}

}  // namespace
}  // namespace lockstep::driver
