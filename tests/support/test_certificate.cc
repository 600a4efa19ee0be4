#include "tests/support/test_certificate.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "common/check.h"

namespace everstep {
namespace {

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

void AddExtension(X509* certificate, int nid, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
  EVERSTEP_CHECK(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Signed by `issuer_key`; an authority when `issuer` is null.
Certificate Make(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  constexpr long kDaySeconds = 24 * 3600;
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDaySeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDaySeconds);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(),
                       issuer == nullptr ? subject : X509_get_subject_name(issuer));
  if (issuer == nullptr) {
    AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  } else {
    const bool address = name.find_first_not_of("0123456789.") == std::string::npos;
    AddExtension(certificate.get(), NID_subject_alt_name, (address ? "IP:" : "DNS:") + name);
  }
  EVERSTEP_CHECK(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0);
  return certificate;
}

std::string ToText(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string Pem(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  return ToText(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return ToText(bio);
}

}  // namespace

TestCertificate MakeTestCertificate(const std::string& host) {
  const Key authority_key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const Certificate authority =
      Make("authority of " + host, authority_key.get(), nullptr, authority_key.get());
  const Certificate certificate = Make(host, key.get(), authority.get(), authority_key.get());
  return {.authority_pem = Pem(authority.get()),
          .certificate_pem = Pem(certificate.get()) + Pem(key.get())};
}

}  // namespace everstep
