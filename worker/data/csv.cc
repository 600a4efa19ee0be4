#include "worker/data/csv.h"

namespace everstep {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  Result<std::vector<CsvRecord>> Parse() {
    std::vector<CsvRecord> records;
    while (at_ < text_.size()) {
      CsvRecord record{.fields = {}, .line = line_};
      RETURN_IF_ERROR(ReadRecord(record));
      const bool blank = record.fields.size() == 1 && record.fields[0].empty();
      if (!blank) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  Status ReadRecord(CsvRecord& record) {
    while (true) {  // once per field
      std::string& field = record.fields.emplace_back();
      if (at_ < text_.size() && text_[at_] == '"') {
        RETURN_IF_ERROR(ReadQuoted(field));
      }
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r') {
        field += text_[at_++];
      }
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
        continue;
      }
      EndLine();
      return {};
    }
  }

  Status ReadQuoted(std::string& field) {
    const size_t first_line = line_;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[++at_];
      } else {
        ++at_;
        return {};
      }
    }
    return InvalidArgument(std::string(source_) + ":" + std::to_string(first_line) +
                           ": a quoted field does not end; close the quotation mark");
  }

  void EndLine() {
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  std::string_view text_;
  std::string_view source_;
  size_t at_ = 0;
  size_t line_ = 1;
};

}  // namespace

Result<std::vector<CsvRecord>> ParseCsv(std::string_view text, std::string_view source) {
  return Parser(text, source).Parse();
}

}  // namespace everstep
