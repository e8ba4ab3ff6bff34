"""Trackers and other optional packages, one module each; importing one of them imports no package of that name yet::

from lockstep.integrations.mlflow import MLflowLoggerCallback
from lockstep.integrations.wandb import WandbLoggerCallback
"""
