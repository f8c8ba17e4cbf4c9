"""Blending: rows are dealt by the shares, copied as they stand, each with its agent, and what was done is on record."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_toys import read, wire_row, write
from polygym.data.blend import blend, manifest_of
from polygym.data.sources import Source, StoredRows, read_source
from polygym.errors import UsageError
from polygym.rows import task_index

TWO = [Source("example_single_tool_call"), Source("example_multi_step")]
Row = dict[str, Any]


def blended(folder: Path, *sources: Source, **options: Any) -> list[Row]:
    blend(sources, folder / "out.jsonl", **options)
    return read(folder / "out.jsonl")


def source(folder: Path, name: str, count: int, **more: Any) -> Source:
    path = write(folder / f"{name}.jsonl", (wire_row(n, f"{name} {n}", **more) for n in range(count)))
    return Source(name, path=path)


def names(rows: list[Row]) -> list[str]:
    return [row["agent_ref"]["name"].removesuffix("_simple_agent") for row in rows]


def test_the_example_rows_of_two_environments_take_turns(tmp_path: Path) -> None:
    rows = blended(tmp_path, *TWO)
    assert names(rows) == ["example_single_tool_call", "example_multi_step"] * 5
    assert rows[0]["agent_ref"] == {"type": "responses_api_agents", "name": "example_single_tool_call_simple_agent"}
    assert len({row["id"] for row in rows}) == 10


def test_every_row_is_there_once_and_any_part_is_a_fair_sample(tmp_path: Path) -> None:
    counts = {"a": 60, "b": 25, "c": 7}
    rows = blended(tmp_path, *(source(tmp_path, name, count) for name, count in counts.items()))
    assert Counter(names(rows)) == counts
    for name, count in counts.items():
        assert [row["id"] for row in rows if row["agent_ref"]["name"].startswith(name)] == list(range(count))
        for end in range(1, len(rows) + 1):
            assert abs(names(rows[:end]).count(name) - end * count / len(rows)) < 1


def test_one_source_after_the_other(tmp_path: Path) -> None:
    rows = blended(tmp_path, source(tmp_path, "a", 3), source(tmp_path, "b", 2), order="concat", epochs={"b": 2})
    assert [(name, row["id"]) for name, row in zip(names(rows), rows, strict=True)] == [
        ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 0), ("b", 1)
    ]  # fmt: skip


def test_with_weights_the_source_that_runs_out_first_decides(tmp_path: Path) -> None:
    rows = blended(tmp_path, Source("example_single_tool_call", 2.0), Source("example_multi_step", 1.0))
    assert Counter(names(rows)) == {"example_single_tool_call": 5, "example_multi_step": 2}


def test_a_source_that_runs_out_is_used_again_and_equal_rows_share_a_task(tmp_path: Path) -> None:
    few, many = source(tmp_path, "few", 4), source(tmp_path, "many", 50)
    rows = blended(tmp_path, few, many, count=20, shuffle=True, seed=5)
    assert Counter(names(rows)) == {"few": 10, "many": 10}
    ids = [row["id"] for row in rows if row["agent_ref"]["name"].startswith("few")]
    assert sorted(ids[:4]) == sorted(ids[4:8]) == [0, 1, 2, 3]
    assert ids[:4] != ids[4:8]
    assert len(set(ids[8:])) == 2
    assert len(set(task_index(rows))) == 4 + 10


def test_a_shuffle_is_named_by_its_seed_and_gives_every_row_once(tmp_path: Path) -> None:
    rows = [wire_row(n, f"{'é' * n} {n}") for n in range(40)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    packed = write(tmp_path / "a.jsonl.gz", rows)
    ids = {}
    for name, file, seed in (("first", path, 1), ("again", path, 1), ("packed", packed, 1), ("other", path, 2)):
        found = blended(tmp_path, Source("a", path=file), shuffle=True, seed=seed)
        ids[name] = [row["id"] for row in found]
        assert sorted(ids[name]) == list(range(40))
        assert all({**row, "agent_ref": None} == {**rows[row["id"]], "agent_ref": None} for row in found)
    assert ids["first"] == ids["again"] == ids["packed"] != ids["other"]
    assert list(range(40)) not in ids.values()


def test_a_row_is_copied_as_it_stands_and_keeps_the_agent_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    own = b'{"responses_create_params": {"input": "x"}, "agent_ref": {"name": "mine"}, "n": 1.10}'
    bare = b'{ "responses_create_params":{"input":"y"}, "n": 1E3 }'
    empty = b'{"responses_create_params": {"input": "z"}, "agent_ref": null}'
    path.write_bytes(own + b"\r\n" + bare + b"\n" + empty)
    blend([Source("a", path=path)], tmp_path / "out.jsonl")
    agent = b'"agent_ref":{"type":"responses_api_agents","name":"a_simple_agent"}}'
    assert (tmp_path / "out.jsonl").read_bytes().splitlines() == [
        own,
        b'{ "responses_create_params":{"input":"y"}, "n": 1E3,' + agent,
        b'{"responses_create_params":{"input":"z"},' + agent,
    ]


def test_a_file_alone_is_a_source_whose_rows_name_their_agents(tmp_path: Path) -> None:
    rows = [wire_row(n, agent=f"{'ab'[n % 2]}_simple_agent") for n in range(6)]
    path = write(tmp_path / "mixed.parquet", rows)
    assert blended(tmp_path, read_source(str(path))) == rows
    write(path, [*rows, wire_row(7)])
    with pytest.raises(UsageError, match=r"mixed\.parquet, line 7: the row names no agent; write --add NAME="):
        blended(tmp_path, read_source(str(path)))


def test_the_manifest_says_what_the_file_was_made_of(tmp_path: Path) -> None:
    a, b = source(tmp_path, "a", 8), source(tmp_path, "b", 4)
    output = tmp_path / "out" / "rows.jsonl.gz"
    a, b = Source("a", 0.5, a.path), Source("b", 0.5, b.path)
    done = blend([a, b], output, count=12, shuffle=True, seed=3)
    manifest = json.loads(done.manifest.read_text("utf-8"))
    assert done.manifest == manifest_of(output) == tmp_path / "out" / "rows.jsonl.gz.manifest.json"
    assert manifest["output"] == {
        "path": str(output),
        "sha256": hashlib.sha256(output.read_bytes()).hexdigest(),
        "rows": 12,
        "agents": {"a_simple_agent": 6, "b_simple_agent": 6},
    }
    assert manifest["sources"]["b"] == {
        "environment": "b",
        "path": str(b.path),
        "sha256": hashlib.sha256(b.path.read_bytes() if b.path else b"").hexdigest(),
        "weight": 0.5,
        "rows": 4,
        "rows_written": 6,
        "epochs": 1.5,
    }
    assert manifest["settings"] == {"count": 12, "epochs": None, "order": "interleave", "shuffle": True, "seed": 3}
    first = output.read_bytes()
    blend([a, b], output, count=12, shuffle=True, seed=3)
    assert output.read_bytes() == first
    assert sorted(path.name for path in output.parent.iterdir()) == ["rows.jsonl.gz", "rows.jsonl.gz.manifest.json"]


def test_a_row_that_is_none_is_told_with_its_line_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"responses_create_params": {"input": "x"}}\n{"question": "x"}\n', "utf-8")
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 3: the row has no responses_create_params.*data prepare"):
        blended(tmp_path, Source("a", path=path))
    packed = write(tmp_path / "rows.parquet", [wire_row(1), {"question": "x"}])
    with pytest.raises(UsageError, match=r"rows\.parquet, line 2: the row has no responses_create_params"):
        blended(tmp_path, Source("a", path=packed))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UsageError, match=r"rows\.jsonl\.gz, line 3: the row has no responses_create_params"):
        blended(tmp_path, Source("a", path=tmp_path / "rows.jsonl.gz"))
    with pytest.raises(UsageError, match="is read too"):
        blend([Source("a", path=packed)], packed)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["rows.jsonl", "rows.jsonl.gz", "rows.parquet"]


@pytest.mark.parametrize("seed", [None, 3])
def test_a_file_that_is_cut_while_it_is_read_is_told(seed: int | None, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (wire_row(n) for n in range(20_000)))
    stored = StoredRows(Source("a", path=path), tmp_path, shuffled=seed is not None)
    rows = stored.rows(20_000, seed)
    next(rows)
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"a\.jsonl was changed while it was read"):
        list(rows)
    stored.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("math_rl", Source("math_rl")),
        ("math_rl=0.5", Source("math_rl", 0.5)),
        ("math_rl=rows", Source("math_rl", None, Path("rows"))),
        ("math_rl=a/rows.jsonl=2", Source("math_rl", 2.0, Path("a/rows.jsonl"))),
        ("a/rows.jsonl.gz", Source(None, None, Path("a/rows.jsonl.gz"))),
        ("rows.parquet=.5", Source(None, 0.5, Path("rows.parquet"))),
        ("./my_env", Source("./my_env")),
    ],
)
def test_what_add_means(text: str, expected: Source) -> None:
    assert read_source(text) == expected


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([], "nothing to blend"),
        (["math_rl", "math_rl=rows.jsonl"], "names 'math_rl' twice"),
        (["math_rl", "tool_use=0.5"], "not for math_rl"),
        (["math_rl=0"], "more than 0"),
        (["math_rl=-1"], "more than 0"),
        (["math_rl=nan"], "more than 0"),
        (["math_rl="], "nothing after '='"),
        (["math_rl=no_such_file.jsonl"], "cannot read 'no_such_file.jsonl'"),
        (["multi_env"], "is a group of math, tools, word"),
        (["example_multi_stp"], "did you mean 'example_multi_step'"),
    ],
)
def test_what_cannot_be_blended_is_refused(sources: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        blended(tmp_path, *(read_source(text) for text in sources))
    with pytest.raises(UsageError, match="did you mean 'interleave'"):
        blended(tmp_path, *TWO, order="interleaved")
    assert list(tmp_path.iterdir()) == []
