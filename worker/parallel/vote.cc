#include "worker/parallel/vote.h"

#include <cstring>
#include <string>

#include "common/check.h"

namespace everstep {
namespace {

struct VoteHeader {
  int64_t step;
  uint64_t pending_generation;
  uint32_t stop;
  uint32_t share_count;
};

}  // namespace

size_t VoteBytes(int logical_world) {
  return sizeof(VoteHeader) + static_cast<size_t>(logical_world) * sizeof(ShareVote);
}

std::vector<std::byte> EncodeVote(const Vote& vote, int logical_world) {
  const VoteHeader header{vote.step, vote.pending_generation, vote.stop ? 1u : 0u,
                          static_cast<uint32_t>(vote.shares.size())};
  std::vector<std::byte> bytes(VoteBytes(logical_world));
  EVERSTEP_CHECK(vote.shares.size() <= static_cast<size_t>(logical_world));
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!vote.shares.empty()) {
    std::memcpy(bytes.data() + sizeof(header), vote.shares.data(),
                vote.shares.size() * sizeof(ShareVote));
  }
  return bytes;
}

Result<Vote> DecodeVote(std::span<const std::byte> bytes) {
  VoteHeader header;
  if (bytes.size() < sizeof(header)) return DataLoss("a vote is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (bytes.size() < sizeof(header) + header.share_count * sizeof(ShareVote)) {
    return DataLoss("a vote is shorter than its shares");
  }
  Vote vote{header.step, header.pending_generation, header.stop != 0, {}};
  vote.shares.resize(header.share_count);
  if (header.share_count > 0) {
    std::memcpy(vote.shares.data(), bytes.data() + sizeof(header),
                header.share_count * sizeof(ShareVote));
  }
  return vote;
}

Result<Verdict> CountVotes(std::span<const Vote> votes, int64_t step, int logical_world) {
  Verdict verdict;
  std::vector<const ShareVote*> shares(static_cast<size_t>(logical_world), nullptr);
  verdict.switch_to_generation = votes.empty() ? 0 : votes.front().pending_generation;
  for (const Vote& vote : votes) {
    if (vote.step != step) {
      return Internal("a member votes for step " + std::to_string(vote.step) + " in step " +
                      std::to_string(step));
    }
    for (const ShareVote& share : vote.shares) {
      if (share.logical_rank < 0 || share.logical_rank >= logical_world ||
          shares[static_cast<size_t>(share.logical_rank)] != nullptr) {
        return Internal("logical rank " + std::to_string(share.logical_rank) +
                        " is voted for twice or does not exist");
      }
      shares[static_cast<size_t>(share.logical_rank)] = &share;
    }
    if (vote.pending_generation != verdict.switch_to_generation) verdict.switch_to_generation = 0;
    verdict.stop = verdict.stop || vote.stop;
  }
  for (const ShareVote* share : shares) {
    if (share == nullptr) return Internal("a logical rank is missing from the votes");
    verdict.loss_sum += share->loss_sum;
    verdict.input_tokens += share->input_tokens;
  }
  return verdict;
}

}  // namespace everstep
