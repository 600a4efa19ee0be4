#include "operator/manager/secret_key.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/fake_rest_client.h"

namespace everstep {
namespace {

const kube::ObjectRef kRef{"system", "secret"};

TEST(SecretKeyTest, ItIsMadeOnceAndKept) {
  FakeRestClient client;
  const auto first = EnsureSecretKey(client, kRef);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_GE(first->size(), 64u);
  EXPECT_EQ(*EnsureSecretKey(client, kRef), *first);
  FakeRestClient elsewhere;
  EXPECT_NE(*EnsureSecretKey(elsewhere, kRef), *first);
}

TEST(SecretKeyTest, OneThatAnotherMadeMeanwhileIsTaken) {
  FakeRestClient client;
  client.SetIntercept([busy = false](const std::string& verb) mutable -> Status {
    if (verb != "create" || std::exchange(busy, true)) return {};
    return MakeError(ErrorCode::kAlreadyExists, "there is one");
  });
  // The first one's create is refused though nothing is there yet: it looks again.
  EXPECT_EQ(EnsureSecretKey(client, kRef).error().code, ErrorCode::kNotFound);
  const auto made = EnsureSecretKey(client, kRef);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(*EnsureSecretKey(client, kRef), *made);
}

TEST(SecretKeyTest, ASecretWithoutAKeyIsNamed) {
  FakeRestClient client;
  ASSERT_TRUE(
      client.Create(kube::kSecrets, {{"metadata", {{"name", "secret"}, {"namespace", "system"}}}})
          .has_value());
  EXPECT_EQ(EnsureSecretKey(client, kRef).error().message,
            "Secret system/secret has no key: delete it, and it is made anew");
}

// The test vector of RFC 4231, section 4.3.
TEST(JobTokenTest, IsAnHmacOfTheUid) {
  EXPECT_EQ(JobToken("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace everstep
