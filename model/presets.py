"""Complete run configurations by name: functions, so that a variant is a preset with a few fields replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from model.config import FFNKind, GPTConfig, Init, Norm, NormKind, Positions
from model.errors import UnknownNameError, closest
from model.training.config import OptimConfig, Optimizer, RunConfig, Schedule, TrainConfig
from model.training.corpus import DataConfig

BYTES = 257
"""Vocabulary of the byte tokenizer: 256 bytes and BOS."""


def tiny() -> RunConfig:
    """Seconds on one core: for tests, and to see every part of a run once."""
    return RunConfig(
        model=GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=32, d_vocab=BYTES),
        data=DataConfig(stdlib_bytes=200_000, min_period=3, max_period=10),
        optim=OptimConfig(lr=1e-2, warmup_steps=5),
        train=TrainConfig(
            steps=60, batch_size=8, checkpoint_every=20, log_every=10, eval_sequences=8, probe_sequences=4
        ),
    )


def demo() -> RunConfig:
    """A few minutes on two cores: long enough for induction heads to form.

    Half of the rows are random bytes repeated with a random period, from which only copying can lower the loss. Muon on
    the matrices of the blocks brings the change after 1.5 to 2 of 3.7 million tokens; with AdamW alone it comes later,
    or another way to copy is found. A small rope base suits a short context.
    """
    return RunConfig(
        model=GPTConfig(
            n_layers=2,
            n_heads=8,
            d_head=16,
            d_model=64,
            n_ctx=64,
            d_vocab=BYTES,
            embed_std=0.1,
            rope_base=1000.0,
        ),
        data=DataConfig(sources=("stdlib=0.5", "repeats=0.5"), min_period=6, max_period=24),
        optim=OptimConfig(
            optimizer=Optimizer.MUON,
            lr=1e-2,
            muon_lr=1e-2,
            warmup_steps=50,
            decay_share=0.4,
            final_lr=0.05,
            weight_decay=0.0,
        ),
        train=TrainConfig(steps=1800, batch_size=32, checkpoint_every=150, log_every=50, copy_period=28),
    )


def demo_post() -> RunConfig:
    """The demo with its norms after the residual sum; same seed, same tokens."""
    run = demo()
    return replace(run, model=run.model.varied(norm=Norm.POST))


def induction() -> RunConfig:
    """Two layers of attention alone that learn to copy, and nothing else: the induction circuit by itself.

    Half a minute of processor time. Every row is random characters repeated with a random period, from which only
    copying can lower the loss (docs/induction.md). Its variants are settings: `model.n_layers=1` cannot do it,
    `model.smeared_keys=true` lets one layer do it, and `data.min_period=16 data.max_period=16` is the trap in which a
    distance is learned instead. Periods 21 to 23 fit twice into the context and are never trained.

    The embeddings are as large as what heads write, and untied. With small ones (0.1) the token that is to be copied is
    easier to find in what heads of layer 0 moved than in its own place, and a displaced circuit is learned.
    """
    return RunConfig(
        model=GPTConfig(
            n_layers=2,
            n_heads=4,
            d_model=64,
            n_ctx=48,
            d_vocab=64,
            ffn=FFNKind.NONE,
            init=Init.XAVIER,
            embed_std=1.0,
            tie_embeddings=False,
        ),
        data=DataConfig(sources=("repeats",), tokenizer="chars:64", min_period=6, max_period=20),
        optim=OptimConfig(
            optimizer=Optimizer.MUON, lr=4e-3, muon_lr=4e-3, warmup_steps=50, decay_share=0.1, weight_decay=0.0
        ),
        train=TrainConfig(steps=1600, batch_size=32, checkpoint_every=25, log_every=25, copy_period=22),
    )


def memories() -> RunConfig:
    """Six layers whose FFNs can be read as memories, to replicate Geva et al. 2021 (docs/studies/ffn-memories.md).

    Half an hour on one core. Like the model of the paper where size allows: ReLU, so that a coefficient has a natural
    zero; biases, so that a key has a threshold; pre-norm; tied embeddings. Unlike it: RMSNorm, rotary positions, and
    Muon, which learns more from few tokens. Under RMSNorm a token that two vectors both promote most is also promoted
    most by their sum; a LayerNorm's bias would break that. Text alone, passed five times, in tokens that are words or
    parts of them, so that a bigram means something. A trend over depth takes six layers at least.
    """
    return RunConfig(
        model=GPTConfig(
            n_layers=6,
            n_heads=4,
            d_model=128,
            n_ctx=128,
            d_vocab=2048,
            ffn=FFNKind.RELU,
            biases=True,
        ),
        data=DataConfig(sources=("stdlib",), tokenizer="bpe:2048"),
        optim=OptimConfig(
            optimizer=Optimizer.MUON, lr=3e-3, muon_lr=1e-2, warmup_steps=50, decay_share=0.4, final_lr=0.05
        ),
        train=TrainConfig(steps=1500, batch_size=32, checkpoint_every=250, log_every=100),
    )


def gpt2_small() -> RunConfig:
    """GPT-2 small's architecture exactly: 124,439,808 parameters. For a GPU."""
    return RunConfig(
        model=GPTConfig(
            n_layers=12,
            n_heads=12,
            d_model=768,
            n_ctx=1024,
            d_vocab=50_257,
            norm_kind=NormKind.LAYERNORM,
            positions=Positions.LEARNED,
            ffn=FFNKind.GELU_TANH,
            biases=True,
        ),
        data=DataConfig(sources=("stdlib",), tokenizer="bpe:50257", stdlib_bytes=64_000_000),
        optim=OptimConfig(lr=6e-4, schedule=Schedule.COSINE, warmup_steps=700),
        train=TrainConfig(steps=20_000, batch_size=512, accumulate=16, checkpoint_every=1000, log_every=100),
    )


PRESETS: dict[str, Callable[[], RunConfig]] = {
    "tiny": tiny,
    "demo": demo,
    "demo_post": demo_post,
    "induction": induction,
    "memories": memories,
    "gpt2_small": gpt2_small,
}
"""Every preset by its name."""


def get_preset(name: str) -> RunConfig:
    """The preset called `name`; an unknown one is an error that lists them."""
    key = name.replace("-", "_")
    if key not in PRESETS:
        raise UnknownNameError(f'There is no preset "{name}".{closest(key, PRESETS)} There are {", ".join(PRESETS)}.')
    return PRESETS[key]()
