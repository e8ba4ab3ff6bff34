#include "engine/ssh/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::engine::ssh {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

auto refuses(const std::string& part) { return ThrowsMessage<ConfigError>(HasSubstr(part)); }

TEST(SshHosts, AreNamesWithSlots) {
  EXPECT_THAT(parse_hosts("a:8,b:2"), ElementsAre(Host{"a", "", 8}, Host{"b", "", 2}));
  EXPECT_THAT(parse_hosts(" a , me@b.example.org:4"), ElementsAre(Host{"a"}, Host{"b.example.org", "me", 4}));
  EXPECT_THAT(parse_hosts(std::vector<std::string>{"10.0.0.7:1"}), ElementsAre(Host{"10.0.0.7", "", 1}));
  EXPECT_EQ((Host{"b", "me", 4}).destination(), "me@b");
}

TEST(SshHosts, MustBeClear) {
  EXPECT_THAT([] { parse_hosts(""); }, refuses("names no host; write for example a:8,b:8"));
  EXPECT_THAT([] { parse_hosts("a:8,"); }, refuses("has \"\", which cannot be the name"));
  EXPECT_THAT([] { parse_hosts("a:0"); }, refuses("has \"0\" slots; it must be a whole number of at least 1"));
  EXPECT_THAT([] { parse_hosts("a:-1"); }, refuses("has \"-1\" slots"));
  EXPECT_THAT([] { parse_hosts("a:8x"); }, refuses("has \"8x\" slots"));
  EXPECT_THAT([] { parse_hosts("a:99999999999"); }, refuses("slots"));
  EXPECT_THAT([] { parse_hosts("a:4,b:4,a:4"); }, refuses("names the host \"a\" again"));
}

TEST(SshHosts, AreNeverOptionsOfSsh) {
  EXPECT_THAT([] { parse_hosts("-oProxyCommand=x"); }, refuses("cannot be the name of a host"));
  EXPECT_THAT([] { parse_hosts("-l@a"); }, refuses("cannot be the name of a host"));
  EXPECT_THAT([] { parse_hosts("a;reboot"); }, refuses("cannot be the name of a host"));
}

TEST(SshHostfile, HasALineForEachHost) {
  const char* text =
      "# our machines\n"
      "a slots=8\n"
      "\n"
      "  b\tslots=2   # the old one\r\n"
      "c:4\n"
      "me@d";
  EXPECT_THAT(parse_hostfile(text, "hosts"),
              ElementsAre(Host{"a", "", 8}, Host{"b", "", 2}, Host{"c", "", 4}, Host{"d", "me"}));
}

TEST(SshHostfile, ErrorsNameTheLine) {
  EXPECT_THAT([] { parse_hostfile("a slots=8\nb slots=many\n", "hosts"); },
              refuses("[engine.ssh] the hostfile \"hosts\", line 2, has \"many\" slots"));
  EXPECT_THAT([] { parse_hostfile("\n# x\na gpus=8\n", "hosts"); }, refuses("line 3, has the word \"gpus=8\""));
  EXPECT_THAT([] { parse_hostfile("a:8 slots=8", "hosts"); }, refuses("line 1, says twice"));
  EXPECT_THAT([] { parse_hostfile("a\nb\na\n", "hosts"); },
              refuses("line 3, names the host \"a\" again (first in the hostfile \"hosts\", line 1"));
  EXPECT_THAT([] { parse_hostfile("# nothing\n", "hosts"); }, refuses("the hostfile \"hosts\" names no host"));
}

}  // namespace
}  // namespace lockstep::engine::ssh
