#include "dashboard/server.h"

#include <lockstep/error.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/files.h"

namespace lockstep::dashboard {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kCalm = std::chrono::milliseconds(40);  ///< between two events to one page
constexpr auto kLook = std::chrono::seconds(2);
constexpr const char* kEvents = "/api/events";

using Notes = std::map<std::string, std::set<std::string>>;

std::string event_text(const Notes& notes) {
  Value value = Value::object();
  for (const auto& [place, files] : notes) value[place] = files;
  return "data: " + to_json(value) + "\n\n";
}

Response answer(const Handler& handler, const Request& request) {
  try {
    return handler(request);
  } catch (const sys::FileError& error) {
    return error_response(error.is_missing() ? 404 : 403, error.what());
  } catch (const ConfigError& error) {
    return error_response(400, error.what());
  } catch (const StorageError& error) {
    return error_response(404, error.what());
  } catch (const std::exception& error) {
    log_warning(std::string("[dashboard] ") + error.what());
    return error_response(500, error.what());
  }
}

std::string header_of(const http::request<http::empty_body>& request, http::field field) {
  const auto value = request[field];
  return {value.data(), value.size()};
}

/// Of every answer: nothing may embed the page, guess types, keep secrets, or load anything from elsewhere.
void add_security_headers(http::fields& fields) {
  fields.set("X-Content-Type-Options", "nosniff");
  fields.set("X-Frame-Options", "DENY");
  fields.set("Referrer-Policy", "no-referrer");
  fields.set("Cross-Origin-Resource-Policy", "same-origin");
  fields.set("Cross-Origin-Opener-Policy", "same-origin");
  fields.set(http::field::cache_control, "no-store");
}

}  // namespace

/// A page that listens to events.
class EventStream {
 public:
  virtual ~EventStream() = default;
  virtual void tell(const std::vector<Change>& changes) = 0;
  virtual void beat() = 0;
  virtual void close() = 0;
  std::set<std::string> places;
};

struct Server::Impl {
  Impl(ServerOptions given, Handler to, Feed& from)
      : options(std::move(given)),
        handler(std::move(to)),
        feed(from),
        acceptor(io),
        watch(io),
        look_timer(io),
        beat_timer(io),
        signals(io) {}

  void listen();
  void accept();
  void await_changes();
  void take_changes();
  void look();
  void beat();
  void tell(const std::vector<Change>& changes);
  void follow();
  void run();
  template <class Work>
  void ask_feed(Work work);

  ServerOptions options;
  Handler handler;
  Feed& feed;
  // Destroyed after `io`, whose last handlers own connections.
  std::size_t connections = 0;
  std::unordered_set<EventStream*> streams;
  bool feed_busy = false;                     ///< a thread of the pool uses the feed
  std::vector<std::function<void()>> queued;  ///< what is to be done with the feed then
  bool stopping = false;
  asio::io_context io{1};
  asio::thread_pool pool{2};
  std::optional<asio::ssl::context> tls;
  tcp::acceptor acceptor;
  asio::posix::stream_descriptor watch;
  asio::steady_timer look_timer, beat_timer;
  asio::signal_set signals;
};

namespace {

template <class Stream>
class Connection final : public EventStream, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <class Server>
  Connection(Stream stream, Server& server)
      : stream_(std::move(stream)),
        limits_(server.options.limits),
        access_(server.options.access),
        handler_(server.handler),
        calm_(server.io),
        deadline_(server.io),
        io_(server.io),
        pool_(server.pool),
        join_([&server](EventStream* self) {
          if (server.streams.size() >= server.options.limits.streams) return false;
          server.streams.insert(self);
          server.follow();
          return true;
        }),
        leave_([&server](EventStream* self) {
          --server.connections;
          if (server.streams.erase(self) > 0) server.follow();
        }) {}
  ~Connection() override { leave_(this); }

  void start() {
    if constexpr (kTls) {
      beast::get_lowest_layer(stream_).expires_after(ticks(limits_.request));
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
        if (!error) self->read();
      });
    } else {
      read();
    }
  }

  void tell(const std::vector<Change>& changes) override {
    for (const Change& change : changes)
      if (change.listed || places.contains(change.place)) notes_[change.place].insert(change.file);
    send_notes();
  }
  void beat() override {
    if (!sending_) send(": \n\n");
  }
  void close() override {
    error_code ignored;
    beast::get_lowest_layer(stream_).socket().close(ignored);
    calm_.cancel();
    deadline_.cancel();
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  void read() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(limits_.header));
    parser_->body_limit(0);
    beast::get_lowest_layer(stream_).expires_after(ticks(limits_.request));
    http::async_read(stream_, buffer_, *parser_,
                     [self = this->shared_from_this()](error_code error, std::size_t) { self->on_read(error); });
  }

  void on_read(error_code error) {
    if (error == http::error::header_limit) return refuse(error_response(431, "the request's header is too large"));
    if (error == http::error::body_limit) return refuse(error_response(413, "a request must have no body"));
    const bool is_malformed = error.category() == http::make_error_code(http::error::bad_method).category() &&
                              error != http::error::end_of_stream && error != http::error::partial_message;
    if (is_malformed) return refuse(error_response(400, "this is not a request of HTTP/1.1"));
    if (error) return close();  // closed, or too slow

    const auto& message = parser_->get();
    const auto target = message.target();
    auto parsed = parse_target({target.data(), target.size()});
    if (!parsed) return refuse(error_response(400, "the path of the request is malformed"));
    const auto method = message.method_string();
    Request request{{method.data(), method.size()},
                    std::move(parsed->path),
                    std::move(parsed->query),
                    header_of(message, http::field::host),
                    header_of(message, http::field::origin),
                    header_of(message, http::field::authorization)};
    keep_alive_ = message.keep_alive();
    is_head_ = message.method() == http::verb::head;
    if (auto refusal = access_.refusal(request)) return respond(std::move(*refusal));
    if (request.path == kEvents && !is_head_) return stream(request);
    asio::post(pool_, [self = this->shared_from_this(), request = std::move(request)]() mutable {
      auto response = std::make_shared<Response>(answer(self->handler_, request));
      asio::io_context& io = self->io_;
      // The pool keeps no reference: a connection must be destroyed by the network's thread.
      asio::post(io, [self = std::move(self), response] { self->respond(std::move(*response)); });
    });
  }

  void refuse(Response response) {
    keep_alive_ = false;
    respond(std::move(response));
  }

  void respond(Response response) {
    auto message = std::make_shared<http::response<http::string_body>>();
    message->result(static_cast<unsigned>(response.status));
    message->version(11);
    message->set(http::field::content_type, response.type);
    add_security_headers(*message);
    for (const auto& [name, value] : response.headers) message->set(name, value);
    message->keep_alive(keep_alive_);
    message->content_length(response.body.size());
    if (!is_head_) message->body() = std::move(response.body);
    beast::get_lowest_layer(stream_).expires_after(ticks(limits_.response));
    http::async_write(stream_, *message, [self = this->shared_from_this(), message](error_code error, std::size_t) {
      if (error || !self->keep_alive_) return self->close();
      self->read();
    });
  }

  void stream(const Request& request) {
    for (const std::string& place : request.parameters("place")) places.insert(place);
    if (!join_(this)) return refuse(error_response(503, "too many pages are open; close some"));
    http::response<http::empty_body> head(http::status::ok, 11);
    head.set(http::field::content_type, "text/event-stream; charset=utf-8");
    add_security_headers(head);
    std::ostringstream text;
    text << head.base();
    beast::get_lowest_layer(stream_).expires_never();
    send(text.str() + "retry: 1000\n\n");
    watch_for_end();
  }

  /// The client says nothing more; reading tells when it has gone.
  void watch_for_end() {
    stream_.async_read_some(asio::buffer(&byte_, 1),
                            [self = this->shared_from_this()](error_code, std::size_t) { self->close(); });
  }

  void send_notes() {
    if (sending_ || calming_ || notes_.empty()) return;
    send(event_text(std::exchange(notes_, {})));
    calming_ = true;
    calm_.expires_after(kCalm);
    calm_.async_wait([self = this->shared_from_this()](error_code error) {
      self->calming_ = false;
      if (!error) self->send_notes();
    });
  }

  void send(std::string text) {
    sending_ = true;
    out_ = std::move(text);
    deadline_.expires_after(ticks(limits_.response));
    deadline_.async_wait([self = this->shared_from_this()](error_code error) {
      if (!error) self->close();
    });
    asio::async_write(stream_, asio::buffer(out_), [self = this->shared_from_this()](error_code error, std::size_t) {
      self->deadline_.cancel();
      self->sending_ = false;
      if (error) return self->close();
      self->send_notes();
    });
  }

  Stream stream_;
  const ServerLimits& limits_;
  const Access& access_;
  const Handler& handler_;
  beast::flat_buffer buffer_{64 << 10};
  std::optional<http::request_parser<http::empty_body>> parser_;
  bool keep_alive_ = false, is_head_ = false;

  // of a stream of events
  asio::steady_timer calm_, deadline_;
  Notes notes_;      ///< not sent yet
  std::string out_;  ///< being sent
  bool sending_ = false, calming_ = false;
  char byte_ = 0;

  asio::io_context& io_;
  asio::thread_pool& pool_;
  std::function<bool(EventStream*)> join_;
  std::function<void(EventStream*)> leave_;
};

}  // namespace

void Server::Impl::listen() {
  if (!options.certificate.empty()) try {
      tls.emplace(asio::ssl::context::tls_server);
      SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
      tls->use_certificate_chain(asio::buffer(options.certificate));
      tls->use_private_key(asio::buffer(options.key), asio::ssl::context::pem);
    } catch (const boost::system::system_error& error) {
      throw ConfigError(std::string("[dashboard] the certificate or its key cannot be used: ") + error.what() +
                        "; both must be PEM files that belong together");
    }
  error_code error;
  const std::string where = in_quotes(options.host) + " port " + std::to_string(options.port);
  const auto found =
      tcp::resolver(io).resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    throw ConfigError("[dashboard] " + where + " is no address of this machine: " + error.message() +
                      "; give --host a name or an address of one of its interfaces");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    throw EngineError("[dashboard] cannot listen on " + where + ": " + error.message() +
                      "; choose another with --port, or let the system choose with --port 0");
  options.access.tls = tls.has_value();
}

void Server::Impl::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error && connections < options.limits.connections) {
      ++connections;
      socket.set_option(tcp::no_delay(true), error);
      beast::tcp_stream stream(std::move(socket));
      if (tls)
        std::make_shared<Connection<beast::ssl_stream<beast::tcp_stream>>>(
            beast::ssl_stream<beast::tcp_stream>(std::move(stream), *tls), *this)
            ->start();
      else
        std::make_shared<Connection<beast::tcp_stream>>(std::move(stream), *this)->start();
    }
    accept();
  });
}

/// Runs `work`, which returns changes, in the pool, one after the other.
template <class Work>
void Server::Impl::ask_feed(Work work) {
  if (feed_busy) {
    queued.emplace_back([this, work] { ask_feed(work); });
    return;
  }
  feed_busy = true;
  asio::post(pool, [this, work] {
    std::vector<Change> changes;
    try {
      changes = work();
    } catch (const std::exception& error) {
      log_warning(std::string("[dashboard] ") + error.what());
    }
    asio::post(io, [this, changes = std::move(changes)] {
      feed_busy = false;
      tell(changes);
      for (auto& next : std::exchange(queued, {})) next();
    });
  });
}

void Server::Impl::await_changes() {
  if (!watch.is_open()) return;
  watch.async_wait(asio::posix::stream_descriptor::wait_read, [this](error_code error) {
    if (error) return;
    ask_feed([this] {
      auto changes = feed.take();
      asio::post(io, [this] { await_changes(); });
      return changes;
    });
  });
}

void Server::Impl::look() {
  look_timer.expires_after(kLook);
  look_timer.async_wait([this](error_code error) {
    if (error) return;
    if (streams.empty()) return look();
    ask_feed([this] { return feed.look(); });
    look();
  });
}

void Server::Impl::beat() {
  beat_timer.expires_after(ticks(options.limits.heartbeat));
  beat_timer.async_wait([this](error_code error) {
    if (error) return;
    for (EventStream* stream : streams) stream->beat();
    beat();
  });
}

void Server::Impl::tell(const std::vector<Change>& changes) {
  if (changes.empty()) return;
  for (EventStream* stream : streams) stream->tell(changes);
}

void Server::Impl::follow() {
  if (stopping) return;
  std::set<std::string> places;
  for (const EventStream* stream : streams) places.insert(stream->places.begin(), stream->places.end());
  ask_feed([this, wanted = std::vector(places.begin(), places.end())] {
    feed.follow(wanted);
    return std::vector<Change>();
  });
}

void Server::Impl::run() {
  if (feed.descriptor() >= 0) watch.assign(feed.descriptor());
  signals.add(SIGINT);
  signals.add(SIGTERM);
  signals.async_wait([this](error_code error, int) {
    if (!error) io.stop();
  });
  accept();
  await_changes();
  look();
  beat();
  io.run();
  stopping = true;
  pool.join();
  if (watch.is_open()) watch.release();  // the feed closes it
}

Server::Server(ServerOptions options, Handler handler, Feed& feed)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), feed)) {
  impl_->listen();
}

Server::~Server() = default;

int Server::port() const { return impl_->acceptor.local_endpoint().port(); }
void Server::run() { impl_->run(); }
void Server::stop() { impl_->io.stop(); }

}  // namespace lockstep::dashboard
