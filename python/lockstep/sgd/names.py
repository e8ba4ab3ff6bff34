"""Names that scripts written for RaySGD and for Ray Train's ``Trainer`` share: keys, files and variables."""

from __future__ import annotations

TIMESTAMP = "_timestamp"
TIME_THIS_ITER_S = "_time_this_iter_s"
TRAINING_ITERATION = "_training_iteration"
BASIC_AUTOFILLED_KEYS = frozenset({TIMESTAMP, TIME_THIS_ITER_S, TRAINING_ITERATION})
"""What every rank's results have besides what it reported."""

DATE = "_date"
HOSTNAME = "_hostname"
NODE_IP = "_node_ip"
PID = "_pid"
TIME_TOTAL_S = "_time_total_s"
DETAILED_AUTOFILLED_KEYS = frozenset({DATE, HOSTNAME, NODE_IP, PID, TIME_TOTAL_S})
"""What they also have where ENABLE_DETAILED_AUTOFILLED_METRICS_ENV is set."""

ENABLE_DETAILED_AUTOFILLED_METRICS_ENV = "SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"
TRAIN_ENABLE_DETAILED_AUTOFILLED_METRICS_ENV = "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"
"""The same variable in the spelling of Ray Train."""

PREPROCESSOR_KEY = "_preprocessor"
TUNE_CHECKPOINT_ID = "_current_checkpoint_id"

RESULT_FILE_JSON = "results.json"
TUNE_CHECKPOINT_FILE_NAME = "checkpoint"
CHECKPOINT_DIRECTORY = "checkpoints"
"""Of a run: where its checkpoints lie."""
