"""Runs for the programs that others use to look at them: TensorBoard, MLflow, and tables in Parquet.

`tacit track` brings the runs of a party there, and follows them. In a training loop of one's own a tracker is called
with a step and its figures; so is the history of `tacit.simulate` kept:

>>> import tempfile, torch
>>> from tacit import matched, simulate
>>> from tacit.views.track import TensorBoard
>>> _ = torch.manual_seed(0)
>>> done = simulate(
...     bottom=torch.nn.Linear(4, 8), top=torch.nn.Linear(8, 1), features=torch.randn(256, 4),
...     labels=torch.randint(0, 2, (256,)), protect=matched(leak_auc=0.6), epochs=2, batch_size=64,
... )
>>> with TensorBoard(tempfile.mkdtemp(), run="matched 0.6") as log:
...     for one in done.history:
...         log(one.epoch, {"utility/train_loss": one.loss, "strength/power": one.power})
>>> log.reached("utility/train_loss")
1

`MLflow` is called in the same way. Both are extras, `[tracking]`, and imported when one is opened.
"""

from tacit.views.track.following import Export, Following
from tacit.views.track.mlflow import MLflow
from tacit.views.track.parquet import Tables
from tacit.views.track.tensorboard import TensorBoard
from tacit.views.track.tracker import Point, Tracker

__all__ = ["Export", "Following", "MLflow", "Point", "Tables", "TensorBoard", "Tracker"]
