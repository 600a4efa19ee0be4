#include "worker/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/checkpoint/file_writer.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;

Manifest Example() {
  Manifest manifest;
  manifest.step = 20;
  manifest.generation = 3;
  manifest.logical_world = 4;
  manifest.resumable = true;
  manifest.layout = Json::array({{{"name", "w\"eird"}, {"shape", {2, 3}}}});
  manifest.files = {{"model.safetensors", uint64_t{1} << 40, ChecksumOf("model")},
                    {"everstep/state.json", 12, ChecksumOf("state")}};
  return manifest;
}

TEST(ManifestTest, ComesBack) {
  const auto back = Manifest::Parse(Example().Serialize(), "m");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, Example());
  EXPECT_EQ(back->Serialize(), Example().Serialize());
}

TEST(ManifestTest, AnyChangedOrMissingByteIsSeen) {
  const std::string text = Example().Serialize();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(Manifest::Parse(changed, "m")) << "byte " << i << " of\n" << changed;
    EXPECT_FALSE(Manifest::Parse(text.substr(0, i), "m")) << "cut at " << i;
  }
  EXPECT_FALSE(Manifest::Parse(text + " ", "m"));
}

std::string Sealed(std::string body) {
  return body + ",\n  \"checksum\": \"" + ChecksumOf(body) + "\"\n}\n";
}

TEST(ManifestTest, ANewerVersionIsNotGuessedAt) {
  const auto parsed = Manifest::Parse(Sealed("{\n  \"version\": 2"), "dir/manifest.json");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(parsed.error().message, HasSubstr("dir/manifest.json: version 2"));
}

TEST(ManifestTest, PathsStayInside) {
  for (const char* path : {"/etc/passwd", "../x", "a/../../x", ""}) {
    Manifest manifest = Example();
    manifest.files[0].path = path;
    EXPECT_FALSE(Manifest::Parse(manifest.Serialize(), "m")) << path;
  }
}

}  // namespace
}  // namespace everstep
