#include "worker/checkpoint/safetensors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "common/files.h"
#include "tests/unit/worker/checkpoint/checkpoint_fixture.h"

namespace everstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NamesIn;
using testing::TempDir;
namespace fs = std::filesystem;

template <typename T>
TensorView View(const std::string& name, DType dtype, std::vector<int64_t> shape,
                const std::vector<T>& values) {
  return {name, dtype, std::move(shape), std::as_bytes(std::span(values))};
}

const std::vector<float> kFloats{1.5f, -2.0f, 3.25f, 0.0f, 1e-7f, 6.0f};
const std::vector<int64_t> kLongs{-1, 1ll << 40};
const std::vector<uint16_t> kHalves{0x3f80, 0x4000, 0x4040};
const std::vector<uint8_t> kBytes{1, 0, 1};

std::vector<TensorView> AllKinds() {
  return {View("b.floats", DType::kFloat32, {2, 3}, kFloats),
          View("a.floats", DType::kFloat32, {6}, kFloats),
          View("longs", DType::kInt64, {2}, kLongs),
          View("halves", DType::kBFloat16, {3, 1}, kHalves),
          View("flags", DType::kBool, {3}, kBytes),
          {"empty", DType::kFloat32, {0, 4}, {}},
          {"scalar", DType::kUInt8, {}, std::as_bytes(std::span(kBytes).first(1))}};
}

TEST(SafetensorsTest, ComesBack) {
  const TempDir directory;
  const std::string path = directory / "t.safetensors";
  const std::vector<TensorView> tensors = AllKinds();
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"format", "pt"}}));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), tensors.size());
  EXPECT_EQ(file->metadata().at("format"), "pt");
  for (const TensorView& tensor : tensors) {
    const TensorView* back = file->Find(tensor.name);
    ASSERT_NE(back, nullptr) << tensor.name;
    EXPECT_EQ(back->dtype, tensor.dtype);
    EXPECT_EQ(back->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(back->data, tensor.data)) << tensor.name;
  }
  EXPECT_EQ(file->Find("nothing"), nullptr);
  EXPECT_EQ(fs::file_size(path), SafetensorsBytes(tensors, {{"format", "pt"}}));
}

// The views stay good when the object is copied, moved and its file is gone.
TEST(SafetensorsTest, TheMappingLivesAsLongAsAnyCopy) {
  const TempDir directory;
  const std::string path = directory / "t.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, {View("x", DType::kFloat32, {6}, kFloats)}, {}));
  std::optional<SafetensorsFile> file = SafetensorsFile::Open(path).value();
  const SafetensorsFile copy = *file;
  file.reset();
  fs::remove(path);
  const auto* values = reinterpret_cast<const float*>(copy.Find("x")->data.data());
  EXPECT_EQ(std::vector<float>(values, values + 6), kFloats);
}

// What safetensors.torch.save_file of the Python library wrote for these tensors.
TEST(SafetensorsTest, EqualsThePythonLibraryByteForByte) {
  const TempDir directory;
  const std::string path = directory / "t.safetensors";
  const std::vector<float> weights{1, 2, 3, 4};
  const std::vector<int64_t> ids{7};
  const std::vector<uint16_t> halves{0x3f80, 0x4000};
  ASSERT_TRUE(WriteSafetensors(
      path,
      {View("z.half", DType::kBFloat16, {2}, halves),
       View("b.weight", DType::kFloat32, {2, 2}, weights),
       View("a.weight", DType::kFloat32, {4}, weights), View("ids", DType::kInt64, {1}, ids)},
      {{"format", "pt"}}));
  const std::string text = ReadFile(path).value();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("a.weight":{"dtype":"F32","shape":[4],"data_offsets":[8,24]},)"
      R"("b.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},)"
      R"("z.half":{"dtype":"BF16","shape":[2],"data_offsets":[40,44]}})";
  const auto bytes = [](const auto& values) {
    const auto view = std::as_bytes(std::span(values));
    return std::string(reinterpret_cast<const char*>(view.data()), view.size());
  };
  const std::string length("\x18\x01\0\0\0\0\0\0", 8);
  EXPECT_EQ(text, length + header + "       " + bytes(ids) + bytes(weights) + bytes(weights) +
                      bytes(halves));
}

TEST(SafetensorsTest, TheSameInputInAnyOrderGivesTheSameBytes) {
  const TempDir directory;
  std::vector<TensorView> tensors = AllKinds();
  ASSERT_TRUE(WriteSafetensors(directory / "1", tensors, {}));
  std::ranges::reverse(tensors);
  ASSERT_TRUE(WriteSafetensors(directory / "2", tensors, {}));
  EXPECT_EQ(ReadFile(directory / "1").value(), ReadFile(directory / "2").value());
}

TEST(SafetensorsTest, RefusesToWriteWhatNobodyCouldRead) {
  const TempDir directory;
  const std::string path = directory / "t.safetensors";
  const auto twice = WriteSafetensors(
      path, {View("x", DType::kFloat32, {6}, kFloats), View("x", DType::kInt64, {2}, kLongs)}, {});
  EXPECT_THAT(twice.error().message, HasSubstr("two tensors are named 'x'"));
  const auto wrong = WriteSafetensors(path, {View("x", DType::kFloat32, {7}, kFloats)}, {});
  EXPECT_THAT(wrong.error().message, HasSubstr("'x' has 24 bytes, its shape [7] needs 28"));
  EXPECT_THAT(NamesIn(directory.path()), ElementsAre()) << "no file is left";
}

// Offsets beyond 4 GiB, in a file that is a hole.
TEST(SafetensorsTest, LargeFiles) {
  const TempDir directory;
  const std::string path = directory / "large.safetensors";
  const int64_t rows = (int64_t{5} << 30) / 4;
  const std::string end = std::to_string(rows * 4);
  std::string header = R"({"a":{"dtype":"F32","shape":[)" + std::to_string(rows) +
                       R"(],"data_offsets":[0,)" + end +
                       R"(]},"b":{"dtype":"F32","shape":[1],"data_offsets":[)" + end + "," +
                       std::to_string(rows * 4 + 4) + "]}}";
  const uint64_t length = header.size();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(fd, &length, 8), 8);
  ASSERT_EQ(write(fd, header.data(), header.size()), static_cast<ssize_t>(header.size()));
  const float last = 42.5f;
  const auto at = static_cast<off_t>(8 + header.size()) + rows * 4;
  const ssize_t written = pwrite(fd, &last, 4, at);
  close(fd);
  if (written != 4) GTEST_SKIP() << "the file system has no files of 5 GiB";
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->Find("a")->data.size(), static_cast<size_t>(rows) * 4);
  float value = 0;
  std::memcpy(&value, file->Find("b")->data.data(), 4);
  EXPECT_EQ(value, last);
}

// ---- Directories -------------------------------------------------------------------------------

TEST(SafetensorsSetTest, OneFile) {
  const TempDir directory;
  ASSERT_TRUE(WriteSafetensors(directory / "model.safetensors", AllKinds(), {}));
  const auto set = SafetensorsSet::Open(directory.path());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->Names().size(), AllKinds().size());
  EXPECT_NE(set->Find("longs"), nullptr);
  EXPECT_EQ(set->PathOf("longs"), directory / "model.safetensors");
}

class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteSafetensors(directory_ / "model-1.safetensors",
                                 {View("x", DType::kFloat32, {6}, kFloats)}, {}));
    ASSERT_TRUE(WriteSafetensors(directory_ / "model-2.safetensors",
                                 {View("y", DType::kInt64, {2}, kLongs)}, {}));
    WriteIndex(R"({"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}})");
  }
  void WriteIndex(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(directory_ / "model.safetensors.index.json", text));
  }
  Error OpenError() {
    const auto set = SafetensorsSet::Open(directory_.path());
    return set ? Error{ErrorCode::kInternal, "it opened"} : set.error();
  }
  TempDir directory_;
};

TEST_F(ShardsTest, AreOneSet) {
  const auto set = SafetensorsSet::Open(directory_.path());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(set->Names(), ElementsAre("x", "y"));
  EXPECT_EQ(set->PathOf("y"), directory_ / "model-2.safetensors");
  EXPECT_EQ(set->Find("y")->data.size(), 16u);
}

TEST_F(ShardsTest, AMissingShardIsNamed) {
  fs::remove(directory_ / "model-2.safetensors");
  EXPECT_EQ(OpenError().code, ErrorCode::kNotFound);
  EXPECT_THAT(OpenError().message, HasSubstr("model-2.safetensors: this shard"));
}

TEST_F(ShardsTest, AMissingTensorIsNamedWithItsFile) {
  WriteIndex(R"({"weight_map": {"x": "model-1.safetensors", "z": "model-2.safetensors"}})");
  EXPECT_THAT(OpenError().message, HasSubstr("model-2.safetensors: tensor 'z' is missing"));
}

TEST_F(ShardsTest, AnIndexThatIsNone) {
  for (const char* text : {"[]", "{}", R"({"weight_map": {}})", R"({"weight_map": {"x": 1}})",
                           R"({"weight_map": {"x": "../model-1.safetensors"}})", "{"}) {
    WriteIndex(text);
    EXPECT_THAT(OpenError().message, HasSubstr("model.safetensors.index.json")) << text;
  }
}

TEST(SafetensorsSetTest, OnlyAPickle) {
  const TempDir directory;
  ASSERT_TRUE(WriteFileAtomically(directory / "pytorch_model.bin", "x"));
  const auto set = SafetensorsSet::Open(directory.path());
  ASSERT_FALSE(set);
  EXPECT_THAT(set.error().message, HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(set.error().message, HasSubstr("convert them to safetensors"));
}

TEST(SafetensorsSetTest, NoModel) {
  const TempDir directory;
  EXPECT_EQ(SafetensorsSet::Open(directory.path()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(SafetensorsSet::Open(directory / "nowhere").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace everstep
