#include <arrow/table.h>
#include <arrow/type.h>

#include <mutex>
#include <optional>

#include "data/status.h"
#include "data/step.h"

namespace lockstep::data {
namespace {

class SelectSource final : public Step {
 public:
  SelectSource(SourcePointer from, std::string description, Choose choose)
      : Step(std::move(from)), description_(std::move(description)), choose_(std::move(choose)) {
    if (from_->knows_schema()) chosen();
  }

  std::string description() const override { return description_; }
  // The order of rows does not depend on columns.
  std::string identity() const override { return from_->identity(); }
  const std::shared_ptr<arrow::Schema>& schema() const override { return chosen().schema; }

  std::shared_ptr<arrow::Table> read(std::size_t block, const std::vector<int>& columns) const override {
    const Chosen& chosen = this->chosen();
    std::vector<int> wanted;
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns) {
      wanted.push_back(chosen.columns[static_cast<std::size_t>(column)]);
      fields.push_back(chosen.schema->field(column));
    }
    const auto table = measured(*from_, block, wanted);
    return arrow::Table::Make(arrow::schema(std::move(fields)), table->columns(), table->num_rows());
  }

  bool read_numbers(std::size_t block, const std::vector<int>& columns, const Room& room) const override {
    const Chosen& chosen = this->chosen();
    std::vector<int> wanted;
    for (const int column : columns) wanted.push_back(chosen.columns[static_cast<std::size_t>(column)]);
    return measured_numbers(*from_, block, wanted, room);
  }

  std::vector<bool> may_match(const arrow::compute::Expression& filter) const override {
    return chosen().is_renamed ? std::vector<bool>() : from_->may_match(filter);
  }

 private:
  struct Chosen {
    std::vector<int> columns{};
    std::shared_ptr<arrow::Schema> schema{};
    bool is_renamed = false;
  };

  const Chosen& chosen() const {
    const auto& all = from_->schema();  // may read: not under the lock
    const std::lock_guard lock(mutex_);
    if (!chosen_) {
      Chosen made;
      std::vector<std::shared_ptr<arrow::Field>> fields;
      for (const Selected& each : choose_(*all)) {
        made.columns.push_back(each.column);
        made.is_renamed |= all->field(each.column)->name() != each.name;
        fields.push_back(all->field(each.column)->WithName(each.name));
      }
      made.schema = arrow::schema(std::move(fields));
      chosen_ = std::move(made);
    }
    return *chosen_;
  }

  const std::string description_;
  const Choose choose_;
  mutable std::mutex mutex_;
  mutable std::optional<Chosen> chosen_;
};

}  // namespace

SourcePointer select(SourcePointer from, std::string description, Choose choose) {
  return std::make_shared<SelectSource>(std::move(from), std::move(description), std::move(choose));
}

}  // namespace lockstep::data
