// One file of a model, from the hub to its blob in the cache.
#ifndef EVERSTEP_WORKER_HUB_BLOB_DOWNLOAD_H_
#define EVERSTEP_WORKER_HUB_BLOB_DOWNLOAD_H_

#include <string>

#include "common/result.h"
#include "worker/hub/cache_layout.h"
#include "worker/hub/hub_client.h"

namespace everstep {

// Makes snapshots/<commit>/<file> exist with the hub's content. Holds the blob's lock while it
// downloads; takes up a partial download; the blob appears whole, checked and synced, or not.
Status FetchFile(const HubOptions& options, const CacheLayout& cache, const std::string& commit,
                 const std::string& file, HubClient* client);

}  // namespace everstep

#endif  // EVERSTEP_WORKER_HUB_BLOB_DOWNLOAD_H_
