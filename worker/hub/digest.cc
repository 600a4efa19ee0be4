#include "worker/hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/check.h"

namespace everstep {
namespace {

constexpr size_t kReadBytes = 1 << 20;

std::string Hex(const unsigned char* bytes, size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < size; ++i) {
    hex += kDigits[bytes[i] >> 4];
    hex += kDigits[bytes[i] & 15];
  }
  return hex;
}

Result<std::string> FileDigest(const std::string& path, const EVP_MD* algorithm,
                               const std::string& prefix) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return NotFound(path + ": cannot be read: " + ErrnoText(errno));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   &EVP_MD_CTX_free);
  EVERSTEP_CHECK(EVP_DigestInit_ex(context.get(), algorithm, nullptr) == 1);
  EVP_DigestUpdate(context.get(), prefix.data(), prefix.size());
  std::vector<char> buffer(kReadBytes);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    EVP_DigestUpdate(context.get(), buffer.data(), got);
  }
  if (std::ferror(file.get()) != 0) return DataLoss(path + ": cannot be read: " + ErrnoText(errno));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  return Hex(digest, size);
}

bool IsHex(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

}  // namespace

Result<std::string> FileSha256(const std::string& path) {
  return FileDigest(path, EVP_sha256(), "");
}

Result<std::string> FileGitBlobSha1(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound(path + ": cannot be read: " + error.message());
  std::string prefix = "blob " + std::to_string(size);
  prefix.push_back('\0');
  return FileDigest(path, EVP_sha1(), prefix);
}

Status CheckDigest(const std::string& path, const std::string& etag) {
  constexpr size_t kSha256Digits = 64;
  constexpr size_t kSha1Digits = 40;
  if (!IsHex(etag) || (etag.size() != kSha256Digits && etag.size() != kSha1Digits)) return {};
  ASSIGN_OR_RETURN(const std::string digest,
                   etag.size() == kSha256Digits ? FileSha256(path) : FileGitBlobSha1(path));
  if (digest == etag) return {};
  return DataLoss("the checksum is " + digest + ", but the hub's is " + etag);
}

}  // namespace everstep
