// The templates that a training file can name.
#ifndef EVERSTEP_WORKER_DATA_TEMPLATE_CATALOG_H_
#define EVERSTEP_WORKER_DATA_TEMPLATE_CATALOG_H_

#include <optional>
#include <string_view>
#include <vector>

#include "worker/data/chat_format.h"

namespace everstep {

std::optional<ChatFormat> FindTemplate(std::string_view name);
std::vector<std::string_view> TemplateNames();

}  // namespace everstep

#endif  // EVERSTEP_WORKER_DATA_TEMPLATE_CATALOG_H_
