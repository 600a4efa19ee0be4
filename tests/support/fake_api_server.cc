#include "tests/support/fake_api_server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>

namespace everstep {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr size_t kMaxBody = 8 << 20;

OrderedJson StatusObject(int code, const std::string& reason, const std::string& message) {
  return {{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
          {"message", message}, {"reason", reason},   {"code", code}};
}

FakeApiServer::Answer Refuse(int code, const std::string& reason, const std::string& message) {
  return {.status = code, .body = DumpJson(StatusObject(code, reason, message))};
}

std::string Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::map<std::string, std::string> ParseQuery(std::string_view query) {
  std::map<std::string, std::string> values;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    const size_t equals = std::min(part.find('='), part.size());
    values[std::string(part.substr(0, equals))] =
        equals < part.size() ? Decode(part.substr(equals + 1)) : "";
    query = end == query.size() ? std::string_view{} : query.substr(end + 1);
  }
  return values;
}

// "/api/v1/namespaces/a/pods/b/status" is object "/api/v1/namespaces/a/pods/b" of collection
// "/api/v1/namespaces/a/pods", which is also part of "/api/v1/pods".
struct Target {
  std::string collection, name, subresource, everywhere;
};

Target ParsePath(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  const size_t group = parts.size() > 0 && parts[0] == "api" ? 2 : 3;
  size_t at = group;
  if (parts.size() > group + 1 && parts[group] == "namespaces") at = group + 2;
  Target target;
  const auto join = [&](size_t end, size_t skip_from) {
    std::string joined;
    for (size_t i = 0; i < end && i < parts.size(); ++i) {
      if (i >= skip_from && i < at) continue;
      joined += "/" + parts[i];
    }
    return joined;
  };
  target.collection = join(at + 1, at);
  target.everywhere = join(at + 1, group);
  if (parts.size() > at + 1) target.name = parts[at + 1];
  if (parts.size() > at + 2) target.subresource = parts[at + 2];
  return target;
}

bool IsIn(const std::string& object_path, const std::string& collection) {
  const Target target = ParsePath(object_path);
  return target.collection == collection || target.everywhere == collection;
}

// "label" or "label=value".
bool Selects(const std::string& selector, const OrderedJson& object) {
  if (selector.empty()) return true;
  const size_t equals = std::min(selector.find('='), selector.size());
  const OrderedJson labels = object["metadata"].value("labels", OrderedJson::object());
  const std::string name = selector.substr(0, equals);
  if (!labels.contains(name)) return false;
  return equals == selector.size() || labels[name] == selector.substr(equals + 1);
}

int64_t VersionOf(const OrderedJson& object) {
  return std::stoll(object["metadata"].value("resourceVersion", "0"));
}

}  // namespace

class FakeApiServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(uint16_t port)
      : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), port)) {
    thread_ = std::thread([this] { Accept(); });
  }

  void Stop() {
    ending_ = true;
    {
      // Wakes the acceptor.
      boost::system::error_code ignored;
      tcp::socket(io_).connect(acceptor_.local_endpoint(), ignored);
    }
    thread_.join();
    const std::unique_lock lock(mutex_);
    for (const auto& socket : sockets_) shutdown(socket->native_handle(), SHUT_RDWR);
    changed_.notify_all();
  }
  void AwaitConnections() {
    for (std::thread& thread : threads_) thread.join();
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  struct Watch {
    std::string collection, selector;
    size_t next = 0;               // of history_
    std::vector<std::string> raw;  // to be sent first
    bool bookmark = false, end = false, cut = false;
  };
  struct Event {
    std::string type, path;
    OrderedJson object;
  };

  OrderedJson Write(const std::string& path, OrderedJson object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    if (!object["metadata"].contains("uid")) {
      object["metadata"]["uid"] = "uid-" + std::to_string(version_);
    }
    const bool known = objects_.contains(path);
    objects_[path] = object;
    history_.push_back({known ? "MODIFIED" : "ADDED", path, object});
    changed_.notify_all();
    return object;
  }
  void Erase(const std::string& path) {
    OrderedJson object = objects_[path];
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    objects_.erase(path);
    history_.push_back({"DELETED", path, object});
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, OrderedJson> objects_;
  std::vector<Event> history_;
  int64_t version_ = 100;
  int64_t oldest_version_ = 0;
  std::list<Watch> watches_;
  Intercept intercept_;
  std::vector<Seen> seen_;

 private:
  void Accept() {
    while (!ending_) {
      auto socket = std::make_shared<tcp::socket>(io_);
      boost::system::error_code error;
      acceptor_.accept(*socket, error);
      if (error || ending_) continue;
      socket->set_option(tcp::no_delay(true), error);
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] {
        Serve(*socket);
        const std::lock_guard relock(mutex_);
        std::erase(sockets_, socket);
      });
    }
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

  void Serve(tcp::socket& socket) {
    beast::flat_buffer buffer;
    while (!ending_) {
      http::request_parser<http::string_body> parser;
      parser.body_limit(kMaxBody);
      boost::system::error_code error;
      http::read(socket, buffer, parser, error);
      if (error) return;
      const auto& request = parser.get();
      const std::string target(request.target());
      const size_t question = std::min(target.find('?'), target.size());
      Seen seen{.method = std::string(request.method_string()),
                .path = target.substr(0, question),
                .query = question < target.size() ? target.substr(question + 1) : "",
                .authorization = std::string(request[http::field::authorization]),
                .body = request.body()};
      std::optional<Answer> answer;
      Intercept intercept;
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(seen);
        intercept = intercept_;
      }
      if (intercept) answer = intercept(seen);
      const auto query = ParseQuery(seen.query);
      if (!answer && seen.method == "GET" && query.contains("watch")) {
        if (!ServeWatch(socket, seen, query)) return;
        continue;
      }
      if (!answer) answer = Act(seen, query);
      if (answer->close_without_answer) return;
      if (!Reply(socket, *answer)) return;
    }
  }

  static bool Reply(tcp::socket& socket, const Answer& answer) {
    http::response<http::string_body> response;
    response.result(static_cast<unsigned>(answer.status));
    response.set(http::field::content_type, "application/json");
    if (answer.retry_after) {
      response.set(http::field::retry_after, std::to_string(*answer.retry_after));
    }
    response.body() = answer.body;
    response.prepare_payload();
    boost::system::error_code error;
    http::write(socket, response, error);
    return !error;
  }

  static bool Send(tcp::socket& socket, const std::string& text) {
    boost::system::error_code error;
    asio::write(socket, http::make_chunk(asio::const_buffer(text.data(), text.size())), error);
    return !error;
  }

  // False when the connection is of no more use.
  bool ServeWatch(tcp::socket& socket, const Seen& seen,
                  const std::map<std::string, std::string>& query) {
    const auto value = [&](const char* name) {
      return query.contains(name) ? query.at(name) : std::string();
    };
    const int64_t from =
        value("resourceVersion").empty() ? 0 : std::stoll(value("resourceVersion"));
    std::unique_lock lock(mutex_);
    if (from < oldest_version_) {
      lock.unlock();
      return Reply(socket, Refuse(410, "Expired", "too old resource version"));
    }
    Watch& watch = watches_.emplace_back();
    const auto self = std::prev(watches_.end());
    watch.collection = seen.path;
    watch.selector = value("labelSelector");
    while (watch.next < history_.size() && VersionOf(history_[watch.next].object) <= from) {
      ++watch.next;
    }
    lock.unlock();
    http::response<http::empty_body> head{http::status::ok, 11};
    head.set(http::field::content_type, "application/json");
    head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    boost::system::error_code error;
    http::write_header(socket, serializer, error);
    const bool fine = !error && Stream(socket, watch);
    lock.lock();
    watches_.erase(self);
    return fine;
  }

  bool Stream(tcp::socket& socket, Watch& watch) {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return ending_ || watch.bookmark || watch.end || watch.cut || !watch.raw.empty() ||
               watch.next < history_.size();
      });
      if (ending_) return false;
      std::string text;
      for (const std::string& raw : std::exchange(watch.raw, {})) text += raw;
      for (; watch.next < history_.size(); ++watch.next) {
        const Event& event = history_[watch.next];
        if (!IsIn(event.path, watch.collection) || !Selects(watch.selector, event.object)) continue;
        text += DumpJson(OrderedJson{{"type", event.type}, {"object", event.object}}) + "\n";
      }
      if (std::exchange(watch.bookmark, false)) {
        const OrderedJson object = {{"metadata", {{"resourceVersion", std::to_string(version_)}}}};
        text += DumpJson(OrderedJson{{"type", "BOOKMARK"}, {"object", object}}) + "\n";
      }
      const bool end = watch.end, cut = watch.cut;
      if (cut) text += R"({"type":"ADDED","object":{"metada)";
      lock.unlock();
      if (!text.empty() && !Send(socket, text)) return false;
      if (cut) return false;
      if (end) {
        boost::system::error_code error;
        asio::write(socket, http::make_chunk_last(), error);
        return !error;
      }
    }
  }

  Answer Act(const Seen& seen, const std::map<std::string, std::string>& query) {
    const std::lock_guard lock(mutex_);
    const Target target = ParsePath(seen.path);
    const std::string path = target.collection + "/" + target.name;
    if (seen.method == "GET" && target.name.empty()) return List(target.collection, query);
    if (seen.method == "POST") return Create(target.collection, seen.body);
    if (!objects_.contains(path)) return Refuse(404, "NotFound", target.name + " not found");
    if (seen.method == "GET") return {.body = DumpJson(objects_[path])};
    const auto body = ParseOrderedJson(seen.body, "body");
    if (!body) return Refuse(400, "BadRequest", body.error().message);
    if (seen.method == "DELETE") return Delete(path, *body);
    OrderedJson object = objects_[path];
    if (seen.method == "PATCH") {
      object.merge_patch(*body);
      return {.body = DumpJson(Write(path, object))};
    }
    const std::string expected = (*body)["metadata"].value("resourceVersion", "");
    if (!expected.empty() && expected != object["metadata"]["resourceVersion"]) {
      return Refuse(409, "Conflict", "the object has been modified");
    }
    if (target.subresource == "status") {
      object["status"] = body->value("status", OrderedJson::object());
    } else {
      const OrderedJson status = object.value("status", OrderedJson());
      object = *body;
      if (!status.is_null()) object["status"] = status;
    }
    return {.body = DumpJson(Write(path, object))};
  }

  Answer Create(const std::string& collection, const std::string& text) {
    const auto body = ParseOrderedJson(text, "body");
    if (!body) return Refuse(400, "BadRequest", body.error().message);
    const std::string name = (*body)["metadata"].value("name", "");
    const std::string path = collection + "/" + name;
    if (objects_.contains(path)) return Refuse(409, "AlreadyExists", name + " already exists");
    return {.status = 201, .body = DumpJson(Write(path, *body))};
  }

  Answer Delete(const std::string& path, const OrderedJson& options) {
    const OrderedJson wanted = options.value("preconditions", OrderedJson::object());
    if (wanted.contains("uid") && wanted["uid"] != objects_[path]["metadata"]["uid"]) {
      return Refuse(409, "Conflict", "the UID in the precondition does not match");
    }
    Erase(path);
    return {.body = R"({"kind":"Status","status":"Success"})"};
  }

  Answer List(const std::string& collection, const std::map<std::string, std::string>& query) {
    const auto value = [&](const char* name) {
      return query.contains(name) ? query.at(name) : std::string();
    };
    const size_t limit = value("limit").empty() ? 1000 : std::stoul(value("limit"));
    const size_t start = value("continue").empty() ? 0 : std::stoul(value("continue"));
    std::vector<OrderedJson> all;
    for (const auto& [path, object] : objects_) {
      if (IsIn(path, collection) && Selects(value("labelSelector"), object)) all.push_back(object);
    }
    OrderedJson items = OrderedJson::array();
    for (size_t i = start; i < all.size() && i < start + limit; ++i) {
      OrderedJson item = all[i];
      item.erase("kind");
      item.erase("apiVersion");
      items.push_back(item);
    }
    OrderedJson metadata = {{"resourceVersion", std::to_string(version_)}};
    if (start + limit < all.size()) metadata["continue"] = std::to_string(start + limit);
    return {.body =
                DumpJson(OrderedJson{{"kind", "List"}, {"metadata", metadata}, {"items", items}})};
  }

  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::atomic<bool> ending_ = false;
  std::vector<std::shared_ptr<tcp::socket>> sockets_;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

FakeApiServer::FakeApiServer(uint16_t port) : impl_(std::make_shared<Impl>(port)) {}
FakeApiServer::~FakeApiServer() {
  impl_->Stop();
  impl_->AwaitConnections();
}
uint16_t FakeApiServer::port() const { return impl_->port(); }
std::string FakeApiServer::url() const { return "http://127.0.0.1:" + std::to_string(port()); }
void FakeApiServer::SetIntercept(Intercept intercept) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->intercept_ = std::move(intercept);
}
std::vector<FakeApiServer::Seen> FakeApiServer::seen() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->seen_;
}
size_t FakeApiServer::watches() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->watches_.size();
}
OrderedJson FakeApiServer::Put(const std::string& path, OrderedJson object) {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->Write(path, std::move(object));
}
void FakeApiServer::Remove(const std::string& path) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->Erase(path);
}
std::optional<OrderedJson> FakeApiServer::Get(const std::string& path) const {
  const std::lock_guard lock(impl_->mutex_);
  const auto found = impl_->objects_.find(path);
  if (found == impl_->objects_.end()) return std::nullopt;
  return found->second;
}
int64_t FakeApiServer::version() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->version_;
}
void FakeApiServer::SendBookmarks() {
  const std::lock_guard lock(impl_->mutex_);
  for (auto& watch : impl_->watches_) watch.bookmark = true;
  impl_->changed_.notify_all();
}
void FakeApiServer::SendRaw(const std::string& bytes) {
  const std::lock_guard lock(impl_->mutex_);
  for (auto& watch : impl_->watches_) watch.raw.push_back(bytes);
  impl_->changed_.notify_all();
}
void FakeApiServer::EndWatches() {
  const std::lock_guard lock(impl_->mutex_);
  for (auto& watch : impl_->watches_) watch.end = true;
  impl_->changed_.notify_all();
}
void FakeApiServer::CutWatches() {
  const std::lock_guard lock(impl_->mutex_);
  for (auto& watch : impl_->watches_) watch.cut = true;
  impl_->changed_.notify_all();
}
void FakeApiServer::ForgetHistory() {
  const std::lock_guard lock(impl_->mutex_);
  impl_->oldest_version_ = ++impl_->version_;
}

}  // namespace everstep
