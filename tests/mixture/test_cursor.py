"""Tasks are drawn without replacement, named by (seed, environment, cursor)."""

import pytest

from polygym.errors import UsageError
from polygym.mixture import TaskCursor


def test_every_epoch_holds_every_task_once_in_a_new_order():
    cursor = TaskCursor(0, "math", 50)
    epochs = [cursor.draw(50) for _ in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert cursor.epoch == 3


def test_how_many_are_drawn_at_once_changes_nothing():
    one, many = TaskCursor(3, "math", 7), TaskCursor(3, "math", 7)
    assert [task for _ in range(20) for task in one.draw(1)] == many.draw(20)


def test_seed_and_environment_name_the_order():
    orders = [TaskCursor(seed, name, 30).draw(30) for seed, name in ((0, "math"), (1, "math"), (0, "word"))]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert TaskCursor(0, "math", 30).draw(30) == orders[0]


def test_the_order_is_the_same_in_every_version_and_process():
    assert TaskCursor(0, "math", 5).draw(10) == [3, 1, 4, 0, 2, 1, 4, 0, 2, 3]


def test_a_saved_cursor_draws_the_same_next_tasks():
    whole, resumed = TaskCursor(0, "math", 7), TaskCursor(0, "math", 7)
    whole.draw(10)
    assert resumed.load_state_dict(whole.state_dict())
    assert resumed.draw(10) == whole.draw(10)


def test_a_changed_number_of_tasks_keeps_the_position_and_is_told():
    cursor = TaskCursor(0, "math", 9)
    assert not cursor.load_state_dict({"position": 4, "size": 7})
    assert cursor.position == 4
    assert all(0 <= task < 9 for task in cursor.draw(20))


def test_an_environment_without_tasks_is_refused():
    with pytest.raises(UsageError, match="'math' has 0 tasks"):
        TaskCursor(0, "math", 0)
