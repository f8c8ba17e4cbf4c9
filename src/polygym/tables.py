"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two blanks apart, the first to the left and the others to the right, under a ruled header.

    >>> print(plain_table(["environment", "mean"], [["math", "0.700"]]))
    environment   mean
    -----------  -----
    math         0.700
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    ruled = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, ruled, *rows)
    )


def number(value: float | None, sign: str = "") -> str:
    """Three decimals, or a dash for what has no value."""
    return "-" if value is None else f"{value:{sign}.3f}"


def span(interval: Sequence[float] | None, sign: str = "") -> str:
    """An interval, or a dash."""
    return "-" if interval is None else f"[{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"
