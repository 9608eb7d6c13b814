"""Example for `deepctx-bpf demo`: a training loop in plain Python.

It trains a small network on made-up data, and does what slows real training down: one thread prepares samples one by
one, the loop logs every step, and a checkpoint is compressed now and then.
"""

import json
import math
import queue
import random
import sys
import threading
import zlib

INPUTS, HIDDEN, SAMPLES = 24, 32, 48


class Layer:
    def __init__(self, inputs, outputs):
        scale = 1 / math.sqrt(inputs)
        self.weights = [[random.uniform(-scale, scale) for _ in range(inputs)] for _ in range(outputs)]
        self.gradient = [[0.0] * inputs for _ in range(outputs)]

    def forward(self, values):
        self.seen = values
        return [sum(w * v for w, v in zip(row, values)) for row in self.weights]

    def backward(self, errors):
        for row, error in zip(self.gradient, errors):
            for at, value in enumerate(self.seen):
                row[at] += error * value
        return [sum(row[at] * error for row, error in zip(self.weights, errors)) for at in range(len(self.seen))]


class Model:
    def __init__(self):
        self.layers = [Layer(INPUTS, HIDDEN), Layer(HIDDEN, HIDDEN), Layer(HIDDEN, 1)]

    def forward(self, values):
        for layer in self.layers[:-1]:
            values = relu(layer.forward(values))
        return self.layers[-1].forward(values)[0]

    def backward(self, error):
        errors = [error]
        for layer in reversed(self.layers):
            errors = layer.backward(errors)


def relu(values):
    return [max(value, 0.0) for value in values]


def augment(sample):
    mean = sum(sample) / len(sample)
    return [(value - mean) * random.gauss(1.0, 0.05) for value in sample]


def load_batches(batches):
    while True:
        batch = []
        for _ in range(SAMPLES):
            sample = [random.random() for _ in range(INPUTS)]
            batch.append((augment(sample), math.sin(sum(sample))))
        batches.put(batch)


def train_step(model, batch):
    loss = 0.0
    for sample, wanted in batch:
        error = model.forward(sample) - wanted
        loss += error * error
        model.backward(error / len(batch))
    optimizer_step(model)
    return loss / len(batch)


def optimizer_step(model, rate=0.01):
    for layer in model.layers:
        for weights, gradients in zip(layer.weights, layer.gradient):
            for at, gradient in enumerate(gradients):
                weights[at] -= rate * gradient
                gradients[at] = 0.0


def log(history, step, loss):
    history.append({"step": step, "loss": loss})
    json.dumps(history[-200:])


def save_checkpoint(model):
    text = json.dumps([layer.weights for layer in model.layers])
    return zlib.compress(text.encode(), 9)


def main():
    batches = queue.Queue(maxsize=4)
    threading.Thread(target=load_batches, args=(batches,), name="loader", daemon=True).start()
    model, history, step = Model(), [], 0
    while True:
        loss = train_step(model, batches.get())
        log(history, step, loss)
        del history[:-1000]
        step += 1
        if step % 20 == 0:
            save_checkpoint(model)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
