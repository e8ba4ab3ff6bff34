// File systems that Python gives: they are called back.

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <pybind11/stl.h>

#include "sources.h"

namespace lockstep::python {
namespace {

namespace py = pybind11;

using arrow::Result;
using arrow::Status;
using arrow::fs::FileInfo;
using arrow::fs::FileSelector;
using arrow::fs::FileType;

py::object borrowed(const std::shared_ptr<PyObject>& object) {
  return py::reinterpret_borrow<py::object>(object.get());
}

/// Calls Python, whose exceptions become statuses.
template <class T, class Call>
Result<T> asked(const Call& call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (const py::error_already_set& error) {
    return Status::IOError(py::str(error.value()).cast<std::string>());
  } catch (const py::cast_error& error) {
    return Status::IOError(error.what());
  }
}

/// The memory of a Python object.
class PythonBuffer final : public arrow::Buffer {
 public:
  PythonBuffer(std::shared_ptr<PyObject> bytes, const char* data, std::int64_t size)
      : Buffer(reinterpret_cast<const std::uint8_t*>(data), size), bytes_(std::move(bytes)) {}

 private:
  std::shared_ptr<PyObject> bytes_;
};

/// A pyarrow.NativeFile. Only the functions without a position may be called by several threads.
class PythonFile final : public arrow::io::RandomAccessFile {
 public:
  PythonFile(py::object file, std::int64_t size) : file_(shared_reference(std::move(file))), size_(size) {}

  Status Close() override {
    if (closed_) return Status::OK();
    closed_ = true;
    return asked<bool>([&] { return borrowed(file_).attr("close")(), true; }).status();
  }
  bool closed() const override { return closed_; }
  Result<std::int64_t> Tell() const override { return position_; }
  Status Seek(std::int64_t position) override {
    position_ = position;
    return Status::OK();
  }
  Result<std::int64_t> GetSize() override { return size_; }

  Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t count) override {
    return asked<std::shared_ptr<arrow::Buffer>>([&]() -> std::shared_ptr<arrow::Buffer> {
      py::bytes bytes = borrowed(file_).attr("read_at")(count, position);
      char* data = nullptr;
      py::ssize_t size = 0;
      if (PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0) throw py::error_already_set();
      return std::make_shared<PythonBuffer>(shared_reference(std::move(bytes)), data, size);
    });
  }
  Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto buffer, ReadAt(position, count));
    if (buffer->size() > 0) std::memcpy(out, buffer->data(), static_cast<std::size_t>(buffer->size()));
    return buffer->size();
  }
  Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto read, ReadAt(position_, count, out));
    position_ += read;
    return read;
  }
  Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  std::shared_ptr<PyObject> file_;
  std::int64_t size_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

FileInfo to_info(const py::handle& info) {
  const int type = py::int_(info.attr("type"));  // as FileType numbers them
  FileInfo converted(info.attr("path").cast<std::string>(), static_cast<FileType>(type));
  if (converted.type() == FileType::File && !info.attr("size").is_none())
    converted.set_size(info.attr("size").cast<std::int64_t>());
  return converted;
}

class PythonFileSystem final : public arrow::fs::FileSystem {
 public:
  explicit PythonFileSystem(py::object system) : system_(shared_reference(std::move(system))) {}

  std::string type_name() const override { return "python"; }
  bool Equals(const FileSystem& other) const override { return this == &other; }

  Result<FileInfo> GetFileInfo(const std::string& path) override {
    return asked<FileInfo>([&] { return to_info(borrowed(system_).attr("get_file_info")(path)); });
  }
  Result<std::vector<FileInfo>> GetFileInfo(const FileSelector& select) override {
    return asked<std::vector<FileInfo>>([&] {
      const auto selector = py::module_::import("pyarrow.fs").attr("FileSelector");
      const auto infos = borrowed(system_).attr("get_file_info")(
          selector(select.base_dir, py::arg("allow_not_found") = select.allow_not_found,
                   py::arg("recursive") = select.recursive));
      std::vector<FileInfo> converted;
      for (const auto& info : infos) converted.push_back(to_info(info));
      return converted;
    });
  }

  Result<std::shared_ptr<arrow::io::RandomAccessFile>> OpenInputFile(const std::string& path) override {
    return asked<std::shared_ptr<arrow::io::RandomAccessFile>>([&]() -> std::shared_ptr<arrow::io::RandomAccessFile> {
      auto file = borrowed(system_).attr("open_input_file")(path);
      const auto size = file.attr("size")().cast<std::int64_t>();
      return std::make_shared<PythonFile>(std::move(file), size);
    });
  }
  Result<std::shared_ptr<arrow::io::InputStream>> OpenInputStream(const std::string& path) override {
    return OpenInputFile(path);
  }

  Status CreateDir(const std::string&, bool) override { return read_only(); }
  Status DeleteDir(const std::string&) override { return read_only(); }
  Status DeleteDirContents(const std::string&, bool) override { return read_only(); }
  Status DeleteRootDirContents() override { return read_only(); }
  Status DeleteFile(const std::string&) override { return read_only(); }
  Status Move(const std::string&, const std::string&) override { return read_only(); }
  Status CopyFile(const std::string&, const std::string&) override { return read_only(); }
  Result<std::shared_ptr<arrow::io::OutputStream>> OpenOutputStream(
      const std::string&, const std::shared_ptr<const arrow::KeyValueMetadata>&) override {
    return read_only();
  }
  Result<std::shared_ptr<arrow::io::OutputStream>> OpenAppendStream(
      const std::string&, const std::shared_ptr<const arrow::KeyValueMetadata>&) override {
    return read_only();
  }

 private:
  static Status read_only() { return Status::NotImplemented("data sets only read"); }

  std::shared_ptr<PyObject> system_;
};

}  // namespace

std::shared_ptr<PyObject> shared_reference(py::object object) {
  return {object.release().ptr(), [](PyObject* pointer) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(pointer);
          }};
}

std::shared_ptr<arrow::fs::FileSystem> to_file_system(const py::object& object) {
  if (object.is_none()) return nullptr;
  return std::make_shared<PythonFileSystem>(object);
}

}  // namespace lockstep::python
