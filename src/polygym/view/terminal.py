"""What a person sees in the terminal while episodes are played and a policy learns.

The one idea: collection and training call three or four plain methods and know no display; here those calls become a
live table on a terminal, and plain lines anywhere else. Everything goes to standard error, so that data on standard
output stays clean.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from statistics import median
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from polygym.rollout import Rollout
from polygym.text import clock, one_line, printable, sparkline

RECENT_STEPS = 10  # steps behind the smoothed reward and the estimate of the time left
PLAIN_SECONDS = 10.0  # without a terminal, a collection reports this often
BAR_WIDTH = 28
EVALUATE = "evaluate"  # the phase that belongs to no step
STARTING = "starting"
HELD_OUT = "held_out"
# what a line of the training table shows: metric below <env>/, title, decimals
COLUMNS = (
    ("share", "share", 2),
    ("groups", "groups", 0),
    ("mean_reward", "reward", 3),
    ("signal_fraction", "signal", 2),
    ("loss", "loss", 4),
    (HELD_OUT, "held out", 3),
    ("errors", "errors", 0),
)


class Display:
    """A live drawing on a terminal, or lines elsewhere. A context manager, so that Ctrl-C restores the cursor."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self.render, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def live(self) -> bool:
        """Whether a drawing is on the screen."""
        return self._live is not None

    def render(self) -> RenderableType:
        """What the screen shows now."""
        raise NotImplementedError

    def message(self, text: str) -> None:
        """Print a line above the drawing."""
        self.console.print(Text(printable(text)), soft_wrap=True)


class CollectionDisplay(Display):
    """Episodes of a collection or an evaluation: done of planned, mean reward, unscored; an environment a line."""

    def __init__(self, console: Console | None = None, title: str = "rollouts") -> None:
        super().__init__(console)
        self.title = title
        self._reset({})

    def _reset(self, totals_E: Mapping[str, int]) -> None:
        self._totals_E = dict(totals_E)
        self._done_E: Counter[str] = Counter()
        self._unscored_E: Counter[str] = Counter()
        self._rewards_E: defaultdict[str, float] = defaultdict(float)  # summed up
        self._causes: Counter[str] = Counter()
        self._started = self._reported = monotonic()

    def start(self, total_by_environment: Mapping[str, int]) -> None:
        """A collection begins; how many rollouts each environment will have."""
        self._reset(total_by_environment)

    def rollout(self, rollout: Rollout) -> None:
        """One episode has ended."""
        name = rollout.environment
        self._done_E[name] += 1
        if rollout.scored and rollout.reward is not None:
            self._rewards_E[name] += rollout.reward
        else:
            self._unscored_E[name] += 1
            self._causes[rollout.cause.kind if rollout.cause else "unknown"] += 1
        if monotonic() - self._reported >= PLAIN_SECONDS:
            self._reported = monotonic()
            self._report()

    def finish(self) -> None:
        """The collection has ended, completely or not."""
        self._report()

    def _report(self) -> None:
        """Print the state where no drawing shows it."""
        if not self.live and self._done_E:
            self.message(self.line())

    def line(self) -> str:
        """The state as one line."""
        planned = sum(self._totals_E.values())
        parts = [f"{self.title} {self._done_E.total()}/{planned}", clock(monotonic() - self._started)]
        for name in self._totals_E:
            pace = self._pace(name)
            parts.append(f"{one_line(name, 40)} {self._mean(name)}{f' ({pace})' if pace else ''}")
        if self._unscored_E:
            parts.append(f"unscored {self._unscored_E.total()} ({self._cause_counts()})")
        return "  ".join(parts)

    def _mean(self, name: str) -> str:
        scored = self._done_E[name] - self._unscored_E[name]
        return f"{self._rewards_E[name] / scored:.3f}" if scored else "-"

    def _pace(self, name: str) -> str:
        """Rollouts a second of an environment and the time that its rest will take, while there is a rest."""
        done, rest = self._done_E[name], self._totals_E[name] - self._done_E[name]
        seconds = monotonic() - self._started
        return f"{done / seconds:.3g}/s, {clock(seconds / done * rest)} left" if done and rest and seconds else ""

    def _cause_counts(self) -> str:
        return ", ".join(f"{one_line(kind, 40)} {count}" for kind, count in self._causes.most_common(3))

    def render(self) -> RenderableType:
        """A bar for all, then a line an environment."""
        done, total = self._done_E.total(), sum(self._totals_E.values())
        seconds = monotonic() - self._started
        left = f", {clock(seconds / done * (total - done))} left" if 0 < done < total else ""
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(max(1, total), done, width=BAR_WIDTH)
        head.add_row(self.title, bar, f"{done}/{total}  {clock(seconds)}{left}")
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("environment")
        for column in ("done", "mean reward", "unscored", "rate and time left"):
            table.add_column(column, justify="right")
        for name, planned in self._totals_E.items():
            unscored = Text(str(self._unscored_E[name]), style="red" if self._unscored_E[name] else "")
            cells = (f"{self._done_E[name]}/{planned}", self._mean(name), unscored, self._pace(name))
            table.add_row(Text(one_line(name, 40)), *cells)
        causes = [Text(f"unscored because of: {self._cause_counts()}", style="red")] if self._causes else []
        return Group(head, table, *causes)


class TrainingDisplay(CollectionDisplay):
    """A training run: step and time left, then share, groups, mean reward, signal and errors, an environment a line.

    The same object also takes the calls of a collection (`start`, `rollout`, `finish`), shown while an evaluation runs.
    A column whose metric no environment has is left out, so a run on demonstrations shows its loss instead of rewards.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console, title="evaluation")
        self._phase = STARTING
        self._step = 0
        self._max_steps = 0
        self._metrics_E: dict[str, dict[str, float]] = {}
        self._combined: float | None = None
        self._history_E: defaultdict[str, list[float]] = defaultdict(list)
        self._errors_E: Counter[str] = Counter()
        self._step_seconds: deque[float] = deque(maxlen=RECENT_STEPS)
        self._stepped = monotonic()
        self._evaluated_seconds = 0.0

    def phase(self, name: str) -> None:
        """What the run does now: evaluate, collect, update or checkpoint."""
        if self._phase in (STARTING, EVALUATE) and not self._step:  # loading belongs to no step either
            self._stepped, self._evaluated_seconds = monotonic(), 0.0
        self._phase = name

    def finish(self) -> None:
        """The collection has ended; the time of an evaluation belongs to no step."""
        super().finish()
        if self._phase == EVALUATE:
            self._evaluated_seconds += monotonic() - self._started

    def _report(self) -> None:
        """As lines, the collection of a step is told by the step's own line."""
        if self._phase == EVALUATE:
            super()._report()

    def step(self, step: int, max_steps: int, metrics: Mapping[str, float]) -> None:
        """A step has ended; `metrics` is its line of metrics.jsonl."""
        now = monotonic()
        self._step_seconds.append(now - self._stepped - self._evaluated_seconds)
        self._stepped, self._evaluated_seconds = now, 0.0
        self._step, self._max_steps = step, max_steps
        self._combined = metrics.get("combined/mean_reward")
        for name in environment_names(metrics):
            held_out = self._metrics_E.get(name, {}).get(HELD_OUT)
            own = {key: metrics[f"{name}/{key}"] for key, _, _ in COLUMNS if f"{name}/{key}" in metrics}
            held_out = metrics.get(f"eval/{name}/mean_reward", held_out)
            self._metrics_E[name] = own if held_out is None else own | {HELD_OUT: held_out}
            self._errors_E[name] += int(own.get("errors", 0))
            if "mean_reward" in own:
                self._history_E[name].append(own["mean_reward"])
        if not self.live:
            self.message(self.step_line())

    def seconds_left(self) -> float | None:
        """Estimate from the median of the last steps; None before the first. Evaluations are not counted."""
        return median(self._step_seconds) * (self._max_steps - self._step) if self._step_seconds else None

    def step_line(self) -> str:
        """The step as one line."""
        left = self.seconds_left()
        parts = [f"step {self._step}/{self._max_steps}", *([f"{clock(left)} left"] if left is not None else [])]
        for name, own in self._metrics_E.items():
            loss = "-" if "groups" in own else f"loss {own['loss']:.3f}"  # a run with groups is one with rewards
            reward = f"{own['mean_reward']:.3f}" if "mean_reward" in own else loss
            errors = f" ({self._errors_E[name]} errors)" if self._errors_E[name] else ""
            parts.append(f"{one_line(name, 40)} {reward}{errors}")
        return "  ".join([*parts, *([] if self._combined is None else [f"combined {self._combined:.3f}"])])

    def render(self) -> RenderableType:
        """Bar, table, and a line for an evaluation under way."""
        left = self.seconds_left()
        head = Table.grid(padding=(0, 1))
        eta = f"{clock(left)} left  " if left is not None else ""
        bar = ProgressBar(max(1, self._max_steps), self._step, width=BAR_WIDTH)
        head.add_row(f"step {self._step}/{self._max_steps or '?'}", bar, Text(f"{eta}{one_line(self._phase, 40)}"))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        columns = [column for column in COLUMNS if any(column[0] in own for own in self._metrics_E.values())]
        table.add_column("environment")
        for _, title, _ in columns:
            table.add_column(title, justify="right")
        if self._history_E:
            table.add_column("trend")
        for name, own in self._metrics_E.items():
            cells = [f"{own[key]:.{digits}f}" if key in own else "-" for key, _, digits in columns]
            trend = [sparkline(self._history_E[name])] if self._history_E else []
            table.add_row(Text(one_line(name, 40)), *cells, *trend, style="red" if own.get("errors") else "")
        below = [Text(self.line(), style="dim")] if self._phase == EVALUATE else []
        return Group(head, *([table] if self._metrics_E else []), *below)


def environment_names(metrics: Mapping[str, object]) -> list[str]:
    """Environments that a line of metrics speaks of, in its order; a name may hold "/" where groups nest."""
    found = (re.fullmatch(r"(?!eval/|time/)(.+)/(?:groups|loss)", key) for key in metrics)
    return list(dict.fromkeys(match[1] for match in found if match))
