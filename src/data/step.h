#pragma once

#include "data/steps.h"

namespace lockstep::data {

/// What most steps share: they have the blocks of one source.
class Step : public Source {
 public:
  explicit Step(SourcePointer from) : from_(std::move(from)) {}

  std::string identity() const override { return from_->identity() + "\n" + description(); }
  std::vector<std::string> plan() const override {
    auto lines = from_->plan();
    lines.push_back(description());
    return lines;
  }
  std::vector<std::string> files() const override { return from_->files(); }
  std::int64_t size_bytes() const override { return from_->size_bytes(); }
  Skipped skipped() const override { return from_->skipped(); }
  const std::shared_ptr<arrow::Schema>& schema() const override { return from_->schema(); }
  bool knows_schema() const override { return from_->knows_schema(); }
  bool is_counted() const override { return from_->is_counted(); }
  std::size_t blocks() const override { return from_->blocks(); }
  const std::vector<std::int64_t>& rows_of_blocks() const override { return from_->rows_of_blocks(); }
  std::int64_t rows_of_block(std::size_t block) const override { return from_->rows_of_block(block); }
  void prepare() const override { from_->prepare(); }
  Value index() const override { return from_->index(); }
  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    return from_->may_match(filter);
  }
  bool is_borrowed() const override { return from_->is_borrowed(); }
  std::vector<const Source*> inputs() const override { return {from_.get()}; }

 protected:
  const SourcePointer from_;
};

}  // namespace lockstep::data
