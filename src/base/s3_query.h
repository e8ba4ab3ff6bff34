#pragma once

#include <string>

namespace lockstep {

/// Endpoint and region of the environment for a URI of S3 whose query is `query`, as more of that query. What the query
/// has stays as it is. Pure.
std::string s3_query(const std::string& query, const std::string& endpoint, const std::string& region);

/// The same with the variables that the AWS tools read: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION,
/// AWS_DEFAULT_REGION.
std::string s3_query_of_environment(const std::string& query);

}  // namespace lockstep
