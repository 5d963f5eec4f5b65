"""Does a model write more of a concept when the memories whose values promote it are turned on?

Geva et al. (2022, arXiv 2203.14680) read from a value which tokens it promotes, and turn a few values on while GPT-2
writes. Here a concept is named, or chosen by the model's own values; the memories whose values stand out most for it
(`interp.concept_memories`: weights alone) are kept at a multiple of the largest coefficient that each reaches on
held-out text, while held-out prompts, others than that text, are continued. Counted are the share of the concept's
tokens, its probability at every step, and the price: the loss of the text under the model as it is, and how many of its
tokens are distinct (`interp.promotion`).

Turning on any memory changes what is written. So the same is done with other memories of the same layers, with memories
that usually write as much and are made to write exactly as much, and with random directions in place of these values;
the change counts only where it ranks first among all of these, and exceeds that at step 0, with the memories that stand
out there. The rise with the strength is held against that of memories that write as much, at every strength. Turned
off, the memories are held against others that are turned off.

What it does not show: what the memories do by themselves, as they never fire all at once; nor that a reader would take
the text for one about the concept. Only positive coefficients are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from analyses.checkpoints import first_checkpoint, first_checkpoint_file, held_out_file
from analyses.promotion.figure import draw
from analyses.promotion.findings import sentences
from analyses.promotion.measuring import measured
from analyses.promotion.result import Config, Result, Sample
from analyses.registry import Finding, Passage, Progress
from model.lab import Lab

__all__ = [
    "QUESTION", "Config", "Result", "figure", "findings", "inputs", "more_tables", "passages", "run", "table",
]  # fmt: skip

QUESTION = "Does a model write more of a concept when the memories that promote it are turned on?"


@torch.no_grad()
def run(subject: Lab, config: Config, *, progress: Progress | None = None) -> Result:
    """Continue held-out prompts with the concept's memories at several strengths, and with those of the controls."""
    return measured(subject, first_checkpoint(subject), config, progress)


def table(result: Result) -> pd.DataFrame:
    """One row for each strength."""
    doses = result.doses
    columns = {
        "share": doses.share, "share_change": doses.share_change, "mass_change": doses.mass_change,
        "first_step_change": doses.first_change, "loss_change": doses.loss_change,
        "distinct_change": doses.distinct_change,
    }  # fmt: skip
    return pd.DataFrame(
        [
            {"concept": result.concept, "strength": strength}
            | {
                f"{name}{end}": float(getattr(values, part)[row])
                for name, values in columns.items()
                for end, part in (("", "mean"), ("_low", "low"), ("_high", "high"))
            }
            | {"p": float(doses.p[row]), "n_prompts": doses.share.n}
            for row, strength in enumerate(doses.strengths)
        ]
    )


def more_tables(result: Result) -> Mapping[str, pd.DataFrame]:
    """The memories, and what every control set does."""
    memories = [
        {
            "memory": each.label, "standout": each.standout, "largest": each.largest, "firing": each.firing,
            "promotes": " ".join(each.top),
        }
        for each in result.memories
    ]  # fmt: skip
    sets = [
        {
            "control": control.kind.value, "set": number, "share_change": float(control.share_change[number]),
            "mass_change": float(control.mass_change[number]),
            "first_step_change": float(control.first_change[number]), "loss_change": float(control.loss_change[number]),
            "slope": float(control.slope[number]) if len(control.slope) else None,
        }
        for control in result.controls
        for number in range(len(control.share_change))
    ]  # fmt: skip
    return {"memories": pd.DataFrame(memories), "controls": pd.DataFrame(sets)}


def figure(result: Result) -> Any:
    """The share at every strength, beside the controls; the probability at every step; and the price."""
    return draw(result)


def findings(result: Result) -> list[Finding]:
    """Whether the concept is promoted, at what price, and whether it is missed when they are off; denials included."""
    return sentences(result)


def passages(result: Result) -> list[Passage]:
    """What is written behind the first prompts; tokens of the concept are shaded."""
    return [passage for number, sample in enumerate(result.samples) for passage in _passages(result, sample, number)]


def inputs(subject: Lab, config: Config) -> list[Path]:
    """What is read beside the checkpoint: step 0 and the held-out rows."""
    del config
    return [first_checkpoint_file(subject), held_out_file(subject)]


def _passages(result: Result, sample: Sample, number: int) -> Sequence[Passage]:
    before = sample.prompt
    texts = (("as it is", sample.plain, sample.plain_in_concept), ("turned on", sample.promoted, sample.in_concept))
    return [
        Passage(
            group=f"prompt {number + 1}",
            what=what,
            tokens=(*before, "|", *text),
            shades=(*[0.0] * (len(before) + 1), *(float(each) for each in shaded)),
            after=None,
        )
        for what, text, shaded in texts
    ]


if __name__ == "__main__":
    import sys

    from analyses.study import main

    sys.exit(main("memory-promotion"))
