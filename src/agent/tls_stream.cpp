#include "agent/tls_stream.h"

#include <lockstep/error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string_view>

namespace lockstep::agent {
namespace {

constexpr std::string_view kIdentity = "lockstep";
/// TLS_AES_256_GCM_SHA384.
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x02};
constexpr std::size_t kReadSize = 16 << 10;
/// At most this much is read before other connections have their turn.
constexpr int kReadsInARow = 16;
/// The kernel holds at most this much that it has not sent, so that signs of life do not wait behind it.
constexpr int kMostUnsent = 128 << 10;

using Context = std::shared_ptr<SSL_CTX>;

std::string tls_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return reason != nullptr ? reason : "the connection was cut";
}

const Bytes& secret_of(SSL* ssl) { return *static_cast<const Bytes*>(SSL_get_app_data(ssl)); }

/// The secret as a session that both sides pretend to resume. Null if OpenSSL fails.
SSL_SESSION* session_of(SSL* ssl) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher.data());
  std::unique_ptr<SSL_SESSION, decltype(&SSL_SESSION_free)> session(SSL_SESSION_new(), SSL_SESSION_free);
  const Bytes& secret = secret_of(ssl);
  if (cipher == nullptr || !session || SSL_SESSION_set1_master_key(session.get(), secret.data(), secret.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1)
    return nullptr;
  return session.release();
}

int find_session(SSL* ssl, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), size) != kIdentity) return 1;  // none is known
  *session = session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* size, SSL_SESSION** session) {
  *session = session_of(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *size = kIdentity.size();
  return *session != nullptr ? 1 : 0;
}

Context context_for(TlsStream::Side side) {
  const bool is_head = side == TlsStream::Side::head;
  Context context(SSL_CTX_new(is_head ? TLS_server_method() : TLS_client_method()), SSL_CTX_free);
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384") != 1)
    throw EngineError("[agent.tls] OpenSSL has no TLS 1.3: " + tls_error());
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // The node never accepts a certificate: it would prove nothing.
  SSL_CTX_set_verify(context.get(), is_head ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  if (is_head)
    SSL_CTX_set_psk_find_session_callback(context.get(), find_session);
  else
    SSL_CTX_set_psk_use_session_callback(context.get(), use_session);
  return context;
}

}  // namespace

struct TlsStream::Impl : std::enable_shared_from_this<TlsStream::Impl> {
  Impl(Loop& loop, sys::Descriptor given, const Bytes& secret, Side side, Handlers handlers)
      : loop(loop), socket(std::move(given)), secret(secret), handlers(std::move(handlers)) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL; programs that are started get the default
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof kMostUnsent);
    context = context_for(side);
    ssl = {SSL_new(context.get()), SSL_free};
    if (!ssl || SSL_set_fd(ssl.get(), socket.get()) != 1)
      throw EngineError("[agent.tls] OpenSSL cannot use a connection: " + tls_error());
    SSL_set_app_data(ssl.get(), &this->secret);
    if (side == Side::head)
      SSL_set_accept_state(ssl.get());
    else
      SSL_set_connect_state(ssl.get());
    watch = Watch(loop, socket.get());
  }

  void begin() {
    watch.on_readable([this] { progress(); });
    loop.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->progress();
    });
  }

  /// Does what can be done now. Keeps itself alive, because a handler may destroy the stream.
  void progress() {
    const auto self = shared_from_this();
    if (over || (!proved && !shake_hands())) return;
    read();
    write();
  }

  bool shake_hands() {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl.get());
    if (result != 1) {
      wait_for(SSL_get_error(ssl.get(), result));
      return false;
    }
    // Without the secret there is no way to get here, but an oversight in the settings must not open one.
    if (SSL_session_reused(ssl.get()) != 1) {
      close("the other side did not prove the secret");
      return false;
    }
    proved = true;
    handlers.proved();
    return !over;
  }

  void read() {
    std::array<std::uint8_t, kReadSize> buffer;
    for (int reads = 0; !over; ++reads) {
      if (reads == kReadsInARow) {
        loop.post([weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->progress();
        });
        return;
      }
      ERR_clear_error();
      const int size = SSL_read(ssl.get(), buffer.data(), buffer.size());
      if (size <= 0) return wait_for(SSL_get_error(ssl.get(), size));
      handlers.data(std::span(buffer).first(static_cast<std::size_t>(size)));
    }
  }

  void write() {
    while (!over && proved) {
      if (done == outgoing.size()) {
        outgoing.clear();
        done = 0;
        break;
      }
      ERR_clear_error();
      const int size = SSL_write(ssl.get(), outgoing.data() + done,
                                 static_cast<int>(std::min(outgoing.size() - done, std::size_t{1} << 20)));
      if (size <= 0) {
        wait_for(SSL_get_error(ssl.get(), size));
        break;
      }
      done += static_cast<std::size_t>(size);
    }
    const bool is_low = outgoing.size() - done < kLow;
    if (!over && proved && is_low && !is_telling) {
      is_telling = true;  // what it sends is written by the next round
      handlers.sent();
      is_telling = false;
      if (!over && done < outgoing.size()) write_soon();
    }
  }

  void write_soon() {
    if (is_due) return;
    is_due = true;
    loop.post([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->is_due = false;
      self->write();
    });
  }

  void wait_for(int error) {
    if (error == SSL_ERROR_WANT_READ) return;  // the watch always reads
    if (error == SSL_ERROR_WANT_WRITE) {
      if (is_waiting) return;
      is_waiting = true;
      watch.once_writable([weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        self->is_waiting = false;
        self->progress();
      });
      return;
    }
    if (error == SSL_ERROR_ZERO_RETURN) return close("the other side closed the connection");
    const int number = errno;
    close(error == SSL_ERROR_SYSCALL && number != 0 ? std::strerror(number) : tls_error());
  }

  void close(std::string why) {
    if (over) return;
    over = true;
    watch.pause();
    handlers.closed(std::move(why));
  }

  Loop& loop;
  sys::Descriptor socket;
  const Bytes secret;
  Handlers handlers;
  Context context;
  std::shared_ptr<SSL> ssl;
  Watch watch;
  Bytes outgoing;
  std::size_t done = 0;  ///< of outgoing
  bool proved = false, over = false;
  bool is_due = false, is_waiting = false, is_telling = false;
};

TlsStream::TlsStream(Loop& loop, sys::Descriptor socket, const Bytes& secret, Side side, Handlers handlers)
    : impl_(std::make_shared<Impl>(loop, std::move(socket), secret, side, std::move(handlers))) {
  impl_->begin();
}

TlsStream::~TlsStream() {
  impl_->over = true;
  impl_->watch = {};
}

bool TlsStream::is_proved() const { return impl_->proved && !impl_->over; }

void TlsStream::send(std::span<const std::uint8_t> bytes) {
  if (impl_->over) return;
  impl_->outgoing.insert(impl_->outgoing.end(), bytes.begin(), bytes.end());
  if (!impl_->is_telling) impl_->write_soon();
}

std::size_t TlsStream::waiting() const { return impl_->outgoing.size() - impl_->done; }

}  // namespace lockstep::agent
