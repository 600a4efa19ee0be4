#include "worker/parallel/ordered_reduce.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/check.h"
#include "worker/parallel/ordered_sum.h"

namespace everstep {
namespace {

constexpr size_t kChunkBytes = kNormChunk * sizeof(float);

// One reduction: who owns what, and the pieces of each round.
//
// In round k every member sends to each owner the pieces of part k of its shard, and to everybody
// its own part k-1, reduced. Pieces come first, so that summing starts while parts still arrive.
class Reduction {
 public:
  Reduction(const OrderedReduceOptions& options, std::vector<float>& received,
            Communicator& communicator, const wire::Membership& membership,
            const ReduceInput& input, const ReduceOutput& output)
      : round_(options.round_elements),
        received_(received),
        communicator_(communicator),
        members_(membership.members),
        me_(communicator.rank()),
        input_(input),
        output_(output),
        size_(static_cast<int64_t>(output.reduced.size())) {}

  Status Check() const;
  Status Run();

 private:
  Range Shard(int member) const { return ShardOf(size_, communicator_.size(), member); }
  // Part `round` of a member's shard.
  Range Part(int member, int64_t round) const {
    const Range shard = Shard(member);
    return {std::min(shard.begin + round * round_, shard.end),
            std::min(shard.begin + (round + 1) * round_, shard.end)};
  }
  int64_t Rounds() const;
  void AllocateReceived();
  // Where a piece of `logical_rank` lies: in the local gradient or in the receive room.
  const float* Piece(int logical_rank, int64_t element) const;
  float* ReceiveRoom(int logical_rank, int64_t element) const;

  void AddPieces(int64_t round);
  void AddParts(int64_t round);
  void AddVotes();
  void OnReceived(int from, size_t bytes);
  void SumUpTo(int64_t end);
  Status RunAlone();

  std::span<double> Norms(int member) const {
    const Range shard = Shard(member);
    return output_.chunk_norms.subspan(shard.begin / kNormChunk, NormChunks(shard.size()));
  }

  const int64_t round_;
  std::vector<float>& received_;
  Communicator& communicator_;
  const std::vector<wire::Member>& members_;
  const int me_;
  const ReduceInput& input_;
  const ReduceOutput& output_;
  const int64_t size_;

  std::vector<const float*> local_;  // [logical world]; null where it is hosted elsewhere
  std::vector<int64_t> slot_;        // [logical world]; index of its receive room
  Range current_;                    // the part of my shard that is being summed
  int64_t summed_ = 0;               // elements of it that are done, from current_.begin
  std::vector<size_t> arrived_;      // [members]; bytes
  std::vector<const float*> sources_;
  std::vector<SendPiece> sends_;
  std::vector<ReceivePiece> receives_;
};

Status Reduction::Check() const {
  const auto wrong = [&](const std::string& what) {
    return Internal("reduction in generation " + std::to_string(communicator_.generation()) + ": " +
                    what);
  };
  if (static_cast<int>(members_.size()) != communicator_.size()) {
    return wrong("the membership is not the communicator's");
  }
  std::vector<int> all;
  for (const wire::Member& member : members_) {
    all.insert(all.end(), member.logical_ranks.begin(), member.logical_ranks.end());
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != static_cast<int>(i)) return wrong("logical ranks are not hosted exactly once");
  }
  if (all.empty()) return wrong("no logical rank is hosted");
  const std::vector<int>& mine = members_[me_].logical_ranks;
  if (input_.local.size() != mine.size()) return wrong("local gradients and hosted ranks differ");
  for (size_t i = 0; i < mine.size(); ++i) {
    if (input_.local[i].logical_rank != mine[i] ||
        static_cast<int64_t>(input_.local[i].values.size()) != size_) {
      return wrong("the gradient of logical rank " + std::to_string(mine[i]) +
                   " is missing or of another size");
    }
  }
  if (static_cast<int64_t>(output_.chunk_norms.size()) != NormChunks(size_) ||
      output_.votes.size() != input_.vote.size() * members_.size()) {
    return wrong("room for norms or votes has another size");
  }
  return {};
}

int64_t Reduction::Rounds() const {
  int64_t longest = 0;
  for (int member = 0; member < communicator_.size(); ++member) {
    longest = std::max(longest, Shard(member).size());
  }
  return (longest + round_ - 1) / round_;
}

void Reduction::AllocateReceived() {
  size_t logical_world = 0;
  for (const wire::Member& member : members_) logical_world += member.logical_ranks.size();
  local_.assign(logical_world, nullptr);
  slot_.assign(logical_world, -1);
  for (const LogicalGradient& gradient : input_.local) {
    local_[gradient.logical_rank] = gradient.values.data();
  }
  int64_t slots = 0;
  for (size_t l = 0; l < logical_world; ++l) {
    if (local_[l] == nullptr) slot_[l] = slots++;
  }
  const size_t room = static_cast<size_t>(slots * std::min(round_, Shard(me_).size()));
  if (received_.size() < room) received_.resize(room);
  sources_.resize(logical_world);
}

float* Reduction::ReceiveRoom(int logical_rank, int64_t element) const {
  const int64_t stride = std::min(round_, Shard(me_).size());
  return received_.data() + slot_[logical_rank] * stride + (element - current_.begin);
}

const float* Reduction::Piece(int logical_rank, int64_t element) const {
  return local_[logical_rank] != nullptr ? local_[logical_rank] + element
                                         : ReceiveRoom(logical_rank, element);
}

// Calls visit(begin, end) for the stretches in which the pieces of a member that hosts `hosted`
// logical ranks alternate: chunk by chunk, so that all of them are there early.
template <typename Visit>
void ForEachStretch(Range part, size_t hosted, Visit visit) {
  const int64_t stretch = hosted > 1 ? kNormChunk : std::max<int64_t>(part.size(), 1);
  for (int64_t begin = part.begin; begin < part.end; begin += stretch) {
    visit(begin, std::min(begin + stretch, part.end));
  }
}

void Reduction::AddPieces(int64_t round) {
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer == me_) continue;
    ForEachStretch(Part(peer, round), input_.local.size(), [&](int64_t begin, int64_t end) {
      for (const LogicalGradient& gradient : input_.local) {
        const auto piece = gradient.values.subspan(begin, end - begin);
        sends_.push_back({.to = peer, .bytes = AsConstBytes(piece)});
      }
    });
    const std::vector<int>& hosted = members_[peer].logical_ranks;
    ForEachStretch(current_, hosted.size(), [&](int64_t begin, int64_t end) {
      for (const int l : hosted) {
        const std::span<float> room(ReceiveRoom(l, begin), static_cast<size_t>(end - begin));
        receives_.push_back({.from = peer, .bytes = AsMutableBytes(room)});
      }
    });
  }
}

void Reduction::AddParts(int64_t round) {
  const Range mine = Part(me_, round);
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer == me_) continue;
    const Range theirs = Part(peer, round);
    const std::span<const float> reduced = output_.reduced.subspan(mine.begin, mine.size());
    sends_.push_back({.to = peer, .bytes = AsConstBytes(reduced)});
    receives_.push_back(
        {.from = peer,
         .bytes = AsMutableBytes(output_.reduced.subspan(theirs.begin, theirs.size()))});
  }
}

void Reduction::AddVotes() {
  const size_t vote = input_.vote.size();
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    if (peer == me_) {
      std::copy(input_.vote.begin(), input_.vote.end(), output_.votes.begin() + vote * me_);
      continue;
    }
    sends_.push_back({.to = peer, .bytes = AsConstBytes(std::span<const double>(Norms(me_)))});
    sends_.push_back({.to = peer, .bytes = input_.vote});
    receives_.push_back({.from = peer, .bytes = AsMutableBytes(Norms(peer))});
    receives_.push_back({.from = peer, .bytes = output_.votes.subspan(vote * peer, vote)});
  }
}

// Sums what all members have delivered by now.
void Reduction::OnReceived(int from, size_t bytes) {
  arrived_[from] = bytes;
  int64_t ready = current_.size();
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    const size_t hosted = members_[peer].logical_ranks.size();
    if (peer == me_ || hosted == 0) continue;
    const size_t all = hosted * static_cast<size_t>(current_.size()) * sizeof(float);
    if (arrived_[peer] >= all) continue;
    const size_t chunks = arrived_[peer] / (hosted * kChunkBytes);
    ready = std::min(ready, static_cast<int64_t>(chunks) * kNormChunk);
  }
  SumUpTo(ready);
}

void Reduction::SumUpTo(int64_t end) {
  while (summed_ < end) {
    const int64_t begin = current_.begin + summed_;
    const int64_t count = std::min(kNormChunk, current_.size() - summed_);
    for (size_t l = 0; l < sources_.size(); ++l) sources_[l] = Piece(static_cast<int>(l), begin);
    output_.chunk_norms[begin / kNormChunk] =
        OrderedSum(sources_, count, input_.scale, output_.reduced.data() + begin);
    summed_ += count;
  }
}

Status Reduction::RunAlone() {
  RETURN_IF_ERROR(communicator_.Barrier());  // an aborted communicator fails here as well
  current_ = {0, size_};
  SumUpTo(size_);
  std::copy(input_.vote.begin(), input_.vote.end(), output_.votes.begin());
  return {};
}

Status Reduction::Run() {
  AllocateReceived();
  if (communicator_.size() == 1) return RunAlone();
  const int64_t rounds = Rounds();
  const ReceiveProgress progress = [this](int from, size_t bytes) { OnReceived(from, bytes); };
  for (int64_t round = 0; round <= rounds; ++round) {
    sends_.clear();
    receives_.clear();
    arrived_.assign(members_.size(), 0);
    current_ = Part(me_, round);
    summed_ = 0;
    if (round < rounds) AddPieces(round);
    if (round > 0) AddParts(round - 1);
    if (round == rounds) AddVotes();
    RETURN_IF_ERROR(communicator_.Exchange(sends_, receives_, progress));
    SumUpTo(current_.size());
  }
  return {};
}

}  // namespace

Status OrderedReducer::Reduce(Communicator& communicator, const wire::Membership& membership,
                              const ReduceInput& input, const ReduceOutput& output) {
  EVERSTEP_CHECK(options_.round_elements > 0 && options_.round_elements % kNormChunk == 0);
  Reduction reduction(options_, received_, communicator, membership, input, output);
  RETURN_IF_ERROR(reduction.Check());
  return reduction.Run();
}

double GlobalNorm(std::span<const double> chunk_norms) {
  double sum = 0;
  for (const double norm : chunk_norms) sum += norm;
  return std::sqrt(sum);
}

}  // namespace everstep
