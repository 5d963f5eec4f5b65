"""Write docs/sites.md from `model.sites`: `make docs`. A test fails when the page and the code disagree."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from itertools import product
from pathlib import Path

from model.config import FFNKind, GPTConfig, Norm, Positions
from model.sites import ON_DEMAND, Tap, sites

PAGE = Path(__file__).with_name("sites.md")

_OPENING = """# Sites

Every place of a GPT that can be read or edited. Written by `make docs` from `model.sites`; do not edit.

A place is named by its hook name (`"blocks.3.attn.hook_pattern"`) or, typed, as `Tap.PATTERN.at(3)`; every call takes
either. `{}` stands for the layer. Reading changes nothing; editing any of these changes the logits (but for a norm's
divisor where nothing but a factor is handed on to another norm, which divides it out; tests/model/test_every_hook.py
names the cases). Places marked * are large and are computed only when they are asked for by name.
"""

_UNDER = """
## Under each placement of the norms

The stream places are what the *next reader* gets: `hook_resid_post` of a layer is `hook_resid_pre` of the next one.
Under `post` and `deepnorm` it is therefore the output of ln1 or ln2, which act on the sum; `hook_attn_out` and
`hook_mlp_out` are what is added, after an output norm where there is one.

| norm | norms of a layer | final norm | the stream is a sum of what was written |
|---|---|---|---|
"""

_DIFFERENCES = """
## Where this differs from TransformerLens

Names and shapes are TransformerLens's. What differs:

* `hook_normalized` is x / scale for both kinds of norm, and `hook_out` is after gain and bias, as in TransformerLens 4.
  Up to version 3 its LayerNorm had `hook_normalized` after gain and bias.
* `hook_scale` is the divisor, sqrt(mean square + eps), for both kinds of norm.
* An edit of `hook_resid_mid` goes on in the stream. In TransformerLens 4's native model it reaches the FFN alone, which
  is `hook_mlp_in` here.
* `post`, `deepnorm`, `sandwich`, `reordered` and `scaled` are placements of their own, with the places above; nothing
  is folded, and a norm placement is never accepted and then ignored.
* `hook_result`, the split inputs and `hook_mlp_in` need no flag: they exist when they are asked for.
* With grouped heads, k, v and their inputs have n_kv_heads heads.
* A name that a model does not have is an error that lists the nearest ones; so is a filter that matches nothing.

How a model opens there, and what was measured: [transformerlens.md](transformerlens.md).
"""


def page() -> str:
    """The text of docs/sites.md."""
    models = _models()
    places = [_row(tap, models) for tap in Tap]
    placements = [_placement(norm, models) for norm in Norm]
    heads = ("| hook name | tap | axes | what is there | exists |", "|---|---|---|---|---|")
    return "\n".join([_OPENING, *heads, *places, _UNDER.rstrip("\n"), *placements, _DIFFERENCES])


def _row(tap: Tap, models: Models) -> str:
    star = " *" if tap in ON_DEMAND else ""
    axes = " ".join(tap.axes)
    return f"| `{tap.template}`{star} | {tap.name} | {axes} | {tap.meaning} | {_where(tap, models)} |"


def _where(tap: Tap, models: Models) -> str:
    """When a model has the place, found by asking models of every kind."""
    having = [config for config, taps in models.items() if tap in taps]
    limits = []
    for name, members in _CHOICES.items():
        found = [member.value for member in members if any(getattr(config, name) is member for config in having)]
        if len(found) < len(members):
            limits.append(f"{name} {', '.join(found)}")
    return "; ".join(limits) or "always"


Models = Mapping[GPTConfig, Set[Tap]]
_CHOICES = {"norm": Norm, "positions": Positions, "ffn": FFNKind}


def _models() -> Models:
    """One small model of every kind, and the places it has."""
    shape = GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=8, d_vocab=8)
    kinds = product(*_CHOICES.values())
    configs = [replace(shape, norm=norm, positions=positions, ffn=ffn) for norm, positions, ffn in kinds]
    return {config: {site.tap for site in sites(config).values()} for config in configs}


def _placement(norm: Norm, models: Models) -> str:
    config = next(each for each in models if each.norm is norm and each.ffn is not FFNKind.NONE)
    names = ", ".join(config.norm_names) or "none"
    final = "ln_final" if config.has_final_norm else "none"
    return f"| {norm.value} | {names} | {final} | {'yes' if config.additive_stream else 'no'} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
