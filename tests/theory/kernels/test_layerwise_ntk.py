"""The layer-by-layer kernel against torch.func, which shares no code with it, and the laws of a kernel."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import theory
from fedtrain.models import build_alexnet, build_cifar_net, build_digits_net, build_two_layer_net
from theory import InputError, compute_federated_kernel, compute_jacobian
from theory.kernels.layerwise.ntk import compute_grouped_kernels


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_words(*shape, most=7):
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(3))


def prepare(build, seed=0):
    """A network in float64 whose statistics, scales and shifts are not 0 and 1."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = build().double().eval()
        for name, value in [*net.named_parameters(), *net.named_buffers()]:
            if value.is_floating_point() and value.dim() <= 1:
                value.data = torch.rand_like(value) + (0.5 if "var" in name or "weight" in name else -0.5)
    return net


def contract_jacobian(net, x, names=None):
    """∂f/∂θ ∂f/∂θᵀ by entry, from torch.func."""
    net = copy.deepcopy(net)  # torch's functional_call leaves plain tensors in a layer that has two names
    values = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}

    def run(own, sample):
        return functional_call(net, own, (sample[None],)).reshape(-1)

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # torch.func has no rule for the others, and warns
        rows = vmap(jacrev(run), in_dims=(None, 0), chunk_size=1)(values, x)
    flat = {name: r.reshape(r.shape[0] * r.shape[1], -1) for name, r in rows.items()}
    return {name: r @ r.mT for name, r in flat.items()}


def assert_equal_to_torch_func(net, x, tolerance=1e-10):
    expected, found = contract_jacobian(net, x), theory.ntk(net, x, by_entry=True)
    assert list(found) == list(expected)
    whole = sum(expected.values())
    for name, K in expected.items():  # what cancels exactly, as a shift before a layer norm, is rounding in both
        assert (found[name] - K).norm() <= tolerance * max(K.norm(), 1e-14 * whole.norm()), name
    assert (theory.ntk(net, x) - whole).norm() <= tolerance * whole.norm()
    return found


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.norm2(self.second(self.act(self.norm1(self.first(x)))))
        out += self.skip(x)
        return self.act(out)


class Attention(nn.Module):
    """Words, a class token and positions of its own, sequence first as torch has it by default."""

    def __init__(self, batch_first):
        super().__init__()
        self.batch_first = batch_first
        self.words, self.token = nn.Embedding(7, 8, padding_idx=2), nn.Parameter(torch.randn(1, 1, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        z = torch.cat([self.token.expand(len(x), -1, -1), self.words(x)], 1)
        z = z if self.batch_first else z.transpose(0, 1)
        z = self.norm(z + self.attention(z, z, z, need_weights=False)[0])
        return self.head(z[:, 0] if self.batch_first else z[0])


class Tied(nn.Module):
    """A weight that is looked up, multiplied by, and multiplied by once more outside of its layer."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.out.weight = self.words.weight
        self.twice = nn.Linear(5, 5)

    def forward(self, x):
        z = self.twice(torch.tanh(self.twice(self.words(x)))).mean(1)
        return self.out(z) + F.linear(z.square(), self.words.weight)


class Scaled(nn.Module):
    """Parameters that no layer owns, and one that is a single number."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale, self.shift = (
            nn.Linear(4, 3),
            nn.Parameter(torch.tensor(1.5)),
            nn.Parameter(torch.ones(3)),
        )

    def forward(self, x):
        return self.scale * self.inner(x).tanh() + self.shift


class Doubled(nn.Linear):
    """A subclass that does not do what its class does."""

    def forward(self, x):
        return 2 * super().forward(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        state = x.new_zeros(len(x), 4)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state)


NETWORKS = {
    "two-layer": (lambda: build_two_layer_net(12, 3, width=20), draw(3, 3, 2, 2)),
    "resnet": (
        lambda: nn.Sequential(Residual(3, 4, 1), Residual(4, 6, 2), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(6, 3)),
        draw(3, 3, 8, 8),
    ),
    "attention, batch first": (lambda: Attention(True), draw_words(3, 4)),
    "attention, sequence first": (lambda: Attention(False), draw_words(4, 4)),
    "transformer layer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(32, 2)),
        draw(3, 4, 8),
    ),
    "tied": (Tied, draw_words(4, 3)),
    "changes in place": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 2), nn.ReLU(inplace=True)),
        draw(3, 4),
    ),
    "as many samples as outputs": (lambda: nn.Sequential(nn.Linear(4, 3), nn.PReLU(3), nn.Linear(3, 3)), draw(3, 4)),
    "parameters of no layer": (Scaled, draw(3, 4)),
    "subclass": (lambda: nn.Sequential(Doubled(4, 3), nn.ReLU(), nn.Linear(3, 2)), draw(3, 4)),
    "recurrent": (Recurrent, draw(3, 5, 3)),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2)),
        draw(3, 4),
    ),
    "convolutions in one and three dimensions": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular"), nn.GroupNorm(2, 4), nn.Tanh(),
            nn.Unflatten(2, (2, 2, 2)), nn.Conv3d(4, 3, (1, 2, 1)), nn.InstanceNorm3d(3, affine=True), nn.Flatten(),
            nn.Linear(12, 2),
        ),
        draw(2, 2, 8),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 3, stride=2), nn.PReLU(3), nn.Flatten(), nn.Linear(75, 2)),
        draw(3, 2, 2, 2),
    ),
    "norms of positions": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm((4, 5)), nn.RMSNorm(5), nn.Flatten(), nn.Linear(20, 2)),
        draw(3, 4, 6),
    ),
    "several axes of outputs": (lambda: nn.Sequential(nn.Conv2d(2, 3, 2, bias=False)), draw(2, 2, 3, 3)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.func, for weight norm
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_torch_func(name):
    build, x = NETWORKS[name]
    assert_equal_to_torch_func(prepare(build), x)


@pytest.mark.parametrize(
    ("build", "size", "samples", "classes"),
    [(build_digits_net, 28, 2, 2), (build_cifar_net, 32, 3, 4), (build_alexnet, 64, 1, 2)],
    ids=["digits", "cifar", "alexnet"],
)
def test_the_papers_networks_agree_with_torch_func(build, size, samples, classes):
    assert_equal_to_torch_func(prepare(lambda: build(classes)), draw(samples, 3, size, size))


CONVOLUTIONS = st.fixed_dictionaries(
    {
        "groups": st.sampled_from([1, 2, 4]),
        "kernel_size": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "stride": st.tuples(st.integers(1, 2), st.integers(1, 3)),
        "padding": st.tuples(st.integers(0, 2), st.integers(0, 2)),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 3)),
        "padding_mode": st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
        "bias": st.booleans(),
    }
)


@given(CONVOLUTIONS, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_kind_of_convolution_agrees_with_torch_func(options, samples):
    def build():
        conv = nn.Conv2d(4, 8, **options)
        size = conv(torch.zeros(1, 4, 7, 8)).numel()
        return nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.Linear(size, 2))

    assert_equal_to_torch_func(prepare(build), draw(samples, 4, 7, 8))


LAYERS = {
    "linear": lambda c: nn.Linear(5, 5),
    "conv": lambda c: nn.Conv2d(c, c, 3, padding=1),
    "grouped": lambda c: nn.Conv2d(c, c, 3, padding=2, dilation=2, groups=c),
    "batch norm": nn.BatchNorm2d,
    "group norm": lambda c: nn.GroupNorm(2, c),
    "layer norm": lambda c: nn.LayerNorm(5),
    "relu": lambda c: nn.ReLU(),
    "gelu": lambda c: nn.GELU(),
    "pool": lambda c: nn.MaxPool2d(3, 1, 1),
    "prelu": lambda c: nn.PReLU(c),
}


@given(st.lists(st.sampled_from(list(LAYERS)), min_size=1, max_size=7), st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=40, deadline=None)
def test_random_architectures_agree_with_torch_func_and_are_kernels(kinds, samples, tie, data):
    def build():
        layers = [LAYERS[kind](4) for kind in kinds]
        if tie:  # one of the layers a second time
            layers.append(layers[data.draw(st.integers(0, len(layers) - 1))])
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(100, 3))

    net, x = prepare(build), draw(samples, 4, 5, 5)
    entries = assert_equal_to_torch_func(net, x)
    whole = theory.ntk(net, x)
    assert torch.equal(whole, whole.mT)
    assert torch.linalg.eigvalsh(whole).min() >= -1e-12 * whole.norm()
    assert torch.allclose(sum(entries.values()), whole, rtol=0, atol=1e-12 * whole.norm().item())
    for K in entries.values():
        assert torch.equal(K, K.mT)
        assert torch.linalg.eigvalsh(K).min() >= -1e-12 * whole.norm()


@pytest.fixture(scope="module")
def cifar():
    return prepare(lambda: build_cifar_net(4)), draw(5, 3, 32, 32)


def test_some_outputs_are_rows_and_columns_of_all(cifar):
    net, x = cifar
    whole, some = theory.ntk(net, x), theory.ntk(net, x, outputs=[3, 1])
    chosen = torch.tensor([4 * p + k for p in range(5) for k in (3, 1)])
    assert torch.allclose(some, whole[chosen][:, chosen], rtol=1e-10, atol=1e-12)


def test_rows_follow_their_samples(cifar):
    net, x = cifar
    order = torch.tensor([3, 0, 4, 1, 2])
    rows = (4 * order[:, None] + torch.arange(4)).flatten()
    assert torch.allclose(theory.ntk(net, x[order]), theory.ntk(net, x)[rows][:, rows], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["attention, batch first", "tied", "resnet"])
def test_little_memory_takes_more_passes_and_gives_the_same(name, monkeypatch):
    build, x = NETWORKS[name]
    net = prepare(build)
    whole = theory.ntk(net, x, by_entry=True)
    monkeypatch.setattr("theory.kernels.layerwise.plan.LEAST_WORKSPACE", 1)
    monkeypatch.setattr("theory.kernels.layerwise.plan.MOST_WORKSPACE", 1)
    monkeypatch.setattr("theory.kernels.layerwise.gram.ROW_BLOCK", 2)
    monkeypatch.setattr("theory.kernels.layerwise.derivatives.PATCH_NUMBERS", 1)
    least = 24000
    passes = []
    plan_work = theory.kernels.layerwise.ntk.plan_work
    monkeypatch.setattr(
        "theory.kernels.layerwise.ntk.plan_work", lambda *args: passes.append(plan_work(*args)) or passes[-1]
    )
    for memory in (least * 4, least):
        try:
            found = theory.ntk(
                net, x, by_entry=True, memory=memory + 8 * len(whole) * len(next(iter(whole.values()))) ** 2
            )
        except InputError:
            continue
        for entry, K in whole.items():
            assert torch.allclose(found[entry], K, rtol=1e-10, atol=1e-12 * K.norm().item() + 1e-300)
    assert len(passes[-1].passes) > 1
    assert set(passes[-1].chunks) == {1}


def test_more_samples_than_memory_allows_are_refused_before_the_work(cifar, monkeypatch):
    net, x = cifar
    monkeypatch.setattr("theory.kernels.layerwise.ntk.pass_chunk", lambda *args: pytest.fail("it has started"))
    with pytest.raises(InputError, match=r"5 samples with 4 outputs needs about .* GiB .*; give fewer samples") as told:
        theory.ntk(net, x, memory=1000)
    assert told.value.options == ("samples", "outputs", "memory")
    monkeypatch.setattr("theory.kernels.layerwise.plan.get_available_memory", lambda: 1000)
    with pytest.raises(InputError, match="are free"):
        theory.ntk(net, x)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)])
def test_a_network_in_training_mode_is_refused(layer):
    net = nn.Sequential(nn.Linear(4, 3), layer, nn.Linear(3, 2)).double()
    with pytest.raises(InputError, match=r"in training mode.*call \.eval\(\)"):
        theory.ntk(net, draw(3, 4))
    net.eval()[1].train()
    with pytest.raises(InputError, match=rf"{type(layer).__name__} '1' is in training mode"):
        theory.ntk(net, draw(3, 4))
    assert theory.ntk(net.eval(), draw(3, 4)).shape == (6, 6)


@pytest.mark.parametrize(
    ("net", "x", "options", "words"),
    [
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            draw(3, 4),
            {},
            "no running stat",
        ),
        (nn.Linear(4, 3), draw(0, 4), {}, "no samples"),
        (nn.Linear(4, 3), draw(2, 4), {"outputs": [3]}, "outputs 0 to 2"),
        (nn.Linear(4, 3), draw(2, 4), {"outputs": []}, "outputs 0 to 2"),
        (nn.Linear(4, 3).requires_grad_(False), draw(2, 4), {}, "no parameter of this network is trained"),
        (nn.Linear(4, 3), draw(2, 4).float(), {}, "network is in float64 and the samples are in float32"),
        (nn.LSTM(4, 3), draw(2, 5, 4), {}, "returns tuple, not one tensor"),
    ],
)
def test_bad_input_is_refused(net, x, options, words):
    with pytest.raises(InputError, match=words):
        theory.ntk(net.double().eval(), x, **options)


# ---- what torch.func cannot do


class Last(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1]).tanh()


class Cube(torch.autograd.Function):
    """Without a rule for vmap."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


class Cubed(nn.Linear):
    def forward(self, x):
        return Cube.apply(super().forward(x))


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def contract_gradients(net, x):
    """∂f/∂θ ∂f/∂θᵀ by plain autograd, one sample and output at a time."""
    parameters, rows = [p for p in net.parameters() if p.requires_grad], []
    for sample in x:
        output = net(sample[None]).reshape(-1)
        for value in output:
            if not value.requires_grad:
                rows.append(torch.zeros(sum(p.numel() for p in parameters), dtype=x.dtype))
                continue
            found = torch.autograd.grad(value, parameters, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows) @ torch.stack(rows).mT


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (lambda: Last(nn.LSTM(3, 4, batch_first=True), 4), draw(3, 5, 3)),
        (lambda: Last(nn.GRU(3, 4, 2, batch_first=True, bidirectional=True), 8), draw(2, 5, 3)),
        (lambda: nn.Sequential(nn.Linear(4, 3), Cubed(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)), draw(3, 4)),
        (lambda: Branching(2, 2), torch.tensor([[1.0, 2], [-3, 1], [0, 1]]).double()),
    ],
    ids=["lstm", "gru", "function of one's own", "branching"],
)
def test_what_torch_func_cannot_do_is_done_sample_by_sample(build, x):
    net = prepare(build)
    expected, found = contract_gradients(net, x), theory.ntk(net, x)
    assert (found - expected).norm() <= 1e-12 * expected.norm()
    assert expected.norm() > 0.1


class Dropping(nn.Linear):
    """Drops in evaluation mode too."""

    def forward(self, x):
        return F.dropout(super().forward(x), 0.1)


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return checkpoint(lambda z: self.inner(z).tanh(), x, use_reentrant=False)


class Choosing(nn.Module):
    """Uses one layer or the other."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x) if x[0, 0] > 0 else self.b(x)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Dropping(4, 3), "draws random numbers in evaluation mode"),
        (Again, "'inner' again on the way back; turn gradient checkpointing off"),
        (Choosing, "uses 'b' for some samples and not for others"),
        (lambda: nn.Sequential(nn.Tanh(), Branching(4, 4), Doubled(4, 3)), "uses '1.weight' for some samples and not"),
        (lambda: Branching(4, 4), "depend on no parameter"),
        (lambda: torch.jit.trace(nn.Linear(4, 3), torch.ones(1, 4)), "is TorchScript"),
    ],
    ids=["chance", "checkpointing", "layers", "parameters", "nothing", "script"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")
def test_what_would_be_wrong_is_refused(build, words):
    x = torch.tensor([[1.0, 0, 0, -2], [-1, 2, 0, 1]]).double()
    with pytest.raises(InputError, match=words):
        theory.ntk(build().double().eval(), x)


def test_what_is_not_trained_or_not_used_counts_for_nothing():
    net = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(3, 2), "unused": nn.Linear(2, 2)}).double()
    net["a"].weight.requires_grad_(False)
    net.forward = lambda x: net["b"](net["a"](x).tanh())
    found = theory.ntk(net.eval(), draw(3, 4), by_entry=True)
    assert list(found) == ["a.bias", "b.weight", "b.bias", "unused.weight", "unused.bias"]
    assert not found["unused.weight"].any()
    assert found["a.bias"].any()


def test_the_network_is_left_as_it_was(cifar):
    net, x = cifar
    before = {name: value.clone() for name, value in net.state_dict().items()}
    K = theory.ntk(net, x)
    assert not K.requires_grad
    assert all("forward" not in layer.__dict__ for layer in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_single_precision_is_close_to_double(cifar):
    net, x = cifar
    exact = theory.ntk(net, x)
    single = prepare(lambda: build_cifar_net(4)).float()
    found = theory.ntk(single, x.float())
    assert found.dtype == torch.float32
    assert (found.double() - exact).norm() <= 1e-5 * exact.norm()


# ---- several networks, of which some entries are shared


def test_networks_of_several_clients_couple_through_what_they_share():
    """The other road: Jacobians written down, contracted by `compute_federated_kernel`."""
    nets = [prepare(lambda: build_cifar_net(2), seed) for seed in (0, 1, 2)]
    inputs = [draw(n, 3, 32, 32, seed=n) for n in (2, 1, 3)]
    rows = compute_jacobian(nets, inputs)
    owner = torch.repeat_interleave(torch.arange(3), 2 * torch.tensor([2, 1, 3]))
    shared = {name for name in rows if name.startswith("features") and "weight" in name}
    groups = {name: "shared" if name in shared else "personal" for name in rows}
    found = compute_grouped_kernels(nets, inputs, groups, apart=rows.keys() - shared)
    expected = compute_federated_kernel(rows, owner, shared)
    assert (sum(found.values()) - expected).norm() <= 1e-12 * expected.norm()
    assert not found["personal"][owner[:, None] != owner].any()
    only = compute_grouped_kernels(nets, inputs, {"head.0.bias": "bias"})
    assert list(only) == ["bias"]
    assert torch.allclose(only["bias"], rows["head.0.bias"] @ rows["head.0.bias"].mT)


def test_networks_of_different_architectures_are_refused():
    with pytest.raises(InputError, match="one architecture"):
        compute_grouped_kernels([nn.Linear(2, 3).eval(), nn.Linear(2, 2).eval()], [torch.ones(1, 2)] * 2, {"bias": ""})
