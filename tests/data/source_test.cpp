#include "data/source.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>
#include <parquet/arrow/writer.h>

#include "data/dataset.h"
#include "data/status.h"
#include "folder.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// All rows of a data set, one text per row.
std::vector<std::string> rows_of(const Dataset& dataset) {
  std::vector<std::string> rows;
  for (std::size_t block = 0; block < dataset.rows_of_blocks().size(); ++block) {
    const auto table = dataset.read(block);
    EXPECT_EQ(table->num_rows(), dataset.rows_of_blocks()[block]);
    for (std::int64_t row = 0; row < table->num_rows(); ++row) {
      std::string text;
      for (const auto& column : table->columns())
        text += (text.empty() ? "" : "|") + value_of(column->GetScalar(row), "a row")->ToString();
      rows.push_back(text);
    }
  }
  return rows;
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CsvSource, ReadsQuotesNullsAndLineBreaks) {
  const Folder folder;
  const auto path = folder.write("x.csv", "\xef\xbb\xbfn,text,f\n1,\"a\nb\",0.5\n\n,\"say \"\"hi\"\"\",\r\n3,ünï,1e3");
  for (const std::int64_t block : {1, 20, 1000}) {
    const auto types = arrow::schema({arrow::field("n", arrow::int64()), arrow::field("f", arrow::float64())});
    const Dataset dataset(open_csv({path}, {.types = types, .block_bytes = block}));
    EXPECT_EQ(dataset.schema()->ToString(), "n: int64\ntext: string\nf: double");
    EXPECT_THAT(rows_of(dataset), ElementsAre("1|a\nb|0.5", "null|say \"hi\"|null", "3|ünï|1000")) << block;
  }
}

TEST(CsvSource, TakesTypesFromTheBeginning) {
  const Folder folder;
  const auto path = folder.write("x.csv", "a,b,c\n1,1.5,x\n2,2,y\n");
  EXPECT_EQ(open_csv({path}, {})->schema()->ToString(), "a: int64\nb: double\nc: string");
  const auto types = arrow::schema({arrow::field("a", arrow::utf8())});
  EXPECT_EQ(open_csv({path}, {.types = types})->schema()->field(0)->type()->ToString(), "string");
  const auto wrong = arrow::schema({arrow::field("z", arrow::utf8())});
  EXPECT_THROW(open_csv({path}, {.types = wrong}), ConfigError);
}

TEST(CsvSource, SelectsColumnsInAnyOrder) {
  const Folder folder;
  const Dataset dataset(open_csv({folder.write("x.csv", "a;b;c\n1;2;3\n4;5;6\n")}, {.delimiter = ';'}));
  EXPECT_THAT(rows_of(dataset.select_columns({"c", "a"})), ElementsAre("3|1", "6|4"));
  EXPECT_THAT(rows_of(dataset.select_columns({"c", "a"}).select_columns({"a"}).limit(1)), ElementsAre("1"));
  EXPECT_THROW(dataset.select_columns({"d"}), ConfigError);
  EXPECT_THROW(dataset.select_columns({"a", "a"}), ConfigError);
  EXPECT_THROW(dataset.select_columns({}), ConfigError);
}

TEST(CsvSource, NamesCanBeGiven) {
  const Folder folder;
  const Dataset dataset(open_csv({folder.write("x.csv", "1,2\n3,4\n")}, {.column_names = {"a", "b"}}));
  EXPECT_THAT(rows_of(dataset), ElementsAre("1|2", "3|4"));
}

TEST(CsvSource, EmptyFilesHaveNoRows) {
  const Folder folder;
  const auto nothing = folder.write("a.csv", ""), names = folder.write("b.csv", "a,b\n"),
             bare = folder.write("c.csv", "a,b"), rows = folder.write("d.csv", "a,b\n1,2\n");
  const Dataset dataset(open_csv({nothing, names, bare, rows}, {}));
  EXPECT_THAT(rows_of(dataset), ElementsAre("1|2"));
  EXPECT_EQ(Dataset(open_csv({nothing}, {})).count(), 0);
  EXPECT_EQ(Dataset(open_csv({names}, {})).schema()->field_names(), (std::vector<std::string>{"a", "b"}));
}

TEST(CsvSource, ErrorsNameFileAndLine) {
  const Folder folder;
  const auto path = folder.write("x.csv", "a,b\n1,\"x\ny\"\n\nz,2\n");
  const Dataset types(open_csv({path}, {.block_bytes = 5}));
  EXPECT_THAT(message_of([&] { rows_of(types); }), AllOf(HasSubstr(path + ", line 5"), HasSubstr("column_types")));
  const auto uneven = folder.write("y.csv", "a,b\n1,2\n3,4\n5\n");
  EXPECT_THAT(message_of([&] { open_csv({uneven}, {}); }), HasSubstr(uneven + ", line 4"));
  const auto other = folder.write("z.csv", "a,c\n1,2\n");
  EXPECT_THAT(message_of([&] { open_csv({path, other}, {}); }), AllOf(HasSubstr(other), HasSubstr("a, c")));
  const auto twice = folder.write("t.csv", "a,a\n1,2\n");
  EXPECT_THAT(message_of([&] { open_csv({twice}, {}); }), AllOf(HasSubstr(twice), HasSubstr("two columns")));
  const auto open = folder.write("o.csv", "a,b\n1,\"2\n3,4\n");
  EXPECT_THAT(rows_of(Dataset(open_csv({open}, {}))), ElementsAre("1|2\n3,4\n"));  // up to the end, as Arrow reads it
  EXPECT_THROW(open_csv({folder.write("x.csv.xz", "x")}, {}), ConfigError);
  const auto packed = folder.write("x.csv.gz", "x");
  EXPECT_THAT(message_of([&] { open_csv({packed}, {}); }), HasSubstr(packed));
}

TEST(JsonSource, ReadsLines) {
  const Folder folder;
  const auto path = folder.write("x.jsonl", "{\"a\": 1, \"b\": [1, 2]}\n\n{\"b\": null, \"a\": 2}\n  \n{\"a\": 3}");
  for (const std::int64_t block : {30, 1000}) {
    const Dataset dataset(open_json({path}, {.block_bytes = block}));
    EXPECT_EQ(dataset.schema()->ToString(), "a: int64\nb: list<item: int64>");
    EXPECT_EQ(rows_of(dataset).size(), 3u);
    EXPECT_THAT(rows_of(dataset.select_columns({"a"})), ElementsAre("1", "2", "3"));
  }
}

TEST(JsonSource, ErrorsNameFileAndPlace) {
  const Folder folder;
  const auto broken = folder.write("x.jsonl", "{\"a\": 1}\n\n{\"a\": 2}\n{\"a\": }\n");
  EXPECT_THAT(message_of([&] { open_json({broken}, {}); }), HasSubstr(broken + ", line 4"));
  const auto later = folder.write("y.jsonl", "{\"a\": 1}\n{\"a\": 1, \"new\": 2}\n");
  const Dataset dataset(open_json({later}, {.block_bytes = 5}));
  EXPECT_THAT(message_of([&] { rows_of(dataset); }),
              AllOf(HasSubstr(later), HasSubstr("line 2"), HasSubstr("schema=")));
}

TEST(JsonSource, RefusesWhatArrowCrashesOn) {
  const Folder folder;
  const auto lone = folder.write("x.jsonl", "{\"null\": \"}null\"}\n\nnull\n");
  EXPECT_THAT(message_of([&] { open_json({lone}, {}); }), HasSubstr(lone + ", line 3: is not a JSON object"));
  const auto deep = folder.write("y.jsonl", "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}\n");
  EXPECT_THAT(message_of([&] { open_json({deep}, {}); }), HasSubstr(deep + ", line 1: is nested too deep"));
}

TEST(TextSource, ReadsLines) {
  const Folder folder;
  const auto path = folder.write("x.txt", "one\r\n\ntwo ünï\n \nthree");
  for (const std::int64_t block : {1, 1000}) {
    const Dataset dropped(open_text({path}, {.block_bytes = block}));
    EXPECT_THAT(rows_of(dropped), ElementsAre("one", "two ünï", "three"));
    const Dataset all(open_text({path}, {.drop_empty_lines = false, .block_bytes = block}));
    EXPECT_THAT(rows_of(all), ElementsAre("one", "", "two ünï", " ", "three"));
  }
  const auto broken = folder.write("y.txt", "one\ntwo\n\xff\n");
  EXPECT_THAT(message_of([&] { rows_of(Dataset(open_text({broken}, {}))); }), HasSubstr(broken + ", line 3"));
}

std::string write_parquet(const Folder& folder, const std::string& name, std::int64_t begin, std::int64_t end,
                          std::int64_t group, const std::string& second = "text") {
  arrow::Int64Builder numbers;
  arrow::StringBuilder texts;
  for (std::int64_t n = begin; n < end; ++n) {
    check(numbers.Append(n), name);
    check(n % 7 == 0 ? texts.AppendNull() : texts.Append("t" + std::to_string(n)), name);
  }
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("n", arrow::int64()), arrow::field(second, arrow::utf8())}),
                         {value_of(numbers.Finish(), name), value_of(texts.Finish(), name)});
  const auto file = value_of(arrow::io::FileOutputStream::Open(folder.path(name)), name);
  check(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, group), name);
  check(file->Close(), name);
  return folder.path(name);
}

TEST(ParquetSource, BlocksAreRowGroups) {
  const Folder folder;
  const std::vector<std::string> paths{write_parquet(folder, "a.parquet", 0, 25, 10),
                                       write_parquet(folder, "empty.parquet", 0, 0, 10),
                                       write_parquet(folder, "b.parquet", 25, 30, 10)};
  const Dataset dataset(open_parquet(paths));
  EXPECT_THAT(dataset.rows_of_blocks(), ElementsAre(10, 10, 5, 5));
  const auto rows = rows_of(dataset.select_columns({"text", "n"}));
  ASSERT_EQ(rows.size(), 30u);
  EXPECT_EQ(rows[0], "null|0");
  EXPECT_EQ(rows[26], "t26|26");
  EXPECT_EQ(rows_of(dataset.limit(12)).size(), 12u);
  EXPECT_THAT(dataset.limit(12).rows_of_blocks(), ElementsAre(10, 2));
}

TEST(ParquetSource, ErrorsNameTheFileAndRowGroup) {
  const Folder folder;
  const auto good = write_parquet(folder, "a.parquet", 0, 25, 10);
  const auto text = folder.write("b.parquet", "this is no parquet file at all");
  EXPECT_THAT(message_of([&] { open_parquet({good, text}); }), HasSubstr(text));
  const auto other = write_parquet(folder, "c.parquet", 0, 5, 10, "other");
  EXPECT_THAT(message_of([&] {
                open_parquet({good, other});
              }),
              AllOf(HasSubstr(other), HasSubstr("other: string"), HasSubstr("text: string")));
  // Damage the pages of the first row group; the footer stays whole.
  const Dataset dataset(open_parquet({good}));
  std::fstream file(good, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4);
  file << std::string(60, '\xff');
  file.close();
  EXPECT_THAT(message_of([&] { rows_of(dataset); }), HasSubstr(good + ", row group 0"));
}

TEST(Dataset, FingerprintsTellDataApart) {
  const Folder folder;
  const auto a = write_parquet(folder, "a.parquet", 0, 25, 10), b = write_parquet(folder, "b.parquet", 0, 25, 5);
  const Dataset first(open_parquet({a}));
  EXPECT_EQ(first.fingerprint(), Dataset(open_parquet({a})).fingerprint());
  EXPECT_EQ(first.fingerprint(), first.select_columns({"n"}).fingerprint());
  EXPECT_NE(first.fingerprint(), Dataset(open_parquet({b})).fingerprint());
  EXPECT_NE(first.fingerprint(), first.limit(20).fingerprint());
  EXPECT_NE(Dataset(open_range(10)).fingerprint(), Dataset(open_range(11)).fingerprint());
  EXPECT_EQ(first.fingerprint().size(), 16u);
}

TEST(Dataset, ThePlanNamesEveryStep) {
  const auto plan = Dataset(open_range(100)).select_columns({"id"}).limit(5).plan();
  EXPECT_THAT(plan, ElementsAre("range: 100", HasSubstr("select_columns: id"), HasSubstr("limit: 5")));
  EXPECT_THROW(Dataset(open_range(5)).limit(-1), ConfigError);
  EXPECT_THROW(open_range(-1), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
