"""Scripts that several tests of the command line run."""

ENDLESS = """
import headwater as hw

def train(trial):
    for epoch in trial.epochs(10**9):
        trial.report(loss=1.0)
        if epoch == 0:
            print("reported", flush=True)

study = hw.Study(train, space={"lr": hw.uniform(0, 1)}, metric="loss", lanes=1)
NUM_TRIALS = 3
"""
"""A study that goes on until it is ended, and says when it has begun."""
