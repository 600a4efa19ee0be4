#include "worker/parallel/state_agreement.h"

#include <algorithm>
#include <array>
#include <string>

#include "common/json.h"
#include "common/log.h"

namespace everstep {
namespace {

// What goes before the state itself.
struct TransferHeader {
  uint64_t small_state_bytes = 0;
  uint64_t hash = 0;
};

template <typename T>
ConstBytes BytesOf(const T& value) {
  return AsConstBytes(std::span<const T>(&value, 1));
}
template <typename T>
MutableBytes MutableBytesOf(T& value) {
  return AsMutableBytes(std::span<T>(&value, 1));
}

std::array<std::span<float>, 3> Vectors(TrainingState& state) {
  return {state.Parameters(), state.FirstMoment(), state.SecondMoment()};
}

Status SendState(Communicator& communicator, const std::vector<int>& receivers,
                 TrainingState& state) {
  const std::string small = DumpJson(state.SmallState());
  const TransferHeader header{small.size(), state.Hash()};
  for (int to : receivers) {
    RETURN_IF_ERROR(communicator.Send(to, BytesOf(header)));
    RETURN_IF_ERROR(communicator.Send(to, AsConstBytes(std::span(small.data(), small.size()))));
    for (std::span<float> vector : Vectors(state)) {
      RETURN_IF_ERROR(communicator.Send(to, AsConstBytes(std::span<const float>(vector))));
    }
  }
  return {};
}

Status ReceiveState(Communicator& communicator, int from, TrainingState& state) {
  TransferHeader header;
  RETURN_IF_ERROR(communicator.Receive(from, MutableBytesOf(header)));
  // Until all of it has arrived the state is nobody's: an interrupted transfer leaves it absent.
  state.set_present(false);
  std::string small(header.small_state_bytes, '\0');
  RETURN_IF_ERROR(
      communicator.Receive(from, AsMutableBytes(std::span<char>(small.data(), small.size()))));
  for (std::span<float> vector : Vectors(state)) {
    RETURN_IF_ERROR(communicator.Receive(from, AsMutableBytes(vector)));
  }
  ASSIGN_OR_RETURN(const Json document, ParseJson(small, "state from a peer"));
  RETURN_IF_ERROR(state.RestoreSmallState(document));
  if (state.Hash() != header.hash) {
    state.set_present(false);
    return DataLoss(
        "the state received from a peer does not have the hash that the peer announced");
  }
  return {};
}

}  // namespace

Result<StateDecision> DecideState(std::span<const StateHeader> headers) {
  StateDecision decision;
  int64_t newest = TrainingState::kAbsent;
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].workload != headers.front().workload) {
      return MakeError(ErrorCode::kFailedPrecondition,
                       "member " + std::to_string(i) +
                           " trains something else than member 0 (training file, model, data, "
                           "threads or program version differ): give all replicas the same");
    }
    if (headers[i].version > newest) {
      newest = headers[i].version;
      decision.holder = static_cast<int>(i);
    }
  }
  decision.nobody = decision.holder < 0;
  for (size_t i = 0; i < headers.size() && !decision.nobody; ++i) {
    if (headers[i].version < newest) decision.behind.push_back(static_cast<int>(i));
  }
  return decision;
}

Result<AgreedState> AgreeOnState(Communicator& communicator, uint64_t workload,
                                 TrainingState& state) {
  const StateHeader mine{state.version(), workload};
  std::vector<StateHeader> headers(static_cast<size_t>(communicator.size()));
  std::vector<MutableBytes> parts;
  for (StateHeader& header : headers) parts.push_back(MutableBytesOf(header));
  RETURN_IF_ERROR(communicator.AllGather(BytesOf(mine), parts));
  ASSIGN_OR_RETURN(const StateDecision decision, DecideState(headers));

  AgreedState agreed{decision.nobody, false};
  const int me = communicator.rank();
  if (me == decision.holder) {
    RETURN_IF_ERROR(SendState(communicator, decision.behind, state));
  } else if (std::ranges::find(decision.behind, me) != decision.behind.end()) {
    RETURN_IF_ERROR(ReceiveState(communicator, decision.holder, state));
    agreed.received = true;
  }
  return agreed;
}

}  // namespace everstep
