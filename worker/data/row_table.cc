#include "worker/data/row_table.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "common/files.h"
#include "common/strings.h"
#include "worker/data/csv.h"

namespace everstep {
namespace {

enum class FileType { kJson, kCsv, kText };

struct TableBuilder {
  RowTable table;
  RowOrigins origins;
  std::unordered_set<std::string> seen_columns;

  void Add(OrderedJson row, size_t line) {
    for (const auto& [key, value] : row.items()) {
      if (seen_columns.insert(key).second) table.columns.push_back(key);
    }
    table.rows.push_back(std::move(row));
    origins.AddRow(line);
  }
};

std::string_view WithoutByteOrderMark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

// Calls use(line, number) for every line without its end; stops at the first error.
template <typename Use>
Status ForEachLine(std::string_view text, Use use) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    RETURN_IF_ERROR(use(line, number));
  }
  return {};
}

Status ReadJsonArray(std::string_view text, const std::string& path, TableBuilder& builder) {
  ASSIGN_OR_RETURN(OrderedJson array, ParseOrderedJson(text, path));
  size_t row = 0;
  for (OrderedJson& value : array) {
    ++row;
    if (!value.is_object()) {
      return InvalidArgument(path + ": row " + std::to_string(row) +
                             ": must be an object with the data set's columns");
    }
    builder.Add(std::move(value), 0);
  }
  return {};
}

Status ReadJsonLines(std::string_view text, const std::string& path, TableBuilder& builder) {
  return ForEachLine(text, [&](std::string_view line, size_t number) -> Status {
    if (Trim(line).empty()) return {};
    const std::string where = path + ":" + std::to_string(number);
    auto value = ParseOrderedJson(line, path);
    if (!value) {
      // The parser counts lines within this line.
      std::string what = value.error().message;
      what.erase(0, what.find("malformed JSON"));
      return InvalidArgument(where + ": " + what +
                             "; a file must be one JSON array, or hold one object a line");
    }
    if (!value->is_object()) {
      return InvalidArgument(where + ": must be an object with the data set's columns");
    }
    builder.Add(std::move(*value), number);
    return {};
  });
}

Status ReadCsv(std::string_view text, const std::string& path, TableBuilder& builder) {
  ASSIGN_OR_RETURN(const std::vector<CsvRecord> records, ParseCsv(text, path));
  for (size_t i = 1; i < records.size(); ++i) {
    const CsvRecord& record = records[i];
    const std::vector<std::string>& header = records[0].fields;
    if (record.fields.size() > header.size()) {
      return InvalidArgument(path + ":" + std::to_string(record.line) + ": has " +
                             std::to_string(record.fields.size()) + " fields, the header has " +
                             std::to_string(header.size()) + "; quote fields that hold commas");
    }
    OrderedJson row = OrderedJson::object();
    for (size_t column = 0; column < header.size(); ++column) {
      const bool empty = column >= record.fields.size() || record.fields[column].empty();
      row[header[column]] = empty ? OrderedJson(nullptr) : OrderedJson(record.fields[column]);
    }
    builder.Add(std::move(row), record.line);
  }
  return {};
}

Status ReadText(std::string_view text, TableBuilder& builder) {
  return ForEachLine(text, [&](std::string_view line, size_t number) -> Status {
    builder.Add(OrderedJson{{"text", std::string(line)}}, number);
    return {};
  });
}

Result<FileType> TypeOf(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".json" || extension == ".jsonl") return FileType::kJson;
  if (extension == ".csv") return FileType::kCsv;
  if (extension == ".txt") return FileType::kText;
  if (extension == ".parquet" || extension == ".arrow") {
    return InvalidArgument(path + ": " + extension.substr(1) +
                           " files cannot be read; convert it to jsonl (pandas: "
                           "read_parquet(...).to_json(..., orient='records', lines=True))");
  }
  return InvalidArgument(path + ": unknown file type '" + extension +
                         "'; known: .json, .jsonl, .csv, .txt");
}

Status ReadOneFile(const std::string& path, TableBuilder& builder) {
  ASSIGN_OR_RETURN(const FileType type, TypeOf(path));
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  const std::string_view text = WithoutByteOrderMark(content);
  builder.origins.StartFile(path);
  switch (type) {
    case FileType::kJson:
      if (Trim(text).starts_with('[')) return ReadJsonArray(text, path, builder);
      return ReadJsonLines(text, path, builder);
    case FileType::kCsv:
      return ReadCsv(text, path, builder);
    case FileType::kText:
      return ReadText(text, builder);
  }
  return {};
}

Result<std::vector<std::string>> FilesOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound(path +
                    ": there is no such file; check 'file_name' in dataset_info.json and "
                    "'dataset_dir'");
  }
  if (!std::filesystem::is_directory(path)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !name.starts_with('.')) files.push_back(entry.path().string());
  }
  if (files.empty()) return NotFound(path + ": the folder holds no files");
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const FileType first, TypeOf(files.front()));
    ASSIGN_OR_RETURN(const FileType type, TypeOf(file));
    if (type == first) continue;
    return InvalidArgument(file + ": is of another type than " + files.front() +
                           "; a data set's folder must hold files of one type");
  }
  return files;
}

}  // namespace

void RowOrigins::StartFile(std::string path) { files_.push_back({std::move(path), lines_.size()}); }

void RowOrigins::AddRow(size_t line) { lines_.push_back(line); }

std::string RowOrigins::Where(size_t row) const {
  if (row >= lines_.size()) return "row " + std::to_string(row + 1);
  size_t file = files_.size() - 1;
  while (file > 0 && files_[file].first_row > row) --file;
  if (lines_[row] > 0) return files_[file].path + ":" + std::to_string(lines_[row]);
  return files_[file].path + ": row " + std::to_string(row - files_[file].first_row + 1);
}

Result<RowTable> ReadRowTable(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(path));
  TableBuilder builder;
  builder.table.source = path;
  for (const std::string& file : files) RETURN_IF_ERROR(ReadOneFile(file, builder));
  if (builder.table.rows.empty()) {
    return InvalidArgument(path + ": the data set is empty; it must hold at least one example");
  }
  builder.table.origins = std::make_shared<const RowOrigins>(std::move(builder.origins));
  return std::move(builder.table);
}

}  // namespace everstep
