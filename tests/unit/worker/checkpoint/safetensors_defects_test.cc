// Files that are not what they say: each defect is one line that names file and tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"
#include "worker/checkpoint/safetensors.h"

namespace everstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

std::string FileOf(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, 'd');
}

struct Defect {
  std::string name;
  std::string content;
  std::string message;
};

std::vector<Defect> Defects() {
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  return {
      {"empty", "", "0 bytes are less than a header"},
      {"short", "1234567", "7 bytes are less than a header"},
      {"huge header", std::string(8, '\xff'), "announces a header of 18446744073709551615 bytes"},
      {"header cut", FileOf(good, 8).substr(0, 20),
       "truncated in its header: 42 bytes are missing"},
      {"no JSON", FileOf("{\"x\":", 0), "the header is not JSON"},
      {"array", FileOf("[]", 0), "the header is not a JSON object"},
      {"bad UTF-8", FileOf("{\"\xff\xfe\":1}", 0), "the header is not JSON"},
      {"entry is a number", FileOf(R"({"x":1})", 0), "tensor 'x': unknown dtype ''"},
      {"dtype", FileOf(R"({"x":{"dtype":"F8","shape":[2],"data_offsets":[0,2]}})", 2),
       "tensor 'x': unknown dtype 'F8'"},
      {"no shape", FileOf(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", 8),
       "tensor 'x': malformed shape"},
      {"negative", FileOf(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
       "tensor 'x': malformed shape"},
      {"fraction", FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8.0]}})", 8),
       "tensor 'x': malformed shape or data_offsets"},
      {"backwards", FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
       "tensor 'x': data_offsets do not fit shape [2] F32"},
      {"too small", FileOf(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
       "tensor 'x': data_offsets do not fit shape [3] F32"},
      {"overflow",
       FileOf(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}})", 0),
       "tensor 'x': data_offsets do not fit shape"},
      {"overlap",
       FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
              12),
       "tensor 'y' overlaps tensor 'x'"},
      {"gap",
       FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("y":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
              20),
       "4 bytes between tensor 'x' and tensor 'y' belong to no tensor"},
      {"gap in front", FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
       "4 bytes between the header and tensor 'x'"},
      {"hidden tail", FileOf(good, 9), "1 bytes after tensor 'x' belong to no tensor"},
      {"truncated", FileOf(good, 3), "truncated in tensor 'x': 5 bytes are missing"},
      {"truncated in the first of two",
       FileOf(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
              R"("y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
              6),
       "truncated in tensor 'x': 10 bytes are missing"}};
}

TEST(SafetensorsDefectsTest, AreNamed) {
  const TempDir directory;
  const std::string path = directory / "bad.safetensors";
  for (const Defect& defect : Defects()) {
    ASSERT_TRUE(WriteFileAtomically(path, defect.content));
    const auto file = SafetensorsFile::Open(path);
    ASSERT_FALSE(file) << defect.name;
    EXPECT_EQ(file.error().code, ErrorCode::kDataLoss) << defect.name;
    EXPECT_THAT(file.error().message, HasSubstr(path + ": ")) << defect.name;
    EXPECT_THAT(file.error().message, HasSubstr(defect.message)) << defect.name;
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n"))) << defect.name;
  }
}

TEST(SafetensorsDefectsTest, NoFileAndNoRegularFile) {
  const TempDir directory;
  const auto missing = SafetensorsFile::Open(directory / "x.safetensors");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const auto folder = SafetensorsFile::Open(directory.path());
  EXPECT_THAT(folder.error().message, HasSubstr("is no regular file"));
}

// Other writers do not align the data.
TEST(SafetensorsDefectsTest, UnalignedDataIsNone) {
  const TempDir directory;
  const std::string path = directory / "odd.safetensors";
  ASSERT_TRUE(
      WriteFileAtomically(path, FileOf(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("y":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}} )",
                                       9)));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->Find("y")->data.size(), 8u);
}

// Every byte of a header changed in turn: an error or another valid file, never a crash, and no
// view outside the file.
TEST(SafetensorsDefectsTest, AnyByteOfTheHeaderChanged) {
  const TempDir directory;
  const std::string path = directory / "fuzz.safetensors";
  const std::string good = FileOf(
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("y":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
      16);
  for (size_t i = 0; i + 16 < good.size(); ++i) {
    for (const char mask : {'\x01', '\x10', '\x80'}) {
      std::string changed = good;
      changed[i] = static_cast<char>(changed[i] ^ mask);
      ASSERT_TRUE(WriteFileAtomically(path, changed));
      const auto file = SafetensorsFile::Open(path);
      if (!file) continue;
      unsigned sum = 0;
      for (const TensorView& tensor : file->tensors()) {
        for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
      }
      EXPECT_EQ(sum, 16u * 'd') << "byte " << i;
    }
  }
}

}  // namespace
}  // namespace everstep
