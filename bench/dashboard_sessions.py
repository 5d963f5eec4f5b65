"""Many people at once: sessions that look and ablate for some minutes, and what that leaves in the server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.dashboard_clients import Client, opened
from bench.dashboard_server import Server

TAIL = 0.5
"""Share of the time, at its end, over which memory should be flat."""


@dataclass(kw_only=True)
class Load:
    """How many sessions, for how long, and what they look at."""

    n_sessions: int = 20
    seconds: float = 120.0
    pause: float = 1.0
    """Mean seconds between two things a user does."""
    address: dict[str, str]
    n_layers: int
    n_heads: int
    n_memories: int
    seed: int = 0


@dataclass
class _Told:
    """What the sessions did."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    n_ablations: int = 0

    def add(self, what: str, seconds: float) -> None:
        with self.lock:
            self.seconds.setdefault(what, []).append(seconds)


def measured(server: Server, load: Load) -> dict[str, Any]:
    """Let the sessions loose; what each thing took, what went wrong, memory over time, and hooks that are left.

    A look at the same head before and after tells whether anything of the ablations is left in the model.
    """
    before, told, memory = _sent(server, load), _Told(), []
    ends = time.monotonic() + load.seconds
    began, processor = time.monotonic(), server.processor
    sessions = [threading.Thread(target=_session, args=(server, load, told, ends, at)) for at in range(load.n_sessions)]
    for session in sessions:
        session.start()
    while any(session.is_alive() for session in sessions):
        memory.append((time.monotonic() - began, server.resident))
        time.sleep(min(1.0, load.seconds / 20))
    for session in sessions:
        session.join()
    taken = time.monotonic() - began
    after = _sent(server, load)
    return {
        "sessions": load.n_sessions,
        "seconds": taken,
        "actions": {what: _summary(times) for what, times in sorted(told.seconds.items())},
        "ablations": told.n_ablations,
        "errors": told.errors[:20],
        "n_errors": len(told.errors),
        "log": server.log()[-2000:],
        "processor_share": (server.processor - processor) / taken,
        "memory": flatness(memory, load.seconds),
        "hooks": server.hooks(),
        "same_attention_after": before == after,
    }


def _session(server: Server, load: Load, told: _Told, ends: float, number: int) -> None:
    """One user: heads, memories, ablations, in an order of their own."""
    chance = random.Random(f"{load.seed} {number}")
    acts = {"heads": _heads, "memories": _memories, "ablate": _ablate, "overview": _overview}
    try:
        with opened(server.url, load.address) as client:
            told.add("first page", client.go(""))
            while time.monotonic() < ends:
                time.sleep(min(max(0.0, ends - time.monotonic()), chance.expovariate(1 / load.pause)))
                (page,) = chance.choices(list(acts), [4, 3, 4, 1])
                acts[page](client, load, told, chance)
            told.errors += [f"session {number}: {error}" for error in client.errors]
    except Exception as error:  # whatever ends a session is what is looked for
        told.errors.append(f"session {number}: {type(error).__name__}: {error}")


def _head(load: Load, chance: random.Random) -> str:
    return f"L{chance.randrange(load.n_layers)}H{chance.randrange(load.n_heads)}"


def _heads(client: Client, load: Load, told: _Told, chance: random.Random) -> None:
    told.add("open heads", client.go("heads"))
    told.add("choose a head", client.set(head=_head(load, chance), cell=""))
    for _ in range(2):
        query = chance.randrange(1, 20)
        told.add("lock a cell", client.set(cell=f"{query}.{chance.randrange(query)}"))


def _memories(client: Client, load: Load, told: _Told, chance: random.Random) -> None:
    told.add("open memories", client.go("memories"))
    name = f"L{chance.randrange(load.n_layers)}M{chance.randrange(load.n_memories)}"
    told.add("choose a memory", client.set(memory=name))


def _ablate(client: Client, load: Load, told: _Told, chance: random.Random) -> None:
    places = ",".join(sorted({_head(load, chance) for _ in range(chance.randrange(1, 4))}))
    client.address["ablate"] = places
    told.add("open ablate", client.go("ablate"))
    told.add("choose places", client.set(ablate=places))
    told.add("ablate", client.press("run_hypothesis"))
    with told.lock:
        told.n_ablations += 1


def _overview(client: Client, load: Load, told: _Told, chance: random.Random) -> None:
    del load, chance
    told.add("open overview", client.go(""))


def _sent(server: Server, load: Load) -> str:
    """What the attention view of one head is sent, by a session of its own."""
    with opened(server.url, load.address | {"head": "L0H0"}) as client:
        client.go("heads")
        return client.sent["attention"]


def _summary(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "n": len(ordered),
        "median_ms": 1e3 * ordered[len(ordered) // 2],
        "p95_ms": 1e3 * ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "most_ms": 1e3 * ordered[-1],
    }


def flatness(memory: Sequence[tuple[float, float]], seconds: float) -> dict[str, float]:
    """MiB at the start, and over the tail: the mean of its first and of its second half, and what it grew between."""
    tail = [(at, size) for at, size in memory if seconds * (1 - TAIL) <= at <= seconds]
    middle = len(tail) // 2
    early, late = ([size for _, size in part] for part in (tail[:middle], tail[middle:]))
    means = [sum(part) / max(1, len(part)) for part in (early, late)]
    return {
        "start_mib": memory[0][1],
        "early_mib": means[0],
        "late_mib": means[1],
        "most_mib": max(size for _, size in memory),
        "growth": means[1] / means[0] - 1 if means[0] else 0.0,
    }
