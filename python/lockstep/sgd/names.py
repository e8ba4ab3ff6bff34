"""Names that scripts written for RaySGD and for Ray Train's ``Trainer`` use: keys, files and variables."""

from __future__ import annotations

TIMESTAMP = "_timestamp"
TIME_THIS_ITER_S = "_time_this_iter_s"
TRAINING_ITERATION = "_training_iteration"
BASIC_AUTOFILLED_KEYS = frozenset({TIMESTAMP, TIME_THIS_ITER_S, TRAINING_ITERATION})
"""The keys that are added to every rank's results."""

DATE = "_date"
HOSTNAME = "_hostname"
NODE_IP = "_node_ip"
PID = "_pid"
TIME_TOTAL_S = "_time_total_s"
DETAILED_AUTOFILLED_KEYS = frozenset({DATE, HOSTNAME, NODE_IP, PID, TIME_TOTAL_S})
"""The keys that are added if ENABLE_DETAILED_AUTOFILLED_METRICS_ENV is set."""

ENABLE_DETAILED_AUTOFILLED_METRICS_ENV = "SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"
TRAIN_ENABLE_DETAILED_AUTOFILLED_METRICS_ENV = "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"
"""Ray Train's spelling of the same variable."""

PREPROCESSOR_KEY = "_preprocessor"
TUNE_CHECKPOINT_ID = "_current_checkpoint_id"

RESULT_FILE_JSON = "results.json"
TUNE_CHECKPOINT_FILE_NAME = "checkpoint"
CHECKPOINT_DIRECTORY = "checkpoints"
"""The directory of a run's checkpoints."""
