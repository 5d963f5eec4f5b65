"""When a run does what: the learning rate of each step, and the steps at which it is saved and looked at.

All are pure functions of the step, so that a resumed run needs no memory of them. Log spacing (0, 1, 2, 4, ..., 512,
then evenly) is Pythia's (Biderman et al. 2023): most of what can be seen to form does so early.
"""

from __future__ import annotations

import math

from model.training.config import OptimConfig, Schedule

DENSE_UNTIL = 512
"""Last of the powers of two."""


def lr_scale(step: int, steps: int, config: OptimConfig) -> float:
    """The share of the peak learning rate with which the update from `step` to `step + 1` is made.

    >>> [lr_scale(s, 10, OptimConfig(warmup_steps=2, decay_share=0.5, final_lr=0.0)) for s in (0, 1, 4, 5, 9)]
    [0.5, 1.0, 1.0, 0.8, 0.0]
    """
    warm_up = (step + 1) / config.warmup_steps if config.warmup_steps else 1.0
    if config.schedule is Schedule.COSINE:
        start = config.warmup_steps
        done = _share(step + 1 - start, steps - start)
        fallen = (1 - math.cos(math.pi * done)) / 2
    else:
        start = steps - round(config.decay_share * steps)
        fallen = _share(step + 1 - start, steps - start)
    return min(warm_up, 1 - (1 - config.final_lr) * fallen)


def steps_to_save(steps: int, every: int) -> tuple[int, ...]:
    """0, 1, 2, 4, ..., 512, then every multiple of `every`, and the last step.

    >>> steps_to_save(1200, every=400)
    (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 800, 1200)
    """
    return _merged(steps, range(0, steps + 1, every)[1 + DENSE_UNTIL // every :])


def steps_to_log(steps: int, every: int) -> tuple[int, ...]:
    """0, 1, 2, 4, ..., 512, every multiple of `every`, and the last step.

    >>> steps_to_log(100, every=30)
    (0, 1, 2, 4, 8, 16, 30, 32, 60, 64, 90, 100)
    """
    return _merged(steps, range(0, steps + 1, every))


def _merged(steps: int, even: range) -> tuple[int, ...]:
    powers = {0} | {2**k for k in range(DENSE_UNTIL.bit_length())}
    return tuple(sorted({step for step in powers if step < steps} | set(even) | {steps}))


def _share(part: int, whole: int) -> float:
    """`part` of `whole`, held between 0 and 1."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
