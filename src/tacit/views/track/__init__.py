"""Runs for the programs that others use to look at them: TensorBoard, MLflow, and tables in Parquet.

`tacit track` brings the runs of a party there, and follows them. TensorBoard and MLflow are extras, `[tracking]`, and
imported when one is opened.
"""

from tacit.views.track.following import Export
from tacit.views.track.mlflow import MLflow
from tacit.views.track.parquet import Tables
from tacit.views.track.tensorboard import TensorBoard
from tacit.views.track.tracker import Point, Tracker

__all__ = ["Export", "MLflow", "Point", "Tables", "TensorBoard", "Tracker"]
