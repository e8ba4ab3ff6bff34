#include <arrow/array/builder_binary.h>
#include <arrow/buffer.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include <numeric>

#include "data/files.h"
#include "data/schemas.h"
#include "data/status.h"

namespace lockstep::data {
namespace {

/// A block ends with the file that makes it this large, or this long.
constexpr std::int64_t kBytesOfBlock = 8 << 20;
constexpr std::int64_t kFilesOfBlock = 64;

/// Each file is a row.
class BinarySource final : public Source {
 public:
  BinarySource(std::vector<File> files, bool include_paths) : files_(std::move(files)) {
    std::vector<std::shared_ptr<arrow::Field>> fields{arrow::field("bytes", arrow::large_binary())};
    if (include_paths) fields.push_back(arrow::field("path", arrow::utf8()));
    schema_ = arrow::schema(std::move(fields));
    std::int64_t bytes = 0;
    for (std::size_t n = 0; n < files_.size(); ++n) {
      if (n == 0 || bytes >= kBytesOfBlock || rows_.back() == kFilesOfBlock) {
        firsts_.push_back(n);
        rows_.push_back(0);
        bytes = 0;
      }
      ++rows_.back();
      bytes += files_[n].size;
    }
  }

  std::string description() const override { return "read_binary_files: " + counted(files_.size(), "file"); }
  std::string identity() const override { return "binary" + identity_of(files_); }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return rows_; }
  std::vector<std::string> files() const override {
    std::vector<std::string> paths;
    for (const File& file : files_) paths.push_back(file.shown());
    return paths;
  }
  std::int64_t size_bytes() const override {
    return std::accumulate(files_.begin(), files_.end(), std::int64_t{0},
                           [](std::int64_t sum, const File& file) { return sum + file.size; });
  }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const int column : columns) {
      fields.push_back(schema_->field(column));
      arrays.push_back(column == 0 ? contents(block) : paths(block));
    }
    return arrow::Table::Make(arrow::schema(std::move(fields)), arrays, rows_[block]);
  }

 private:
  template <class Builder, class Append>
  std::shared_ptr<arrow::Array> built(std::size_t block, const Append& append) const {
    Builder builder;
    for (std::size_t n = firsts_[block]; n < firsts_[block] + static_cast<std::size_t>(rows_[block]); ++n)
      check(append(builder, files_[n]), files_[n].shown());
    return value_of(builder.Finish(), "read_binary_files");
  }
  std::shared_ptr<arrow::Array> contents(std::size_t block) const {
    return built<arrow::LargeBinaryBuilder>(block, [](auto& builder, const File& file) {
      const auto bytes = file.read(0, file.size);
      return builder.Append(bytes->data(), bytes->size());
    });
  }
  std::shared_ptr<arrow::Array> paths(std::size_t block) const {
    return built<arrow::StringBuilder>(block,
                                       [](auto& builder, const File& file) { return builder.Append(file.shown()); });
  }

  std::vector<File> files_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<std::size_t> firsts_;
  std::vector<std::int64_t> rows_;
};

}  // namespace

std::shared_ptr<Source> open_binary(const std::vector<std::string>& paths, const BinaryOptions& options) {
  return std::make_shared<BinarySource>(find_files(paths, options.files), options.include_paths);
}

}  // namespace lockstep::data
