"""Which environment is asked, how often, and with which of its tasks."""

from polygym.mixture.batch_plan import BatchPlan, PlannedEnvironment, plan_batch
from polygym.mixture.cursor import TaskCursor
from polygym.mixture.evidence import Evidence, evidence_of_evaluation
from polygym.mixture.mixture import Mixture
from polygym.mixture.schedule import GroupSchedule
from polygym.mixture.shares import water_fill

__all__ = [
    "BatchPlan",
    "Evidence",
    "GroupSchedule",
    "Mixture",
    "PlannedEnvironment",
    "TaskCursor",
    "evidence_of_evaluation",
    "plan_batch",
    "water_fill",
]
