// How the code is laid out, held by a test: who may include whom, how long files and lines are, and
// what may not stand in them. Each rule is a pure function from a file to what is wrong with it,
// tried on made-up files first and then on all that there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/files.h"

namespace everstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

struct SourceFile {
  std::string path;  // from the repository's root
  std::string text;
};
using Complaints = std::vector<std::string>;

// ---- Reading ----

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return lines;
}

struct Include {
  std::string path;
  bool quoted = false;  // "ours", not <theirs>
  size_t line = 0;
};

std::vector<Include> Includes(const SourceFile& file) {
  std::vector<Include> found;
  const auto lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    constexpr std::string_view kDirective = "#include ";
    if (!lines[i].starts_with(kDirective)) continue;
    const std::string_view rest = lines[i].substr(kDirective.size());
    const bool quoted = rest.starts_with('"');
    const size_t end = rest.find(quoted ? '"' : '>', 1);
    if (end == std::string_view::npos) continue;
    found.push_back({std::string(rest.substr(1, end - 1)), quoted, i + 1});
  }
  return found;
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string TopOf(const std::string& path) { return path.substr(0, path.find('/')); }

std::string Place(const SourceFile& file, size_t line) {
  return file.path + ":" + std::to_string(line) + ": ";
}

// ---- Rules ----

// What a folder may include beside itself. Of the worker's folders, only what they may not is said:
// its layers are its own, as long as they have no cycles.
bool MayInclude(const std::string& from, const std::string& to) {
  static const std::map<std::string, std::set<std::string>> kAllowed{
      {"common", {}},
      {"operator/api", {"common"}},
      {"operator/core", {"common", "operator/api"}},
      {"operator/http", {"common"}},
      {"operator/metrics", {"common"}},
      {"operator/kube", {"common", "operator/api"}},
      {"operator/local", {"common", "operator/api"}},
      {"operator/rendezvous", {"common"}},
      {"operator/shell",
       {"common", "operator/api", "operator/core", "operator/kube", "operator/rendezvous"}},
      {"operator/manager",
       {"common", "operator/api", "operator/core", "operator/http", "operator/kube",
        "operator/metrics", "operator/rendezvous", "operator/shell"}},
      {"operator/cli",
       {"common", "operator/api", "operator/core", "operator/local", "operator/rendezvous",
        "operator/shell", "worker/config"}},
  };
  if (from == to) return true;
  if (const auto allowed = kAllowed.find(from); allowed != kAllowed.end()) {
    return allowed->second.contains(to);
  }
  // The supervisor runs in other people's images: it brings little with it.
  if (from == "worker/supervisor") return to == "common" || to == "worker/recovery";
  return TopOf(from) == "worker" && (to == "common" || TopOf(to) == "worker");
}

Complaints CheckLayers(const SourceFile& file) {
  Complaints complaints;
  if (TopOf(file.path) == "tests") return complaints;
  for (const Include& include : Includes(file)) {
    if (!include.quoted || MayInclude(FolderOf(file.path), FolderOf(include.path))) continue;
    complaints.push_back(Place(file, include.line) + FolderOf(file.path) + " may not include " +
                         include.path);
  }
  return complaints;
}

// LibTorch only where tensors are computed with.
Complaints CheckTorch(const SourceFile& file) {
  static const std::set<std::string> kAllowed{"worker", "worker/kernels", "worker/model",
                                              "worker/objective", "worker/parallel"};
  Complaints complaints;
  if (TopOf(file.path) == "tests" || kAllowed.contains(FolderOf(file.path))) return complaints;
  for (const Include& include : Includes(file)) {
    for (const char* prefix : {"torch/", "ATen/", "c10/"}) {
      if (!include.path.starts_with(prefix)) continue;
      complaints.push_back(Place(file, include.line) + "LibTorch does not belong into " +
                           FolderOf(file.path));
    }
  }
  return complaints;
}

Complaints CheckSize(const SourceFile& file) {
  constexpr size_t kMaxLines = 500, kMaxColumns = 100;
  Complaints complaints;
  const auto lines = Lines(file.text);
  if (lines.size() > kMaxLines) {
    complaints.push_back(file.path + ": has " + std::to_string(lines.size()) +
                         " lines: it is two things, find their names");
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    // Characters, not bytes: in UTF-8 all but the first byte of one are 10xxxxxx.
    const auto columns = std::ranges::count_if(lines[i], [](char c) { return (c & 0xc0) != 0x80; });
    if (static_cast<size_t>(columns) > kMaxColumns) {
      complaints.push_back(Place(file, i + 1) + "is " + std::to_string(columns) + " columns wide");
    }
  }
  return complaints;
}

// Written in two parts, so that this file may hold them.
const std::string kUsingNamespace = std::string("using name") + "space ";
const std::vector<std::string> kUnfinished{std::string("TO") + "DO", std::string("FIX") + "ME",
                                           std::string("XX") + "X:"};

Complaints CheckUsing(const SourceFile& file) {
  Complaints complaints;
  const auto lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t at = lines[i].find(kUsingNamespace);
    // Literals cannot be had otherwise.
    if (at == std::string_view::npos || lines[i].find("_literals;", at) != lines[i].npos) continue;
    complaints.push_back(Place(file, i + 1) + "names what it uses one by one");
  }
  return complaints;
}

Complaints CheckFinished(const SourceFile& file) {
  Complaints complaints;
  const auto lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const std::string& mark : kUnfinished) {
      if (lines[i].find(mark) == std::string_view::npos) continue;
      complaints.push_back(Place(file, i + 1) + "is unfinished: " + mark);
    }
  }
  return complaints;
}

Complaints CheckGuard(const SourceFile& file) {
  if (!file.path.ends_with(".h")) return {};
  std::string guard = "EVERSTEP_" + file.path + "_";
  for (char& c : guard) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0
            ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
            : '_';
  }
  if (file.text.find("#ifndef " + guard + "\n#define " + guard + "\n") != std::string::npos) {
    return {};
  }
  return {file.path + ": lacks the include guard " + guard};
}

using Edges = std::map<std::string, std::set<std::string>>;

// A cycle through `at`, as "a -> b -> a", or "".
std::string FindCycle(const Edges& edges, const std::string& at, std::vector<std::string>& path,
                      std::set<std::string>& done) {
  if (const auto start = std::ranges::find(path, at); start != path.end()) {
    std::string cycle;
    for (auto folder = start; folder != path.end(); ++folder) cycle += *folder + " -> ";
    return cycle + at;
  }
  if (done.contains(at)) return "";
  path.push_back(at);
  if (const auto next = edges.find(at); next != edges.end()) {
    for (const std::string& to : next->second) {
      if (std::string cycle = FindCycle(edges, to, path, done); !cycle.empty()) return cycle;
    }
  }
  path.pop_back();
  done.insert(at);
  return "";
}

Complaints CheckCycles(const std::vector<SourceFile>& files) {
  Edges edges;
  for (const SourceFile& file : files) {
    if (TopOf(file.path) == "tests") continue;
    for (const Include& include : Includes(file)) {
      const std::string from = FolderOf(file.path), to = FolderOf(include.path);
      if (include.quoted && from != to) edges[from].insert(to);
    }
  }
  std::set<std::string> done;
  for (const auto& [folder, targets] : edges) {
    std::vector<std::string> path;
    if (const std::string cycle = FindCycle(edges, folder, path, done); !cycle.empty()) {
      return {"folders include each other: " + cycle};
    }
  }
  return {};
}

// Every folder has a paragraph that begins with its name, and no paragraph is left of one that
// went.
Complaints CheckReadme(const std::string& readme, const std::string& path,
                       const std::set<std::string>& folders) {
  Complaints complaints;
  std::set<std::string> described;
  for (const std::string_view line : Lines(readme)) {
    if (!line.starts_with("**")) continue;
    const size_t end = line.find("/**");
    if (end != std::string_view::npos) described.emplace(line.substr(2, end - 2));
  }
  for (const std::string& folder : folders) {
    if (!described.contains(folder)) {
      complaints.push_back(path + ": says nothing of " + folder + ": begin a paragraph with **" +
                           folder + "/**");
    }
  }
  for (const std::string& folder : described) {
    if (!folders.contains(folder)) complaints.push_back(path + ": there is no folder " + folder);
  }
  return complaints;
}

// ---- The rules themselves ----

TEST(TidyRulesTest, Layers) {
  const auto check = [](const std::string& path, const std::string& include) {
    return CheckLayers({path, "#pragma once\n#include \"" + include + "\"\n"});
  };
  EXPECT_THAT(check("operator/core/a.cc", "operator/api/b.h"), IsEmpty());
  EXPECT_THAT(check("operator/cli/a.cc", "worker/config/b.h"), IsEmpty());
  EXPECT_THAT(check("worker/a.cc", "worker/model/b.h"), IsEmpty());
  EXPECT_THAT(check("tests/unit/operator/core/a.cc", "operator/local/b.h"), IsEmpty());
  EXPECT_THAT(
      check("operator/core/a.cc", "operator/local/b.h"),
      ElementsAre("operator/core/a.cc:2: operator/core may not include operator/local/b.h"));
  for (const auto& [path, include] :
       std::map<std::string, std::string>{{"common/a.h", "operator/api/b.h"},
                                          {"operator/api/a.h", "operator/core/b.h"},
                                          {"operator/rendezvous/a.h", "operator/api/b.h"},
                                          {"operator/shell/a.h", "operator/local/b.h"},
                                          {"operator/shell/a.cc", "worker/config/b.h"},
                                          {"operator/cli/a.cc", "worker/text/b.h"},
                                          {"operator/new/a.cc", "common/b.h"},
                                          {"worker/config/a.cc", "operator/api/b.h"},
                                          {"worker/supervisor/a.cc", "worker/config/b.h"},
                                          {"worker/a.cc", "tests/support/b.h"}}) {
    EXPECT_EQ(check(path, include).size(), 1u) << path << " includes " << include;
  }
}

TEST(TidyRulesTest, Torch) {
  EXPECT_THAT(CheckTorch({"worker/model/a.h", "#include <torch/torch.h>\n"}), IsEmpty());
  EXPECT_THAT(CheckTorch({"worker/comm/a.h", "#include <torch/torch.h>\n"}),
              ElementsAre("worker/comm/a.h:1: LibTorch does not belong into worker/comm"));
  EXPECT_EQ(CheckTorch({"operator/core/a.h", "#include \"ATen/ATen.h\"\n"}).size(), 1u);
}

TEST(TidyRulesTest, Size) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += std::string(100, 'x') + "\n";
  EXPECT_THAT(CheckSize({"a.cc", text}), IsEmpty());
  EXPECT_THAT(CheckSize({"a.cc", text + "\n"}),
              ElementsAre("a.cc: has 501 lines: it is two things, find their names"));
  EXPECT_THAT(CheckSize({"a.cc", "\n" + std::string(101, 'x')}),
              ElementsAre("a.cc:2: is 101 columns wide"));
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\u00e4";
  EXPECT_THAT(CheckSize({"a.cc", wide}), IsEmpty());
}

TEST(TidyRulesTest, Words) {
  EXPECT_THAT(CheckUsing({"a.cc", kUsingNamespace + "std;\n"}),
              ElementsAre("a.cc:1: names what it uses one by one"));
  EXPECT_THAT(CheckUsing({"a.cc", kUsingNamespace + "std::chrono_literals;\n"}), IsEmpty());
  for (const std::string& mark : kUnfinished) {
    EXPECT_EQ(CheckFinished({"a.cc", "int x;  // " + mark + "\n"}).size(), 1u);
  }
}

TEST(TidyRulesTest, Guards) {
  EXPECT_THAT(CheckGuard({"a/b_c.h", "#ifndef EVERSTEP_A_B_C_H_\n#define EVERSTEP_A_B_C_H_\n"}),
              IsEmpty());
  EXPECT_THAT(CheckGuard({"a/b.h", "#pragma once\n"}),
              ElementsAre("a/b.h: lacks the include guard EVERSTEP_A_B_H_"));
}

TEST(TidyRulesTest, Cycles) {
  EXPECT_THAT(CheckCycles({{"worker/a/x.h", "#include \"worker/b/y.h\"\n"},
                           {"worker/b/y.h", "#include \"worker/c/z.h\"\n"},
                           {"worker/a/v.h", "#include \"worker/c/z.h\"\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckCycles({{"worker/a/x.h", "#include \"worker/b/y.h\"\n"},
                           {"worker/b/y.h", "#include \"worker/c/z.h\"\n"},
                           {"worker/c/z.cc", "#include \"worker/a/w.h\"\n"}}),
              ElementsAre("folders include each other: worker/a -> worker/b -> worker/c -> "
                          "worker/a"));
}

TEST(TidyRulesTest, Readme) {
  EXPECT_THAT(CheckReadme("# x\n\n**a/** does.\n", "x/README.md", {"a"}), IsEmpty());
  EXPECT_EQ(CheckReadme("# x\n", "x/README.md", {"a"}).size(), 1u);
  EXPECT_THAT(CheckReadme("**a/** does.\n**b/** did.\n", "x/README.md", {"a"}),
              ElementsAre("x/README.md: there is no folder b"));
}

// ---- The code as it is ----

class TidyTest : public testing::Test {
 protected:
  static std::vector<SourceFile> Read(const std::vector<std::string>& tops,
                                      const std::set<std::string>& extensions) {
    std::vector<SourceFile> files;
    const fs::path root(EVERSTEP_SOURCE_DIR);
    for (const std::string& top : tops) {
      for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
        if (!entry.is_regular_file() || !extensions.contains(entry.path().extension())) continue;
        const std::string path = fs::relative(entry.path(), root).string();
        if (path.find("/target/") != std::string::npos) continue;  // what cargo builds
        files.push_back({path, ReadFile(entry.path().string()).value_or("")});
      }
    }
    return files;
  }
  static const std::vector<SourceFile>& Code() {
    static const auto* files =
        new std::vector<SourceFile>(Read({"common", "operator", "worker", "tests"}, {".h", ".cc"}));
    return *files;
  }
  static Complaints All(Complaints (*rule)(const SourceFile&)) {
    Complaints all;
    for (const SourceFile& file : Code()) {
      for (std::string& complaint : rule(file)) all.push_back(std::move(complaint));
    }
    return all;
  }
};

TEST_F(TidyTest, ThereIsCode) { EXPECT_GT(Code().size(), 100u); }
TEST_F(TidyTest, LayersAreKept) { EXPECT_THAT(All(CheckLayers), IsEmpty()); }
TEST_F(TidyTest, FoldersHaveNoCycles) { EXPECT_THAT(CheckCycles(Code()), IsEmpty()); }
TEST_F(TidyTest, TorchStaysWhereTensorsAre) { EXPECT_THAT(All(CheckTorch), IsEmpty()); }
TEST_F(TidyTest, FilesAndLinesAreShort) { EXPECT_THAT(All(CheckSize), IsEmpty()); }
TEST_F(TidyTest, NamesAreUsedOneByOne) { EXPECT_THAT(All(CheckUsing), IsEmpty()); }
TEST_F(TidyTest, HeadersAreGuarded) { EXPECT_THAT(All(CheckGuard), IsEmpty()); }

TEST_F(TidyTest, IncludesOfOursExist) {
  Complaints complaints;
  for (const SourceFile& file : Code()) {
    for (const Include& include : Includes(file)) {
      if (!include.quoted || fs::exists(fs::path(EVERSTEP_SOURCE_DIR) / include.path)) continue;
      complaints.push_back(Place(file, include.line) + include.path +
                           ": is not a path from the repository's root");
    }
  }
  EXPECT_THAT(complaints, IsEmpty());
}

TEST_F(TidyTest, NothingIsLeftUnfinished) {
  Complaints complaints;
  for (const SourceFile& file :
       Read({"common", "operator", "worker", "tests", "cmake", "scripts", "docs", "examples"},
            {"", ".h", ".cc", ".rs", ".txt", ".cmake", ".py", ".sh", ".md", ".yaml"})) {
    for (std::string& complaint : CheckFinished(file)) complaints.push_back(std::move(complaint));
  }
  EXPECT_THAT(complaints, IsEmpty());
}

TEST_F(TidyTest, EveryFoldersPurposeIsWritten) {
  for (const std::string top : {"operator", "worker"}) {
    const fs::path root = fs::path(EVERSTEP_SOURCE_DIR) / top;
    std::set<std::string> folders;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_directory()) folders.insert(entry.path().filename().string());
    }
    const auto readme = ReadFile((root / "README.md").string());
    ASSERT_TRUE(readme.has_value()) << readme.error().message;
    EXPECT_THAT(CheckReadme(*readme, top + "/README.md", folders), IsEmpty());
  }
}

}  // namespace
}  // namespace everstep
