"""The terminal display as the objects that collection and training call.

The one idea: rooms meet here. `view` reads the ground only and `collect` and `train` know no display, so the classes
that are both are made by the room above them.
"""

from __future__ import annotations

from polygym.collect.progress import Progress
from polygym.train.progress import TrainProgress
from polygym.view.terminal import CollectionDisplay, TrainingDisplay


class CollectionWatch(CollectionDisplay, Progress):
    """Shows a collection or an evaluation."""


class TrainingWatch(TrainingDisplay, TrainProgress):
    """Shows a training run."""
