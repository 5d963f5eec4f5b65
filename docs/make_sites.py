"""Write docs/sites.md from `model.sites`: `make docs`. A test fails when the page and the code disagree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model.config import FFNKind, GPTConfig, Norm, Positions
from model.sites import ON_DEMAND, Tap, sites

PAGE = Path(__file__).with_name("sites.md")

_OPENING = """# Sites

Every place of a GPT that can be read or edited. Written by `make docs` from `model.sites`; do not edit.

A place is named by its hook name (`"blocks.3.attn.hook_pattern"`) or, typed, as `Tap.PATTERN.at(3)`; every call takes
either. `{}` stands for the layer. Reading changes nothing; editing any of these changes the logits. Places marked *
are large and are computed only when they are asked for by name.
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

* `hook_normalized` is x / scale for both kinds of norm; `hook_out`, which is ours, is after gain and bias.
  TransformerLens's LayerNorm has its `hook_normalized` after gain and bias.
* `hook_scale` is the divisor, sqrt(mean square + eps), for both kinds of norm.
* `post`, `deepnorm`, `sandwich`, `reordered` and `scaled` are placements of their own, with the places above; nothing
  is folded, and a norm placement is never accepted and then ignored.
* `hook_result`, the split inputs and `hook_mlp_in` need no flag: they exist when they are asked for.
* With grouped heads, k, v and their inputs have n_kv_heads heads.
* A name that a model does not have is an error that lists the nearest ones; so is a filter that matches nothing.
"""


def page() -> str:
    """The text of docs/sites.md."""
    rows = ["| hook name | tap | axes | what is there | exists |", "|---|---|---|---|---|", *map(_row, Tap)]
    return _OPENING + "\n" + "\n".join(rows) + "\n" + _UNDER + "\n".join(map(_placement, Norm)) + "\n" + _DIFFERENCES


def _row(tap: Tap) -> str:
    star = " *" if tap in ON_DEMAND else ""
    axes = " ".join(tap.axes)
    return f"| `{tap.template}`{star} | {tap.name} | {axes} | {tap.meaning} | {_where(tap)} |"


def _where(tap: Tap) -> str:
    """When a model has the place, found by asking models of every kind."""
    kinds = {"norm": Norm, "positions": Positions, "ffn": FFNKind}
    limits = []
    for name, members in kinds.items():
        having = [member.value for member in members if _has(tap, **{name: member.value})]
        if 0 < len(having) < len(members):
            limits.append(f"{name} {', '.join(having)}")
    return "; ".join(limits) or "always"


def _has(tap: Tap, **choice: str) -> bool:
    """Whether some model with this choice has the place."""
    for norm in [choice["norm"]] if "norm" in choice else [member.value for member in Norm]:
        for positions in [choice["positions"]] if "positions" in choice else ["rope", "learned"]:
            for ffn in [choice["ffn"]] if "ffn" in choice else ["gelu", "swiglu"]:
                if tap in {site.tap for site in sites(_config(norm=norm, positions=positions, ffn=ffn)).values()}:
                    return True
    return False


def _placement(norm: Norm) -> str:
    config = _config(norm=norm.value, positions="rope", ffn="gelu")
    names = ", ".join(config.norm_names) or "none"
    final = "ln_final" if config.has_final_norm else "none"
    return f"| {norm.value} | {names} | {final} | {'yes' if config.additive_stream else 'no'} |"


def _config(*, norm: str, positions: str, ffn: str) -> GPTConfig:
    kind = {"norm": Norm(norm), "positions": Positions(positions), "ffn": FFNKind(ffn)}
    return replace(GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=8, d_vocab=8), **kind)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
