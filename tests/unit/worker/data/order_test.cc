// Sample orders against those of torch, numpy, accelerate and datasets (tests/golden/orders.json).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "common/files.h"
#include "common/json.h"
#include "tests/support/paths.h"
#include "worker/data/mix.h"
#include "worker/data/random.h"
#include "worker/data/sample_order.h"

namespace everstep {
namespace {

using ::testing::ElementsAre;

const Json& Orders() {
  static const Json orders =
      ParseJson(ReadFile(GoldenPath("orders.json")).value(), "orders.json").value();
  return orders;
}

TEST(TorchPermutationTest, EqualsTheSampler) {
  int compared = 0;
  for (const auto& [name, epochs] : Orders().items()) {
    unsigned n = 0, seed = 0;
    if (std::sscanf(name.c_str(), "sampler n=%u seed=%u", &n, &seed) != 2) continue;
    for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      auto order = TorchPermutation(n, seed + epoch);
      order.resize(epochs[epoch].size());
      EXPECT_EQ(Json(order), epochs[epoch]) << name << " epoch " << epoch;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 36);
}

TEST(SampleOrderTest, DealsBatchesAsAccelerateDoes) {
  int compared = 0;
  for (const auto& [name, shards] : Orders().items()) {
    long n = 0, world = 0;
    if (std::sscanf(name.c_str(), "shards n=%ld world=%ld bs=2", &n, &world) != 2) continue;
    const SampleOrder order(
        {.samples = n, .batch_size = 2, .logical_world = world, .num_train_epochs = 1});
    for (long rank = 0; rank < world; ++rank) {
      Json batches = Json::array();
      for (int64_t step = 0; step < order.max_steps(); ++step) {
        for (const auto& batch : order.MicroBatches(step, rank)) batches.push_back(batch);
      }
      EXPECT_EQ(batches, shards[static_cast<size_t>(rank)]) << name << " rank " << rank;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 40);
}

TEST(SampleOrderTest, CountsStepsAndEpochsAsTheTrainerDoes) {
  // 21 samples in 11 batches, two a step: five full steps and one of a single micro-batch.
  const SampleOrder order(
      {.samples = 21, .batch_size = 2, .accumulation = 2, .num_train_epochs = 3});
  EXPECT_EQ(order.updates_per_epoch(), 6);
  EXPECT_EQ(order.max_steps(), 18);
  EXPECT_DOUBLE_EQ(order.EpochAfter(1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(order.EpochAfter(6), 1.0);
  EXPECT_DOUBLE_EQ(order.EpochAfter(7), 1 + 2.0 / 11);
  EXPECT_EQ(order.MicroBatches(5, 0).size(), 1u);
  EXPECT_EQ(order.MicroBatches(5, 0)[0].size(), 1u);
}

TEST(SampleOrderTest, MaxStepsOverridesEpochs) {
  const SampleOrder order({.samples = 32, .batch_size = 2, .accumulation = 2, .max_steps = 12});
  EXPECT_EQ(order.max_steps(), 12);
  EXPECT_EQ(order.epochs(), 2);
}

TEST(SampleOrderTest, FractionalEpochsRoundUpToWholeSteps) {
  const SampleOrder order({.samples = 10, .batch_size = 3, .num_train_epochs = 0.3});
  EXPECT_EQ(order.max_steps(), 2);  // ceil(0.3 * 4)
}

TEST(SampleOrderTest, DropLastLeavesOutWhatIsNotFull) {
  const SampleOrder order({.samples = 7,
                           .batch_size = 2,
                           .logical_world = 2,
                           .shuffle = false,
                           .drop_last = true,
                           .num_train_epochs = 1});
  EXPECT_EQ(order.batches_per_epoch(), 1);
  EXPECT_THAT(order.MicroBatches(0, 1), ElementsAre(ElementsAre(2, 3)));
}

TEST(SampleOrderTest, DropLastMayLeaveNothing) {
  const SampleOrder order({.samples = 3, .batch_size = 4, .drop_last = true});
  EXPECT_EQ(order.max_steps(), 0);
}

TEST(SplitTest, EqualsTrainTestSplit) {
  int compared = 0;
  for (const auto& [name, expected] : Orders().items()) {
    unsigned n = 0;
    double val_size = 0;
    if (std::sscanf(name.c_str(), "split n=%u val_size=%lf", &n, &val_size) != 2) continue;
    auto split = SplitTrainEval(n, val_size, 42);
    ASSERT_TRUE(split.has_value()) << split.error().message;
    split->train.resize(expected["train"].size());
    EXPECT_EQ(Json(split->train), expected["train"]) << name;
    split->eval.resize(expected["test"].size());
    EXPECT_EQ(Json(split->eval), expected["test"]) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST(SplitTest, ASplitThatLeavesNoTrainingDataIsRefused) {
  EXPECT_FALSE(SplitTrainEval(10, 10, 42).has_value());
  EXPECT_FALSE(SplitTrainEval(1, 0.5, 42).has_value());
}

TEST(SampleRowsTest, EqualsLlamaFactorysDraw) {
  const Json& orders = Orders();
  NumpyLegacyRandom fewer(42);
  EXPECT_EQ(Json(SampleRows(64, 20, fewer)), orders["num_samples 20 of 64 after set_seed(42)"]);
  NumpyLegacyRandom more(42);
  EXPECT_EQ(Json(SampleRows(64, 100, more)), orders["num_samples 100 of 64 after set_seed(42)"]);
}

TEST(InterleaveTest, EqualsDatasets) {
  const Json& orders = Orders();
  const std::vector<size_t> sizes = {6, 4, 5};
  const std::vector<double> probabilities = {0.5, 0.3, 0.2};
  const auto names = [](const std::vector<RowReference>& rows) {
    Json out = Json::array();
    for (const RowReference& row : rows) {
      out.push_back(std::string(1, static_cast<char>('a' + row.set)) + std::to_string(row.row));
    }
    return out;
  };
  for (const auto& [strategy, name] : {std::pair(MixStrategy::kInterleaveUnder, "first_exhausted"),
                                       std::pair(MixStrategy::kInterleaveOver, "all_exhausted")}) {
    EXPECT_EQ(names(Mix(sizes, strategy, probabilities, 42)),
              orders[std::string("interleave probs .5 .3 .2 seed 42 ") + name]);
    EXPECT_EQ(names(Mix(sizes, strategy, {}, 42)),
              orders[std::string("interleave no probs ") + name]);
  }
}

TEST(MixTest, ConcatenatesInTheOrderOfTheList) {
  const std::vector<size_t> sizes = {1, 0, 2};
  const auto rows = Mix(sizes, MixStrategy::kConcat, {}, 42);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].set, 2u);
  EXPECT_EQ(rows[2].row, 1u);
}

}  // namespace
}  // namespace everstep
