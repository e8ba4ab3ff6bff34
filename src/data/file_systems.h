#pragma once

#include <arrow/type_fwd.h>

#include <map>
#include <memory>
#include <string>

namespace arrow::fs {
class FileSystem;
}

/// File systems by the beginning of a path: s3://, gs://, file:// and what else Arrow knows.
namespace lockstep::data {

struct Place {
  std::shared_ptr<arrow::fs::FileSystem> system;
  std::string path;    ///< within the system
  std::string origin;  ///< "s3://"
};

/// Finds file systems and keeps them, so that paths of one bucket share connections. For one thread.
class FileSystems {
 public:
  /// `path` is absolute, or a URI, whose path may be a pattern. S3 takes credentials, region (AWS_REGION,
  /// AWS_DEFAULT_REGION) and endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL) from the environment, unless the URI has
  /// them (`?region=`, `?endpoint_override=`, `&scheme=`). Libraries are loaded and started when they are first needed,
  /// and ended when the process exits. Throws ConfigError for a scheme that is not known.
  Place place_of(const std::string& path);

 private:
  std::map<std::string, Place> roots_;  ///< by URI without path
};

}  // namespace lockstep::data
