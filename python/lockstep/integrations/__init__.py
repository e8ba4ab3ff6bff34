"""Trackers and other optional packages, one module each. Importing such a module does not import the package yet::

from lockstep.integrations.mlflow import MLflowLoggerCallback
from lockstep.integrations.wandb import WandbLoggerCallback
"""
