"""
Serve a model to clients that do not use treekit
================================================

::

    python examples/ask_a_server.py

Here the server runs in a thread and implements the Open Inference Protocol v2; usually it
is ``treekit serve melons.treekit``. Ten lines of the standard library send rows as text, as
in a CSV file; ``treekit predict --url`` sends the complete file. Needs the extras serve and
client: pip install '.[serve,client]' in a clone.
"""

import csv
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from isolated import run_bare

import treekit
from treekit.serve.http.app import make_app
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service

HERE = Path(__file__).parent
MELONS = HERE / "tables" / "watermelon" / "watermelon_3.0.csv"


@contextmanager
def server(*files):
    """Serve model files during the block; yield the URL."""
    repository = Repository(files)
    repository.refresh()
    config = uvicorn.Config(make_app(Service(repository)), port=0, log_level="warning")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            thread.join(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        thread.join()


def main():
    forest = treekit.train(MELONS, "好瓜", ignore=["编号"], ensemble="forest", trees=15, seed=0)
    with MELONS.open(encoding="utf-8", newline="") as stream:
        rows = [[row[name] for name in forest.schema.names] for row in csv.DictReader(stream)][:4]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "melons.treekit"
        forest.save(model)
        with server(model) as url:
            responses = [
                run_bare(HERE / "standalone" / "ask_server.py", url, "melons", *row) for row in rows
            ]
            command = [sys.executable, "-m", "treekit", "predict", "--proba"]
            there = subprocess.check_output([*command, "melons", MELONS, "--url", url])
        here = subprocess.check_output([*command, model, MELONS])
    labels = forest.predict(MELONS)[:4].tolist()
    shares = forest.predict_proba(MELONS)[:4].tolist()
    for text, label, numbers in zip(responses, labels, shares, strict=True):
        first, second = (line.split("\t") for line in text.splitlines())
        assert first == ["label", label]
        assert [second[0], *map(float, second[1:])] == ["probabilities", *numbers]
    assert there == here
    good = there.decode().count("\n是,")
    print(f"{len(responses)} melons by ten lines of Python, {good} good ones in the file")
    print("predictions of the server equal the model's, bit for bit")


if __name__ == "__main__":
    main()
