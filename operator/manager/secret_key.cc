#include "operator/manager/secret_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "common/check.h"

namespace everstep {
namespace {

constexpr size_t kKeyBytes = 32;

std::string Hex(const unsigned char* bytes, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return text;
}

// Secrets hold base64; of hexadecimal digits that is the same alphabet for everybody.
std::string ToBase64(const std::string& text) {
  std::string encoded(4 * ((text.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  encoded.resize(static_cast<size_t>(size));
  return encoded;
}

Result<std::string> KeyOfSecret(const OrderedJson& secret, const kube::ObjectRef& ref) {
  const OrderedJson data = secret.value("data", OrderedJson::object());
  std::string key = data.is_object() ? data.value("key", "") : "";
  if (key.empty()) {
    return DataLoss("Secret " + ref.namespace_name + "/" + ref.name +
                    " has no key: delete it, and it is made anew");
  }
  return key;
}

}  // namespace

Result<std::string> EnsureSecretKey(kube::RestClient& client, const kube::ObjectRef& ref) {
  const auto known = client.Get(kube::kSecrets, ref);
  if (known) return KeyOfSecret(*known, ref);
  if (known.error().code != ErrorCode::kNotFound) return tl::unexpected(known.error());
  std::array<unsigned char, kKeyBytes> key{};
  if (RAND_bytes(key.data(), kKeyBytes) != 1) return Internal("no random numbers are to be had");
  const OrderedJson secret = {{"apiVersion", "v1"},
                              {"kind", "Secret"},
                              {"metadata", {{"name", ref.name}, {"namespace", ref.namespace_name}}},
                              {"data", {{"key", ToBase64(Hex(key.data(), key.size()))}}}};
  const auto created = client.Create(kube::kSecrets, secret);
  if (created) return KeyOfSecret(*created, ref);
  if (created.error().code != ErrorCode::kAlreadyExists) return tl::unexpected(created.error());
  ASSIGN_OR_RETURN(const OrderedJson others, client.Get(kube::kSecrets, ref));
  return KeyOfSecret(others, ref);
}

std::string JobToken(const std::string& key, const std::string& uid) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(uid.data()), uid.size(), digest.data(), &size);
  EVERSTEP_CHECK(made != nullptr);
  return Hex(digest.data(), size);
}

}  // namespace everstep
