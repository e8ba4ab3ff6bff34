#include "dashboard/certificate.h"

#include <arpa/inet.h>
#include <lockstep/error.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <memory>

namespace lockstep::dashboard {
namespace {

constexpr long kYear = 365L * 24 * 3600;

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;

void check(bool good, const char* what) {
  if (!good) throw EngineError(std::string("[dashboard] OpenSSL cannot ") + what + "; give --cert and --key");
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

void add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  check(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "add an extension to a certificate");
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  return ::inet_pton(AF_INET, host.c_str(), parsed.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), parsed.data()) == 1;
}

std::string fingerprint_of(const X509* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  check(X509_digest(certificate, EVP_sha256(), digest.data(), &size) == 1, "hash a certificate");
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    std::array<char, 4> pair{};
    std::snprintf(pair.data(), pair.size(), "%02X", digest[i]);
    text += (i > 0 ? ":" : "") + std::string(pair.data());
  }
  return text;
}

}  // namespace

Certificate make_certificate(const std::string& host) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  check(key != nullptr, "make a key");
  const X509Ptr certificate(X509_new());
  check(certificate != nullptr && X509_set_version(certificate.get(), 2) == 1, "make a certificate");
  std::uint64_t serial = 0;
  check(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "draw a random number");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1U);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kYear);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* common = reinterpret_cast<const unsigned char*>("lockstep dashboard");
  check(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, common, -1, -1, 0) == 1, "name a certificate");
  X509_set_issuer_name(certificate.get(), name);
  X509_set_pubkey(certificate.get(), key.get());
  add_extension(certificate.get(), NID_subject_alt_name, (is_address(host) ? "IP:" : "DNS:") + host);
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), NID_ext_key_usage, "serverAuth");
  check(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "sign a certificate");

  const BioPtr certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  check(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1, "write a certificate");
  check(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "write a key");
  return {text_of(certificate_text.get()), text_of(key_text.get()), fingerprint_of(certificate.get())};
}

std::string fingerprint_of(const std::string& certificate) {
  const BioPtr text(BIO_new_mem_buf(certificate.data(), static_cast<int>(certificate.size())));
  const X509Ptr parsed(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  return parsed ? fingerprint_of(parsed.get()) : "";
}

std::string sha256_base64(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  check(EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1, "hash a text");
  std::array<unsigned char, 64> encoded{};
  const int size = EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(digest.size()));
  return {reinterpret_cast<const char*>(encoded.data()), static_cast<std::size_t>(size)};
}

}  // namespace lockstep::dashboard
