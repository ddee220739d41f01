// The parts of torch's C++ API that modules and the trainer use. torch/torch.h
// brings its optimisers, data loaders, serialisation and all layers as well:
// its precompiled form takes half as long again to read, in every file.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>
#include <torch/utils.h>
