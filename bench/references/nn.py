"""Figures that crates/nn/tests/references compares with: outputs, losses and gradients of small networks in PyTorch, in
double precision. Run: python bench/references/nn.py > bench/references/nn.json"""
import json
import math
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def draw(generator, *shape, scale=0.5):
    return torch.randn(*shape, generator=generator) * scale


class Net:
    """The layers of a job file, with parameters drawn here and named as the project names them."""

    def __init__(self, lines, shape, seed):
        self.lines, self.shape = lines, tuple(shape)
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors = {}
        self.training = True

    def parameter(self, name, *shape, scale=0.5, shift=0.0, tracked=False):
        if name not in self.tensors:
            value = draw(self.generator, *shape, scale=scale) + shift
            self.tensors[name] = value.requires_grad_(not tracked)
        return self.tensors[name]

    def run(self, x, lines=None, prefix=None):
        for index, line in enumerate(self.lines if lines is None else lines):
            words = line.split()
            name = f"{index:02d}-{words[0]}" if prefix is None else f"{prefix}.{index}-{words[0]}"
            x = getattr(self, words[0].replace("-", "_"))(name, words[1:], x)
        return x

    @staticmethod
    def option(words, key, otherwise):
        return words[words.index(key) + 1] if key in words else otherwise

    def linear(self, name, words, x):
        x = x if x.dim() == 3 else x.flatten(1)
        inputs, outputs = x.shape[-1], int(words[0])
        weight = self.parameter(f"{name}.weight", inputs, outputs)
        off = self.option(words, "bias", "on") == "off"
        return x @ weight if off else x @ weight + self.parameter(f"{name}.bias", outputs)

    def conv(self, name, words, x):
        plain = [word for at, word in enumerate(words[1:], 1) if word not in ("stride", "padding", "bias")
                 and words[at - 1] not in ("stride", "padding", "bias")]
        kernel = plain[0] if plain else "3"
        tall, wide = (kernel.split("x") * 2)[:2] if "x" in kernel else (kernel, kernel)
        tall, wide = int(tall), int(wide)
        weight = self.parameter(f"{name}.weight", int(words[0]), x.shape[1], tall, wide)
        off = self.option(words, "bias", "on") == "off"
        bias = None if off else self.parameter(f"{name}.bias", int(words[0]))
        padding = self.option(words, "padding", None)
        padding = (tall // 2, wide // 2) if padding is None else int(padding)
        return F.conv2d(x, weight, bias, stride=int(self.option(words, "stride", 1)), padding=padding)

    def max_pool(self, name, words, x):
        return F.max_pool2d(x, int(words[0]), int(self.option(words, "stride", words[0])))

    def average_pool(self, name, words, x):
        return F.avg_pool2d(x, int(words[0]), int(self.option(words, "stride", words[0])))

    def global_average_pool(self, name, words, x):
        return x.mean(1) if x.dim() == 3 else x.mean((2, 3))

    def scale_and_shift(self, name, width):
        return self.parameter(f"{name}.scale", width, shift=1.0), self.parameter(f"{name}.shift", width)

    def group_norm(self, name, words, x):
        return F.group_norm(x, int(words[0]), *self.scale_and_shift(name, x.shape[1]))

    def layer_norm(self, name, words, x):
        shape = x.shape[2:] if x.dim() == 3 else x.shape[1:]
        scale, shift = self.scale_and_shift(name, math.prod(shape))
        return F.layer_norm(x, shape, scale.reshape(shape), shift.reshape(shape))

    def batch_norm(self, name, words, x):
        scale, shift = self.scale_and_shift(name, x.shape[1])
        mean = self.parameter(f"{name}.mean", x.shape[1], tracked=True)
        variance = self.parameter(f"{name}.variance", x.shape[1], scale=0.1, shift=1.0, tracked=True)
        return F.batch_norm(x, mean.clone(), variance.clone(), scale, shift, self.training)

    def residual(self, name, words, x):
        outputs, stride = int(words[0]), int(self.option(words, "stride", 1))
        groups = self.option(words, "groups", None)
        norm = "batch-norm" if groups is None else f"group-norm {groups}"
        body = [f"conv {outputs} 3 stride {stride} bias off", norm, "relu", f"conv {outputs} 3 bias off", norm]
        beside = [] if (x.shape[1], stride) == (outputs, 1) else [f"conv {outputs} 1 stride {stride} bias off", norm]
        shortcut = self.run(x, beside, f"{name}.shortcut")
        return F.relu(self.run(x, body, f"{name}.body") + shortcut)

    def embedding(self, name, words, x):
        return self.parameter(f"{name}.weight", int(words[0]), int(words[1]))[x.long()]

    def position(self, name, words, x):
        return x + self.parameter(f"{name}.weight", x.shape[1], x.shape[2])

    def recurrent(self, name, words, x, kind, gates):
        width, hidden = x.shape[2], int(words[0])
        cell = getattr(torch.nn, kind)(width, hidden, batch_first=True)
        parts = {
            "weight_ih_l0": self.parameter(f"{name}.input", width, gates * hidden).T,
            "weight_hh_l0": self.parameter(f"{name}.hidden", hidden, gates * hidden).T,
            "bias_ih_l0": self.parameter(f"{name}.input_bias", gates * hidden),
            "bias_hh_l0": self.parameter(f"{name}.hidden_bias", gates * hidden),
        }
        return torch.func.functional_call(cell, parts, (x,))[0]

    def rnn(self, name, words, x):
        return self.recurrent(name, words, x, "RNN", 1)

    def lstm(self, name, words, x):
        return self.recurrent(name, words, x, "LSTM", 4)

    def gru(self, name, words, x):
        return self.recurrent(name, words, x, "GRU", 3)

    def last(self, name, words, x):
        return x[:, -1]

    def attention(self, name, words, x):
        heads, (rows, steps, width) = int(words[0]), x.shape
        joint = x @ self.parameter(f"{name}.weight", width, 3 * width) + self.parameter(f"{name}.bias", 3 * width)
        query, key, value = (part.reshape(rows, steps, heads, -1).transpose(1, 2) for part in joint.chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal="causal" in words)
        mixed = mixed.transpose(1, 2).reshape(rows, steps, width)
        return mixed @ self.parameter(f"{name}.output", width, width) + self.parameter(f"{name}.output_bias", width)

    def transformer(self, name, words, x):
        causal = " causal" if "causal" in words else ""
        width = x.shape[2]
        x = x + self.run(x, ["layer-norm", f"attention {words[0]}{causal}"], f"{name}.mix")
        return x + self.run(x, ["layer-norm", f"linear {4 * width}", "gelu", f"linear {width}"], f"{name}.think")

    def upsample(self, name, words, x):
        return F.interpolate(x, scale_factor=int(words[0]), mode="nearest")

    def image(self, name, words, x):
        return x.reshape(len(x), *map(int, words))

    def flatten(self, name, words, x):
        return x.flatten(1)

    def relu(self, name, words, x):
        return F.relu(x)

    def leaky_relu(self, name, words, x):
        return F.leaky_relu(x, 0.01)

    def gelu(self, name, words, x):
        return F.gelu(x)

    def silu(self, name, words, x):
        return F.silu(x)

    def tanh(self, name, words, x):
        return torch.tanh(x)

    def sigmoid(self, name, words, x):
        return torch.sigmoid(x)


def rounded(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def case(name, learner, settings, lines, shape, outputs, smoothing=0.0, rows=6, tokens=0, following=False,
         apart=None):
    lines = lines + [f"linear {outputs}"]
    net = Net(lines, shape, seed=sum(map(ord, name)))
    generator = torch.Generator().manual_seed(7)
    if tokens:
        x = torch.randint(tokens, (rows, *shape), generator=generator).double()
    else:
        x = torch.randn(rows, *shape, generator=generator)
    if outputs == 1:
        labels = torch.randn(rows, generator=generator)
    else:
        labels = torch.arange(rows) % outputs
    scores = net.run(x)
    if following:
        steps, labels = x.shape[1] - 1, torch.zeros(0)
        truth = x[:, 1:].long().flatten()
        loss = F.cross_entropy(scores[:, :-1].reshape(-1, outputs), truth, reduction="sum") / steps
    elif apart == "focal":
        logs = F.log_softmax(scores, 1)[torch.arange(rows), labels]
        loss = -((1 - logs.exp()) ** 2 * logs).sum()
    elif outputs == 1:
        measure = {None: F.mse_loss, "absolute": F.l1_loss, "huber": F.huber_loss}[apart]
        loss = measure(scores[:, 0], labels, reduction="sum")
    else:
        loss = F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    loss.backward()
    net.training = False
    scores = net.run(x)[:, -1] if following else net.run(x)
    answers = scores if outputs == 1 else F.softmax(scores, 1)
    return {
        "name": name,
        "learner": learner,
        "settings": settings,
        "features": math.prod(shape),
        "outputs": outputs,
        "rows": rounded(x),
        "labels": rounded(labels.double()),
        "tensors": {key: {"shape": list(value.shape), "values": rounded(value)} for key, value in net.tensors.items()},
        "loss": float(loss.detach()),
        "answers": rounded(answers),
        "gradients": {key: rounded(value.grad) for key, value in net.tensors.items() if value.grad is not None},
    }


def mlp(name, settings, lines, outputs, **more):
    return case(name, "mlp", settings, lines, (5,), outputs, **more)


def cnn(name, layers, shape=(2, 6, 6), outputs=3):
    settings = f"shape = {list(shape)}\nlayers = {json.dumps(layers)}"
    return case(name, "cnn", settings, layers, shape, outputs)


def cases():
    hidden = ["linear 4"]
    for function in ["relu", "leaky-relu", "gelu", "silu", "tanh", "sigmoid"]:
        yield mlp(function, f"hidden = [4]\nactivation = '{function}'", hidden + [function], 3)
    yield mlp("smoothed", "hidden = [4]\nlabel_smoothing = 0.1", hidden + ["relu"], 3, smoothing=0.1)
    yield mlp("regression", "hidden = [4, 3]\nactivation = 'tanh'\ntask = 'regression'",
              ["linear 4", "tanh", "linear 3", "tanh"], 1)
    for apart in ["absolute", "huber"]:
        yield mlp(f"{apart} error", f"hidden = [4]\ntask = 'regression'\nloss = '{apart}'", hidden + ["relu"], 1, apart=apart)
    yield mlp("focal loss", "hidden = [4]\nloss = 'focal'", hidden + ["relu"], 3, apart="focal")
    for norm in ["layer-norm", "batch-norm"]:
        first = ["linear 4 bias off"] if norm == "batch-norm" else hidden
        yield mlp(norm, f"hidden = [4]\nnorm = '{norm}'", first + [norm, "relu"], 3)
    yield cnn("convolution", ["conv 3", "tanh"])
    yield cnn("strided convolution", ["conv 3 3x2 stride 2 padding 0", "tanh"])
    yield cnn("max pooling", ["conv 3 1", "max-pool 2", "tanh"])
    yield cnn("overlapping pooling", ["max-pool 3 stride 2", "average-pool 2 stride 1"])
    yield cnn("average pooling", ["conv 3 5", "average-pool 3", "tanh"])
    yield cnn("global pooling", ["conv 4", "relu", "global-average-pool"])
    yield cnn("group normalisation", ["conv 4", "group-norm 2", "relu", "max-pool 2"])
    yield cnn("batch normalisation of images", ["conv 3 bias off", "batch-norm", "relu", "max-pool 2"])
    yield cnn("upsampling", ["conv 3", "max-pool 3", "tanh", "upsample 2", "conv 2", "relu"])
    yield cnn("back to images", ["linear 12", "tanh", "image 3 2 2", "upsample 3", "conv 2", "global-average-pool"])
    yield cnn("residual block", ["residual 2 groups 1", "global-average-pool"])
    yield cnn("residual block with stride", ["residual 4 stride 2", "global-average-pool"])
    for cell in ["rnn", "lstm", "gru"]:
        yield case(cell, "rnn", f"cell = '{cell}'\nhidden = [3]\nsteps = 4", [f"{cell} 3", "last"], (4, 2), 3)
    yield case("tokens in two layers", "rnn", "cell = 'gru'\nhidden = [3, 2]\ntokens = 5\nembedding = 3\ntask = 'regression'",
               ["embedding 5 3", "gru 3", "gru 2", "last"], (4,), 1, tokens=5)
    blocks = ["transformer 2", "transformer 2", "layer-norm", "global-average-pool"]
    yield case("encoder of tokens", "transformer", "width = 4\nheads = 2\ntokens = 6",
               ["embedding 6 4", "position"] + blocks, (5,), 3, tokens=6)
    yield case("encoder of numbers", "transformer", "width = 4\nheads = 2\nsteps = 3",
               ["linear 4", "position"] + blocks, (3, 2), 2)
    back = ["transformer 2 causal", "transformer 2 causal", "layer-norm"]
    yield case("decoder alone", "transformer", "width = 4\nheads = 2\ntokens = 6\ntask = 'next-token'",
               ["embedding 6 4", "position"] + back, (5,), 6, tokens=6, following=True)
    yield case("recurrent language model", "rnn", "hidden = [4]\nembedding = 3\ntokens = 5\ntask = 'next-token'",
               ["embedding 5 3", "lstm 4"], (4,), 5, tokens=5, following=True)


def muon():
    """Three steps of torch.optim.Muon on a wide and on a tall matrix. It computes in bfloat16; here, in doubles."""
    torch.bfloat16 = torch.float64
    generator = torch.Generator().manual_seed(11)
    for rows, columns in [(4, 6), (6, 4)]:
        weight = torch.nn.Parameter(torch.randn(rows, columns, generator=generator))
        options = {"lr": 0.02, "momentum": 0.8, "weight_decay": 0.1, "nesterov": True, "ns_steps": 5}
        taken = torch.optim.Muon([weight], adjust_lr_fn="match_rms_adamw", **options)
        start, gradients = rounded(weight), []
        for _ in range(3):
            weight.grad = torch.randn(rows, columns, generator=generator)
            gradients.append(rounded(weight.grad))
            taken.step()
        yield {"shape": [rows, columns], "start": start, "gradients": gradients, "end": rounded(weight)}


print(json.dumps({"made with": f"torch {torch.__version__}", "cases": list(cases()), "muon": list(muon())}))
