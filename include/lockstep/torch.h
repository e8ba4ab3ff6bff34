#pragma once

/// Trains LibTorch models on many workers. Three lines make a training function distributed:
///
///     void train(lockstep::Session& session) {
///       auto model = lockstep::torch::prepare_model(Net());                                              // 1
///       auto loader = lockstep::torch::prepare_data_loader(dataset, {.batch_size = 32, .shuffle = true});  // 2
///       torch::optim::Adam optimizer(model->parameters(), 1e-3);
///       for (auto& batch : loader) {
///         optimizer.zero_grad();
///         auto loss = torch::nll_loss(model->forward(batch.data), batch.target);
///         loss.backward();
///         optimizer.step();
///       }
///     }
///     LOCKSTEP_TRAIN_FUNCTION(train);
///
///     int main(int argc, char** argv) {
///       lockstep::init(argc, argv);
///       lockstep::TorchTrainer(train, {.scaling = {.num_workers = 4}}).fit();                            // 3
///     }
///
/// Everything here also works outside a worker, as in a run with one worker. Functions that exchange data between
/// workers say so: every rank must call them, in the same order. Call all functions from the thread that trains.
///
/// `lockstep::torch` hides LibTorch's `torch` inside namespace lockstep: do not write `using namespace lockstep`.

#include <lockstep/lockstep.h>
#include <lockstep/torch/amp.h>
#include <lockstep/torch/checkpoint.h>
#include <lockstep/torch/collectives.h>
#include <lockstep/torch/loader.h>
#include <lockstep/torch/model.h>
#include <lockstep/torch/profiler.h>
#include <lockstep/torch/reproducibility.h>
#include <lockstep/torch/tensor_value.h>
#include <lockstep/torch/trainer.h>
