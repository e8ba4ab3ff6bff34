#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <parquet/arrow/writer.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "data/dataset.h"
#include "data/source.h"
#include "data/status.h"
#include "folder.h"

namespace lockstep::data {
namespace {

/// LOCKSTEP_FUZZ_ROUNDS asks for more.
int rounds(int usual) {
  const char* asked = std::getenv("LOCKSTEP_FUZZ_ROUNDS");
  return asked ? std::atoi(asked) : usual;
}

std::string changed(std::string bytes, const std::vector<std::string>& words, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        if (below(8) == 0) bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1 + below(9), static_cast<char>(random()));
        break;
      case 4:
        bytes.erase(at, 1 + below(9));
        break;
      case 5:
        bytes.insert(at, words[below(words.size())]);
        break;
    }
  }
  return bytes;
}

/// Opens and reads everything. Anything but our errors escapes and fails the test; memory errors are for the
/// sanitizers. Returns the number of rows, or -1.
template <class Open>
std::int64_t read_everything(const Open& open) {
  try {
    const Dataset dataset(open());
    std::int64_t rows = 0;
    for (std::size_t block = 0; block < dataset.rows_of_blocks().size(); ++block) {
      const auto table = dataset.read(block);
      EXPECT_EQ(table->num_rows(), dataset.rows_of_blocks()[block]);
      rows += table->num_rows();
    }
    return rows;
  } catch (const StorageError&) {
    return -1;
  } catch (const ConfigError&) {
    return -1;
  }
}

TEST(Fuzz, CsvIsReadOrRefused) {
  const Folder folder;
  const std::string sample = "a,b,c\n1,\"x\ny\",2.5\n-3,\"say \"\"hi\"\"\",\n4,ünï,1e300\n\n5,\"\",nan\n";
  const std::vector<std::string> words{"\"",   "\"\"",  ",",           "\n", "\r\n", "\r", "\\", std::string(1, '\0'),
                                       "\xff", "1e999", "\xef\xbb\xbf"};
  std::mt19937 random(1);
  int read = 0, refused = 0;
  for (int round = 0; round < rounds(150); ++round) {
    const auto path = folder.write("x.csv", changed(sample, words, random));
    CsvOptions options{.block_bytes = 1 + round % 40};
    options.escape = round % 3 == 0 ? '\\' : '\0';
    options.skip_empty = round % 5 != 0;
    options.number_names = round % 7 == 0;
    (read_everything([&] { return open_csv({path}, options); }) < 0 ? refused : read)++;
    options.files.skip_errors = true;
    read_everything([&] { return open_csv({path}, options); });
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 10);
}

TEST(Fuzz, JsonIsReadOrRefused) {
  const Folder folder;
  const std::string sample =
      "{\"a\": 1, \"b\": [1, 2], \"c\": {\"d\": \"x\"}}\n\n{\"a\": null, \"b\": []}\n{\"a\": 2.5}\n";
  const std::vector<std::string> words{"{", "}", "[", "]", "\"", ":", ",", "\n", "null", "1e999", "\\u0000", "\xff"};
  std::mt19937 random(2);
  int read = 0, refused = 0;
  for (int round = 0; round < rounds(400); ++round) {
    const auto path = folder.write("x.jsonl", changed(sample, words, random));
    JsonOptions options{.block_bytes = 1 + round % 100};
    (read_everything([&] { return open_json({path}, options); }) < 0 ? refused : read)++;
    options.files.skip_errors = true;
    read_everything([&] { return open_json({path}, options); });
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 10);
}

/// Numbers, texts and lists, with nulls.
std::string parquet_sample(const Folder& folder, arrow::Compression::type compression) {
  arrow::Int64Builder numbers;
  arrow::StringBuilder texts;
  arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::DoubleBuilder>());
  auto& items = static_cast<arrow::DoubleBuilder&>(*lists.value_builder());
  for (int n = 0; n < 60; ++n) {
    check(n % 7 == 0 ? numbers.AppendNull() : numbers.Append(n), "sample");
    check(n % 5 == 0 ? texts.AppendNull() : texts.Append("text " + std::to_string(n % 3)), "sample");
    check(n % 11 == 0 ? lists.AppendNull() : lists.Append(), "sample");
    if (n % 11 != 0) check(items.Append(n * 0.5), "sample");
  }
  const auto schema = arrow::schema({arrow::field("n", arrow::int64()), arrow::field("t", arrow::utf8()),
                                     arrow::field("l", arrow::list(arrow::float64()))});
  const auto table = arrow::Table::Make(
      schema,
      {value_of(numbers.Finish(), "sample"), value_of(texts.Finish(), "sample"), value_of(lists.Finish(), "sample")});
  const auto path = folder.path("sample.parquet");
  const auto file = value_of(arrow::io::FileOutputStream::Open(path), path);
  const auto properties = parquet::WriterProperties::Builder().compression(compression)->build();
  check(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, 25, properties), path);
  check(file->Close(), path);
  std::ifstream bytes(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(bytes), {}};
}

TEST(Fuzz, ParquetIsReadOrRefused) {
  const Folder folder;
  const std::vector<std::string> samples{parquet_sample(folder, arrow::Compression::UNCOMPRESSED),
                                         parquet_sample(folder, arrow::Compression::SNAPPY)};
  const std::vector<std::string> words{"PAR1", std::string(4, '\xff'), std::string(8, '\0'), "\x7f\xff\xff\xff"};
  std::mt19937 random(3);
  int read = 0, refused = 0;
  for (int round = 0; round < rounds(300); ++round) {
    auto bytes = samples[static_cast<std::size_t>(round) % samples.size()];
    // Whole lengths at the end, so that the footer is found.
    const std::string end = bytes.substr(bytes.size() - 8);
    bytes = changed(bytes.substr(0, bytes.size() - 8), words, random) + (round % 10 == 0 ? "" : end);
    const auto path = folder.write("x.parquet", bytes);
    ParquetOptions options{.piece_bytes = round % 2 == 0 ? 100 : kParquetPiece};
    (read_everything([&] { return open_parquet({path}, options); }) < 0 ? refused : read)++;
    options.files.skip_errors = true;
    read_everything([&] { return open_parquet({path}, options); });
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace lockstep::data
