#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/json/api.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <optional>
#include <string_view>

#include "data/status.h"
#include "data/text_source.h"

namespace lockstep::data {
namespace {

/// Values that are nested deeper would overflow the stack of Arrow, which goes down into them.
constexpr int kDeepest = 200;

struct Problem {
  std::int64_t row;
  const char* what;
};

/// What Arrow's parser must not see, because it crashes: a `null` that is no part of an object, and nesting without
/// limit. Other errors are left to it.
std::optional<Problem> problem_of(std::string_view text) {
  std::int64_t rows = 0;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '"':
        for (++at; at < text.size() && text[at] != '"'; ++at)
          if (text[at] == '\\') ++at;
        break;
      case '{':
      case '[':
        if (depth++ == kDeepest) return Problem{rows, "is nested too deep"};
        break;
      case '}':
      case ']':
        if (--depth == 0) ++rows;
        break;
      case 'n':
        if (depth <= 0) return Problem{rows, "is not a JSON object"};
        break;
      default:
        break;
    }
  }
  return std::nullopt;
}

class JsonSource final : public TextSource {
 public:
  JsonSource(const RowRules& rules, const JsonOptions& options, std::vector<TextFile> files,
             std::shared_ptr<Skips> skips)
      : TextSource("read_json", rules, options.files, std::move(files), std::move(skips)) {
    schema_ = options.schema ? options.schema : infer([this](const Part& part) {
      return parsed(part, arrow::json::ParseOptions::Defaults())->schema()->RemoveMetadata();
    });
  }

 private:
  std::shared_ptr<arrow::Table> parsed(const Part& part, const arrow::json::ParseOptions& options) const {
    if (part.text->size() >= INT32_MAX) fail(where(part, std::nullopt), "a row is longer than 2 GB");
    if (const auto problem = problem_of(text_of(*part.text))) fail(where(part, problem->row), problem->what);
    auto read = arrow::json::ReadOptions::Defaults();
    read.use_threads = false;
    read.block_size = static_cast<std::int32_t>(part.text->size()) + 1;
    auto table = [&]() -> arrow::Result<std::shared_ptr<arrow::Table>> {
      ARROW_ASSIGN_OR_RAISE(
          const auto reader,
          arrow::json::TableReader::Make(arrow::default_memory_pool(),
                                         std::make_shared<arrow::io::BufferReader>(part.text), read, options));
      return reader->Read();
    }();
    if (table.ok()) return *table;
    const std::string& message = table.status().message();
    fail(where(part, number_after(message, "in row ")),
         message + "; columns are inferred from the beginning of the first file, give others with schema=");
  }

  std::shared_ptr<arrow::Table> parse(const Part& part, const std::vector<int>& columns) const override {
    auto options = arrow::json::ParseOptions::Defaults();
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns) fields.push_back(schema_->field(column));
    const bool all = static_cast<int>(columns.size()) == schema_->num_fields();
    options.explicit_schema = arrow::schema(std::move(fields));
    options.unexpected_field_behavior =
        all ? arrow::json::UnexpectedFieldBehavior::Error : arrow::json::UnexpectedFieldBehavior::Ignore;
    return parsed(part, options);
  }
};

}  // namespace

std::shared_ptr<Source> open_json(const std::vector<std::string>& paths, const JsonOptions& options) {
  const RowRules rules{.skip_blank = true};
  const auto begin = [](const std::shared_ptr<const Text>& text) { return TextFile{text, {}, text_begin(*text)}; };
  auto skips = std::make_shared<Skips>();
  auto files = index_text(paths, options.files, begin, rules, options.block_bytes, *skips);
  return std::make_shared<JsonSource>(rules, options, std::move(files), std::move(skips));
}

}  // namespace lockstep::data
