"""Long work of a page: begun by a button and by nothing else, told while it goes on, stopped when the session asks.

It runs in the session's own script, so that a click on Cancel, or a closed tab, ends it at the next thing it tells:
telling goes through Streamlit, which raises there, through every `with` that holds a hook. What was measured is kept
for whoever asks the same of the same checkpoint; what was stopped leaves nothing. A click elsewhere starts the page
again, and work that was begun and not cancelled is begun again then, unless something else is asked by now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from apps.dashboard import components
from model.errors import CutawayError

_LOG = logging.getLogger(__name__)

Key = tuple[Hashable, ...]
_BEGUN, _SAID, _FAILED = "_jobs_begun", "_jobs_said", "_jobs_failed"
_OWN = "_jobs_own"
"""In the session: keys of what it may see."""


@dataclass(kw_only=True)
class _Kept:
    """Results by what was asked; the ones that nobody looked at for longest go first."""

    most: int = 96
    found: OrderedDict[Key, Any] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Key) -> Any:
        with self.lock:
            if key in self.found:
                self.found.move_to_end(key)
            return self.found.get(key)

    def put(self, key: Key, value: Any) -> None:
        with self.lock:
            self.found[key] = value
            while len(self.found) > self.most:
                self.found.popitem(last=False)


@st.cache_resource(show_spinner=False)
def _every() -> dict[str, _Kept]:
    """One for the server: an answer is a number about a checkpoint, and says nothing of who asked."""
    return {"numbers": _Kept(), TEXT: _Kept(most=4), PAYLOAD: _Kept(most=12), FIGURE: _Kept(most=64)}


def _kept(key: Key) -> _Kept:
    """Patterns of a whole text are large, so of these only the last few are kept."""
    every = _every()
    return every.get(str(key[0]), every["numbers"])


TEXT, PAYLOAD, FIGURE = "text", "payload", "figure"
"""First parts of keys: of what holds every pattern of a text, of what is sent to a view, and of figures."""


def drawn(key: Key, make: Callable[[], Any]) -> Any:
    """A figure as a specification, made once: a chart takes longer to make than a click should."""
    named = (FIGURE, *key)
    found = _kept(named).get(named)
    if found is None:
        found = make().to_dict()
        _kept(named).put(named, found)
    return found


class Told:
    """How far the work is, on the page; calling it with (done, in all) ends the work if the session asks for that."""

    def __init__(self, bar: Any, title: str) -> None:
        self.bar, self.title, self.part, self.begun, self.last = bar, title, title, time.monotonic(), -1.0
        self.total = 0

    def now(self, what: str, first: str = "") -> None:
        """Say what the next part of the work is, and what of it comes first and is not counted."""
        self.part, self.begun, self.total, self.last = what, time.monotonic(), 0, -1.0
        self.bar.progress(0.0, text=components.literal(f"{what}: {first} ..." if first else f"{what} ..."))

    def __call__(self, done: int, total: int) -> None:
        """So many of so many passes are done."""
        now = time.monotonic()
        if total != self.total or done == 1:
            self.begun, self.total = (now, total) if self.total else (self.begun, total)
        if now - self.last < _OFTEN and done < total:
            return
        self.last = now
        left = f", about {duration((now - self.begun) / done * (total - done))} left in this part" if done else ""
        said = f"{self.part}: {done:,} of {total:,} passes{left if done < total else AFTER}"
        self.bar.progress(min(1.0, done / total), text=components.literal(said))


AFTER = " done; preparing what comes next"
"""What is said between two parts: intact passes, what is put there next, and statistics are not counted."""

Work = Callable[[Told], Any]


def begin(slot: str, key: Key) -> None:
    """Ask for the work of a slot: it runs when `done` is reached with this very key."""
    adopt(key)
    st.session_state.setdefault(_BEGUN, {})[slot] = key
    st.session_state.get(_SAID, {}).pop(slot, None)
    st.session_state.get(_FAILED, {}).pop(slot, None)


def known(key: Key) -> Any:
    """What was measured already, in whichever session; None if it was not."""
    return _kept(key).get(key)


def adopt(key: Key) -> None:
    """Let this session see what was, or is to be, measured: it asked for it, or was sent a link to it."""
    st.session_state.setdefault(_OWN, set()).add(key)


def disown(key: Key) -> None:
    """Let it ask again first."""
    st.session_state.get(_OWN, set()).discard(key)


def is_own(key: Key) -> bool:
    """Whether this session may see it."""
    return key in st.session_state.get(_OWN, ())


def shown(key: Key) -> Any:
    """What was measured already and this session may see; None where there is none."""
    return known(key) if is_own(key) else None


def keep(key: Key, value: Any) -> None:
    """Remember what was measured on the way to something else."""
    _kept(key).put(key, value)


def done(slot: str, key: Key, work: Work, *, title: str) -> Any:
    """The result, measured now if it was begun; None where it was not, was stopped, or cannot be had (that is said).

    Args:
        slot: which of the page's jobs; a new question in a slot takes the place of an unfinished one.
        key: all that the result depends on.
        work: gets a `Told`, to be called with passes done and in all.
        title: what is measured, in words.
    """
    begun = st.session_state.setdefault(_BEGUN, {})
    asked = begun.get(slot)
    if asked is not None and asked != key:
        begun.pop(slot)
        if known(asked) is None:
            _say(slot, "Stopped before it was finished, since something else is asked by now.")
    found = known(key)
    if found is None and asked == key:
        found = _run(slot, key, work, title)
    failed = st.session_state.get(_FAILED, {}).get(slot)
    if found is None and failed is not None and failed[0] == key:
        components.unasked(failed[1])
    elif found is None and (said := st.session_state.get(_SAID, {}).get(slot)):
        components.caption(said)
    return found


def offered(label: str, slot: str, key: Key, work: Work, *, note: str = "", title: str = "") -> Any:
    """The result where this session may see one; else a button that begins the work, with a note of what it takes."""
    found = done(slot, key, work, title=title or label)
    if found is None or not is_own(key):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.button(label, key=f"begin-{slot}", on_click=begin, args=(slot, key), icon=":material/play_arrow:")
            if note:
                components.caption(note)
    return found if is_own(key) else None


def _run(slot: str, key: Key, work: Work, title: str) -> Any:
    place = st.empty()
    inside = place.container(border=True, key=f"job-{slot}")
    with inside:
        bar = st.progress(0.0, text="Beginning ...")
        st.button("Cancel", key=f"cancel-{slot}", on_click=_cancel, args=(slot,), icon=":material/stop:")
        told = Told(bar, title)
    try:
        with inside, st.spinner(components.literal(title), show_time=True):  # the browser counts the seconds
            found = work(told)
    except CutawayError as error:
        found = None
        st.session_state.setdefault(_FAILED, {})[slot] = key, error.with_traceback(None)  # not with every frame of it
    except Exception as error:  # such as memory that ran out: said once, and not begun again by the next click
        _LOG.exception("%s failed", title)
        found = None
        what = f"{type(error).__name__}: {error}".strip(": ")
        told_as = CutawayError(f"This could not be measured ({what}). The server's log has the details.")
        st.session_state.setdefault(_FAILED, {})[slot] = key, told_as
    else:
        _kept(key).put(key, found)
    st.session_state[_BEGUN].pop(slot, None)
    place.empty()
    return found


def _cancel(slot: str) -> None:
    st.session_state.get(_BEGUN, {}).pop(slot, None)
    _say(slot, "Cancelled: nothing of it was kept.")


def _say(slot: str, what: str) -> None:
    st.session_state.setdefault(_SAID, {})[slot] = what


def duration(seconds: float) -> str:
    """A time to come, no finer than it can be known.

    >>> duration(0.4), duration(42), duration(400)
    ('1 s', '42 s', '7 min')
    """
    return f"{max(1, round(seconds))} s" if seconds < 100 else f"{round(seconds / 60)} min"


_OFTEN = 0.15
"""Seconds between two words on the page; also how soon a click on Cancel is noticed, beside the length of a pass."""
