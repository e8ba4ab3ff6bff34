#include "metrics/csv_sink.h"

#include <gtest/gtest.h>
#include <lockstep/error.h>

#include <limits>

#include "scratch_directory.h"
#include "sys/faulty_files.h"

namespace lockstep::metrics {
namespace {

/// The file after these results, written by one sink.
std::string table_of(const std::vector<Value>& results) {
  const ScratchDirectory scratch;
  CsvSink sink(scratch.path());
  sink.start(Value::object());
  for (const Value& result : results) sink.write(result, 0);
  sink.close();
  return read_file(scratch / "progress.csv");
}

TEST(CsvSink, HeaderAndRows) {
  EXPECT_EQ(table_of({{{"epoch", 0}, {"loss", 0.5}}, {{"epoch", 1}, {"loss", 0.25}}}), "epoch,loss\n0,0.5\n1,0.25\n");
}

TEST(CsvSink, Values) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(table_of({{{"a", nullptr},
                       {"b", true},
                       {"c", false},
                       {"d", -3},
                       {"e", 18446744073709551615U},
                       {"f", 2.0},
                       {"g", ""},
                       {"h", "x y"}}}),
            "a,b,c,d,e,f,g,h\n,True,False,-3,18446744073709551615,2.0,\"\",x y\n");
  EXPECT_EQ(
      table_of({{{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", infinity}, {"c", -infinity}, {"d", {1, "x"}}}}),
      "a,b,c,d\nnan,inf,-inf,\"[1, \"\"x\"\"]\"\n");
}

TEST(CsvSink, Quoting) {
  EXPECT_EQ(table_of({{{"a,b", "x,y"}, {"say \"hi\"", "\""}, {"line\nbreak", "\r\n"}}}),
            "\"a,b\",\"say \"\"hi\"\"\",\"line\nbreak\"\n\"x,y\",\"\"\"\",\"\r\n\"\n");
}

TEST(CsvSink, Utf8StaysAndWhatIsNoneIsReplaced) {
  EXPECT_EQ(table_of({{{"größe", "ü"}, {"bad", "a\xFFz"}}}), "größe,bad\nü,a\xEF\xBF\xBDz\n");
}

TEST(CsvSink, NestedDictsAreFlattened) {
  EXPECT_EQ(table_of({{{"config", {{"lr", 0.1}, {"model", {{"depth", 3}}}}}, {"empty", Value::object()}, {"x", 1}}}),
            "config/lr,config/model/depth,x\n0.1,3,1\n");
}

TEST(CsvSink, ANewKeyWidensTheTable) {
  EXPECT_EQ(table_of({{{"a", 1}}, {{"a", 2}, {"b", 3}}, {{"c", 4}, {"a", 5}}, {{"b", 6}}}),
            "a,b,c\n1,,\n2,3,\n5,,4\n,6,\n");
}

TEST(CsvSink, WidensAFileThatWasFlushed) {
  const ScratchDirectory scratch;
  CsvSink sink(scratch.path());
  sink.start(Value::object());
  sink.write({{"a", "x\ny"}}, 1);
  sink.flush();
  EXPECT_EQ(read_file(scratch / "progress.csv"), "a\n\"x\ny\"\n");
  sink.write({{"a", 2}}, 2);
  sink.write({{"a", 3}, {"b,c", 4}}, 3);
  sink.flush();
  EXPECT_EQ(read_file(scratch / "progress.csv"), "a,\"b,c\"\n\"x\ny\",\n2,\n3,4\n");
  sink.write({{"b,c", 5}}, 4);
  sink.flush();
  EXPECT_EQ(read_file(scratch / "progress.csv"), "a,\"b,c\"\n\"x\ny\",\n2,\n3,4\n,5\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "progress.csv.tmp"));
}

TEST(CsvSink, StableKeysOnlyAppend) {
  const ScratchDirectory scratch;
  sys::FaultyFiles files(sys::files());
  CsvSink sink(scratch.path(), files);
  sink.start(Value::object());
  for (int i = 0; i < 100; ++i) {
    sink.write({{"a", i}}, i);
    sink.flush();
  }
  int renames = 0;
  for (const auto& operation : files.log()) renames += operation.name == "rename" ? 1 : 0;
  EXPECT_EQ(renames, 0);
}

TEST(CsvSink, GoesOnWithTheTableThatIsThere) {
  const ScratchDirectory scratch;
  for (const Value& result :
       {Value{{"a", 1}, {"say \"hi\"", 2}}, Value{{"say \"hi\"", 3}, {"a", 4}}, Value{{"b", 5}}}) {
    CsvSink sink(scratch.path());
    sink.start(Value::object());
    sink.write(result, 0);
  }  // not closed: the destructor flushes
  EXPECT_EQ(read_file(scratch / "progress.csv"), "a,\"say \"\"hi\"\"\",b\n1,2,\n4,3,\n,,5\n");
}

TEST(CsvSink, AKeyThatIsNoUtf8StaysOneColumn) {
  const ScratchDirectory scratch;
  for (int i = 0; i < 2; ++i) {
    CsvSink sink(scratch.path());
    sink.start(Value::object());
    sink.write({{"a\xFF", 1}}, 0);
    sink.write({{"a\xFF", 2}}, 0);
  }
  EXPECT_EQ(read_file(scratch / "progress.csv"), "a\xEF\xBF\xBD\n1\n2\n1\n2\n");
}

TEST(CsvSink, CutsATornLastRow) {
  const std::pair<std::string, std::string> cases[]{{"a,b\n1,2\n3,", "a,b\n1,2\n5,6\n"},
                                                    {"a,b\n1,2\n3,\"x\ny", "a,b\n1,2\n5,6\n"},
                                                    {"a,b", "a,b\n5,6\n"},
                                                    {"b,a\r\n1,2\r\n", "b,a\r\n1,2\r\n6,5\n"},
                                                    {"", "a,b\n5,6\n"}};
  for (const auto& [before, after] : cases) {
    const ScratchDirectory scratch;
    write_file(scratch / "progress.csv", before);
    CsvSink sink(scratch.path());
    sink.start(Value::object());
    sink.write({{"a", 5}, {"b", 6}}, 0);
    sink.close();
    EXPECT_EQ(read_file(scratch / "progress.csv"), after);
  }
}

TEST(CsvSink, ManyRowsWithKeysThatComeLate) {
  std::vector<Value> results;
  for (int i = 0; i < 20'000; ++i) {
    Value result{{"step", i}, {"text", "some words, to fill the buffer"}};
    if (i % 5000 == 4999) result["late_" + std::to_string(i)] = i;
    results.push_back(result);
  }
  const std::string table = table_of(results);
  EXPECT_EQ(table.substr(0, table.find('\n')), "step,text,late_4999,late_9999,late_14999,late_19999");
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 20'001);
  EXPECT_NE(table.find("\n0,\"some words, to fill the buffer\",,,,\n"), std::string::npos);
  EXPECT_TRUE(table.ends_with("\n19999,\"some words, to fill the buffer\",,,,19999\n"));
}

/// Whatever operation of widening fails, the old table stays whole, and the next flush loses nothing.
TEST(CsvSink, AnErrorWhileWideningLosesNothing) {
  for (std::uint64_t k = 1;; ++k) {
    const ScratchDirectory scratch;
    write_file(scratch / "progress.csv", "a\n1\n");
    sys::FaultyFiles files(sys::files(), {.at = k, .fault = sys::FaultyFiles::Fault::fail, .error = ENOSPC});
    CsvSink sink(scratch.path(), files);
    try {
      sink.start(Value::object());
    } catch (const StorageError&) {
      continue;
    }
    sink.write({{"a", 2}, {"b", 3}}, 1);
    bool failed = false;
    try {
      sink.flush();
    } catch (const StorageError& error) {
      failed = true;
      EXPECT_NE(std::string(error.what()).find("progress.csv"), std::string::npos) << error.what();
    }
    const std::string after = read_file(scratch / "progress.csv");
    EXPECT_TRUE(after == "a\n1\n" || after == "a,b\n1,\n2,3\n") << k << ": " << after;
    sink.flush();
    EXPECT_EQ(read_file(scratch / "progress.csv"), "a,b\n1,\n2,3\n") << k;
    EXPECT_FALSE(std::filesystem::exists(scratch / "progress.csv.tmp")) << k;
    if (!failed) break;
  }
}

/// A write that took half a row before the disk was full, then a new key: the row is whole again.
TEST(CsvSink, ARowTornByAnErrorIsMendedByWidening) {
  int torn = 0;
  for (std::uint64_t k = 1; k < 20; ++k) {
    const ScratchDirectory scratch;
    sys::FaultyFiles half(sys::files(), {.at = k, .fault = sys::FaultyFiles::Fault::short_write});
    sys::FaultyFiles files(half, {.at = k + 1, .fault = sys::FaultyFiles::Fault::fail, .error = ENOSPC});
    CsvSink sink(scratch.path(), files);
    try {
      sink.start(Value::object());
    } catch (const StorageError&) {
      continue;
    }
    for (const Value& result : {Value{{"a", "first"}}, Value{{"a", "second"}}, Value{{"a", "third"}, {"b", 4}}}) {
      sink.write(result, 0);
      try {
        sink.flush();
      } catch (const StorageError&) {
        const std::string table = read_file(scratch / "progress.csv");
        torn += table.starts_with("a\nfirst\ns") && !table.ends_with("\n") ? 1 : 0;
      }
    }
    sink.flush();
    EXPECT_EQ(read_file(scratch / "progress.csv"), "a,b\nfirst,\nsecond,\nthird,4\n") << k;
  }
  EXPECT_EQ(torn, 1) << "the case that this is about";
}

}  // namespace
}  // namespace lockstep::metrics
